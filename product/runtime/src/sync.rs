//! Synchronisation of tasks: usable from any thread and from both runtimes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use event_listener::Event;
pub use event_listener::EventListener;
use parking_lot::Mutex;

/// Wakes every task that waits for a condition to change.
///
/// Take a [`listener`](Notify::listener) first, test the condition, then await the listener: a
/// change between the test and the await is not lost.
#[derive(Debug, Default)]
pub struct Notify(Event);

impl Notify {
    /// Creates a notifier.
    pub const fn new() -> Self {
        Self(Event::new())
    }

    /// Registers a listener now; it completes at the next [`notify_all`](Notify::notify_all).
    pub fn listener(&self) -> EventListener {
        self.0.listen()
    }

    /// Wakes every listener registered before this call.
    pub fn notify_all(&self) {
        self.0.notify(usize::MAX);
    }
}

/// Creates a channel that hands one value from one task to another.
#[must_use]
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot {
        value: None,
        waker: None,
        closed: false,
    }));
    (Sender(Arc::clone(&slot)), Receiver(slot))
}

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// Sending half of [`oneshot`]. Dropping it unused closes the channel.
pub struct Sender<T>(Arc<Mutex<Slot<T>>>);

impl<T> Sender<T> {
    /// Sends the value.
    pub fn send(self, value: T) {
        self.0.lock().value = Some(value);
    }

    /// Returns whether the receiver has been dropped.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock();
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Receiving half of [`oneshot`]: a future of the value, `None` when the sender was dropped unused.
pub struct Receiver<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if slot.closed {
            return Poll::Ready(None);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// Bounds how many tasks proceed at once, in order of arrival. Clones refer to the same semaphore.
#[derive(Clone)]
pub struct Semaphore(Arc<Mutex<Permits>>);

struct Permits {
    free: usize,
    waiting: VecDeque<Sender<Permit>>,
}

/// Permission to proceed; passed to the next task in line on drop.
pub struct Permit(Semaphore);

impl Semaphore {
    /// Creates a semaphore of `permits` permits.
    pub fn new(permits: usize) -> Self {
        Self(Arc::new(Mutex::new(Permits {
            free: permits,
            waiting: VecDeque::new(),
        })))
    }

    /// Returns a permit if one is free and no task waits.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        self.take_or(|_| ()).ok()
    }

    /// Waits for a permit. Dropping the future gives up its place in line.
    pub async fn acquire(&self) -> Permit {
        let taken = self.take_or(|permits| {
            let (turn, comes) = oneshot();
            permits.waiting.push_back(turn);
            comes
        });
        match taken {
            Ok(permit) => permit,
            Err(comes) => comes.await.expect("who waits is kept until their turn"),
        }
    }

    fn take_or<T>(&self, otherwise: impl FnOnce(&mut Permits) -> T) -> Result<Permit, T> {
        let mut permits = self.0.lock();
        if permits.free == 0 || !permits.waiting.is_empty() {
            return Err(otherwise(&mut permits));
        }
        permits.free -= 1;
        Ok(Permit(self.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut permits = self.0.0.lock();
            let mut next = permits.waiting.pop_front();
            // Skips all abandoned waiters in a loop: otherwise each would drop the permit in turn, one inside the other.
            while next.as_ref().is_some_and(Sender::is_abandoned) {
                next = permits.waiting.pop_front();
            }
            permits.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            next.send(Self(self.0.clone()));
        }
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Semaphore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Sim;
    use std::time::Duration;

    #[test]
    fn who_comes_first_goes_first_and_who_goes_away_holds_nobody_up() {
        Sim::new(1).block_on(async {
            let semaphore = Semaphore::new(1);
            let first = semaphore.acquire().await;
            let gone = crate::timeout(Duration::from_nanos(5), semaphore.acquire()).await;
            assert!(gone.is_err());
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for number in 0..5 {
                let (semaphore, order) = (semaphore.clone(), Arc::clone(&order));
                tasks.push(crate::spawn(async move {
                    crate::sleep(Duration::from_nanos(number)).await;
                    let _in = semaphore.acquire().await;
                    crate::sleep(Duration::from_nanos(100)).await;
                    order.lock().push(number);
                }));
            }
            crate::sleep(Duration::from_nanos(50)).await;
            drop(first);
            for task in tasks {
                task.await;
            }
            assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
            assert!(semaphore.try_acquire().is_some());
        });
    }

    #[test]
    fn many_may_go_away_at_once() {
        Sim::new(1).block_on(async {
            let semaphore = Semaphore::new(1);
            let first = semaphore.acquire().await;
            let mut waiting: Vec<_> = (0..200_000)
                .map(|_| Box::pin(semaphore.acquire()))
                .collect();
            for one in &mut waiting {
                let pending =
                    std::future::poll_fn(|cx| Poll::Ready(one.as_mut().poll(cx).is_pending()));
                assert!(pending.await);
            }
            drop(waiting);
            drop(first);
            assert!(semaphore.try_acquire().is_some());
        });
    }
}
