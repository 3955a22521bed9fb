//! The order of a trace's requests to each key, kept though several clients make them.
//!
//! A get that finds nothing is followed by a set of its key, and the trace's next request of that key is one that finds
//! it. If another client makes that before the set has been answered, it misses, however large the cache is. So the
//! requests of a key are lined up as they come from the trace, and each waits until those before it have been made.
//! Nobody waits for a later request, so that no two wait for each other.

use std::collections::{HashMap, VecDeque};
use std::future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::key_id::KeyId;

/// The lines of all keys with requests under way.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<KeyId, Line>>);

#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// Requests in order; the first is the one being made.
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    waker: Option<Waker>,
}

/// The turn of a request among those of its key: whoever makes it waits for the turn to come, and drops it when the
/// request, with what follows it, has been answered or given up.
#[derive(Debug)]
pub struct Turn(Option<InLine>);

#[derive(Debug)]
struct InLine {
    lines: Arc<Lines>,
    key: KeyId,
    number: u64,
}

impl Lines {
    /// The last place in the line of a key.
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
    /// That of a request which waits for none.
    pub const FREE: Self = Self(None);

    /// Whether the request may be made now.
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
        // One that is given up before its turn keeps nobody waiting.
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
