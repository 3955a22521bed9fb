//! Counts the users of the engine, so that a stop can wait for them.
//!
//! An operation that never waits enters, holds a stripe of the door open while it runs, and leaves.
//! An operation that has to wait takes a [`Stay`], which is counted. After [`shut`](Door::shut) no operation
//! can enter, and all operations that had entered have left. [`wait_until_empty`](Door::wait_until_empty)
//! waits for the stays. So no operation changes a cache that is being saved.
//!
//! The stripes exist only for speed: threads that enter at once touch different cache lines.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use runtime::sync::Notify;

const STRIPES: usize = 16;

thread_local! {
    /// The stripe of the calling thread.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

#[repr(align(128))]
struct Stripe<T>(RwLock<Option<Arc<T>>>);

pub(super) struct Door<T> {
    stripes: Box<[Stripe<T>]>,
    stays: Arc<Stays>,
}

#[derive(Default)]
struct Stays {
    count: AtomicUsize,
    /// Notified whenever the last stay ends.
    emptied: Notify,
}

/// Access to the engine for a moment; not to be held across an await.
pub(super) struct Entered<'a, T> {
    guard: RwLockReadGuard<'a, Option<Arc<T>>>,
    stays: &'a Arc<Stays>,
}

/// Access to the engine for the duration of an operation.
pub(super) struct Stay<T> {
    // Dropped in this order: the stop that sees no stay left may have to be the last owner of the engine.
    engine: Arc<T>,
    _counted: Counted,
}

struct Counted(Arc<Stays>);

impl<T> Door<T> {
    pub(super) fn new(engine: &Arc<T>) -> Self {
        let stripe = || Stripe(RwLock::new(Some(Arc::clone(engine))));
        Self {
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
            stays: Arc::default(),
        }
    }

    /// Returns access to the engine; `None` once the door is shut.
    pub(super) fn enter(&self) -> Option<Entered<'_, T>> {
        // A thread whose locals are already destroyed uses the first stripe.
        let stripe = STRIPE.try_with(|&stripe| stripe).unwrap_or(0);
        let guard = self.stripes[stripe].0.read();
        guard.is_some().then_some(Entered {
            guard,
            stays: &self.stays,
        })
    }

    /// Shuts the door and returns the engine; `None` if it was shut before.
    pub(super) fn shut(&self) -> Option<Arc<T>> {
        let mut engine = None;
        for stripe in &self.stripes {
            engine = stripe.0.write().take().or(engine);
        }
        engine
    }

    /// Waits until no stay is left. Use it after `shut`.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let emptied = self.stays.emptied.listener();
            if self.stays.count.load(Ordering::Acquire) == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl<T> Entered<'_, T> {
    /// Extends the access beyond this moment.
    pub(super) fn stay(&self) -> Stay<T> {
        self.stays.count.fetch_add(1, Ordering::AcqRel);
        Stay {
            engine: Arc::clone(self),
            _counted: Counted(Arc::clone(self.stays)),
        }
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.guard.as_ref().expect("checked when it was entered")
    }
}

impl<T> Deref for Stay<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.engine
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.emptied.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_shut_door_lets_nobody_in_and_is_shut_once() {
        let door = Door::new(&Arc::new(7));
        assert_eq!(door.enter().map(|entered| **entered), Some(7));
        assert_eq!(door.shut().as_deref(), Some(&7));
        assert!(door.enter().is_none());
        assert!(door.shut().is_none());
    }

    #[test]
    fn whoever_has_entered_keeps_the_door_from_being_shut() {
        let door = Door::new(&Arc::new(()));
        let entered = door.enter();
        let is_held = |stripe: &Stripe<()>| stripe.0.try_write().is_none();
        assert_eq!(
            door.stripes.iter().filter(|stripe| is_held(stripe)).count(),
            1
        );
        drop(entered);
        assert!(!door.stripes.iter().any(is_held));
    }

    #[test]
    fn emptying_waits_for_those_who_stay() {
        let engine = Arc::new(());
        let door = Door::new(&engine);
        let stays = [door.enter().unwrap().stay(), door.enter().unwrap().stay()];
        door.shut();
        let mut empty = pin!(door.wait_until_empty());
        let mut context = Context::from_waker(Waker::noop());
        for stay in stays {
            assert!(empty.as_mut().poll(&mut context).is_pending());
            drop(stay);
        }
        assert!(empty.as_mut().poll(&mut context).is_ready());
        assert_eq!(Arc::strong_count(&engine), 1);
    }
}
