//! The order of a trace's requests for each key, kept although several clients make them.
//!
//! A get that finds nothing is followed by a set of its key, and the trace's next request for the key may be
//! a get that finds it. If another client makes that get before the set has been answered, it misses, however
//! large the cache is. Requests for a key therefore line up in the order of the trace, and each waits until
//! the requests before it have been made. A request never waits for a later one, so no two requests wait for
//! each other.

use std::collections::{HashMap, VecDeque};
use std::future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::key_id::KeyId;

/// The lines of all keys with requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<KeyId, Line>>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// Requests in order; the first one is being made.
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    waker: Option<Waker>,
}

/// The turn of a request among the requests for its key. The client waits for the turn to come, and drops it
/// when the request and its follow-up have been answered or given up.
#[derive(Debug)]
pub struct Turn(Option<InLine>);

#[derive(Debug)]
struct InLine {
    lines: Arc<Lines>,
    key: KeyId,
    number: u64,
}

impl Lines {
    /// Returns the last place in the line of a key.
    pub(crate) fn join(self: &Arc<Self>, key: KeyId) -> Turn {
        let mut lines = self.lock();
        let line = lines.entry(key).or_default();
        let number = line.next;
        line.next += 1;
        line.places.push_back(Place {
            number,
            waker: None,
        });
        Turn(Some(InLine {
            lines: Arc::clone(self),
            key,
            number,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The turn of a request that waits for no other.
    pub const FREE: Self = Self(None);

    /// Returns whether the request may be made now.
    pub fn has_come(&self) -> bool {
        self.poll(None).is_ready()
    }

    /// Resolves when the request may be made.
    pub async fn comes(&self) {
        future::poll_fn(|context| self.poll(Some(context))).await;
    }

    fn poll(&self, context: Option<&Context<'_>>) -> Poll<()> {
        let Some(InLine { lines, key, number }) = &self.0 else {
            return Poll::Ready(());
        };
        let mut lines = lines.lock();
        let places = lines.get_mut(key).map(|line| &mut line.places);
        let Some(place) = places.and_then(|places| {
            let at = places.iter().position(|place| place.number == *number);
            places.get_mut(at.filter(|&at| at > 0)?)
        }) else {
            return Poll::Ready(());
        };
        if let Some(context) = context {
            place.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(InLine { lines, key, number }) = self.0.take() else {
            return;
        };
        let mut lines = lines.lock();
        let Some(line) = lines.get_mut(&key) else {
            return;
        };
        line.places.retain(|place| place.number != number);
        let next = match line.places.front_mut() {
            Some(first) => first.waker.take(),
            None => {
                lines.remove(&key);
                None
            }
        };
        drop(lines);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn requests_of_one_key_are_made_one_after_the_other_and_of_others_meanwhile() {
        let lines = Arc::new(Lines::default());
        let [first, second, third] = [(); 3].map(|()| lines.join(KeyId(7)));
        let other = lines.join(KeyId(8));
        let come =
            |turns: &[&Turn]| -> Vec<bool> { turns.iter().map(|turn| turn.has_come()).collect() };
        assert_eq!(
            come(&[&first, &second, &third, &other]),
            [true, false, false, true]
        );
        assert!(Turn::FREE.has_come());
        // A request that is given up before its turn delays no other.
        drop(second);
        assert_eq!(come(&[&first, &third]), [true, false]);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut waits = Box::pin(third.comes());
        assert!(
            waits
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert!(!woken.0.load(Ordering::Relaxed));
        drop(first);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(
            waits
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        );
        drop(waits);
        drop((third, other));
        assert!(
            lines.lock().is_empty(),
            "nothing is kept of keys that nobody asks for"
        );
    }
}
