//! What tasks wait on: usable from any thread and from both runtimes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use event_listener::{Event, EventListener};
use parking_lot::Mutex;

/// Wakes every task that waits for a condition to change.
///
/// Take a [`listener`](Notify::listener) first, test the condition, then await the listener: a
/// change between the test and the await is not lost.
#[derive(Debug, Default)]
pub struct Notify(Event);

impl Notify {
    /// A notifier nobody waits on.
    #[must_use]
    pub const fn new() -> Self {
        Self(Event::new())
    }

    /// Registers interest now; completes at the next [`notify_all`](Notify::notify_all).
    pub fn listener(&self) -> EventListener {
        self.0.listen()
    }

    /// Wakes all that registered before this call.
    pub fn notify_all(&self) {
        self.0.notify(usize::MAX);
    }
}

/// A value handed once from one task to another.
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

/// The giving half of [`oneshot`]. Dropped unused, it closes the channel.
pub struct Sender<T>(Arc<Mutex<Slot<T>>>);

impl<T> Sender<T> {
    /// Hands the value over.
    pub fn send(self, value: T) {
        self.0.lock().value = Some(value);
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

/// The receiving half of [`oneshot`]: a future of the value, `None` when the sender went away.
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
