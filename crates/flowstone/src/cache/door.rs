//! Who is using the engine, so that a stop can wait for them.
//!
//! An operation that never waits enters, holds a stripe of the door open while it runs, and leaves.
//! One that has to wait takes a [`Stay`], which is counted. [`shut`](Door::shut) lets nobody in any
//! more; when it returns all who had entered have left, and [`wait_until_empty`](Door::wait_until_empty)
//! waits for those who stay. So nothing changes a cache that is being saved.
//!
//! The stripes exist for speed alone: threads that enter at once touch different cache lines.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::Engine;
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
struct Stripe(RwLock<Option<Arc<Engine>>>);

/// The way to the engine, until it is shut.
pub(super) struct Door {
    stripes: Box<[Stripe]>,
    stays: Arc<Stays>,
}

#[derive(Default)]
struct Stays {
    count: AtomicUsize,
    /// Told whenever the last one has left.
    emptied: Notify,
}

/// The engine for a moment; not to be held across an await.
pub(super) struct Entered<'a> {
    guard: RwLockReadGuard<'a, Option<Arc<Engine>>>,
    stays: &'a Arc<Stays>,
}

/// The engine for as long as an operation takes.
pub(super) struct Stay {
    // Dropped in this order: whoever sees nobody staying may be the last to hold the engine.
    engine: Arc<Engine>,
    _counted: Counted,
}

struct Counted(Arc<Stays>);

impl Door {
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        let stripe = || Stripe(RwLock::new(Some(Arc::clone(engine))));
        Self {
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
            stays: Arc::default(),
        }
    }

    /// `None` once the door is shut.
    pub(super) fn enter(&self) -> Option<Entered<'_>> {
        // A thread whose locals are gone already is as welcome at the first stripe.
        let stripe = STRIPE.try_with(|&stripe| stripe).unwrap_or(0);
        let guard = self.stripes[stripe].0.read();
        guard.is_some().then_some(Entered {
            guard,
            stays: &self.stays,
        })
    }

    /// Shuts the door; `None` when it was shut before.
    pub(super) fn shut(&self) -> Option<Arc<Engine>> {
        let mut engine = None;
        for stripe in &self.stripes {
            engine = stripe.0.write().take().or(engine);
        }
        engine
    }

    /// Waits until nobody stays. Meaningful once the door is shut.
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

impl Entered<'_> {
    /// Stays beyond this moment.
    pub(super) fn stay(&self) -> Stay {
        self.stays.count.fetch_add(1, Ordering::AcqRel);
        Stay {
            engine: Arc::clone(self),
            _counted: Counted(Arc::clone(self.stays)),
        }
    }
}

impl Deref for Entered<'_> {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        self.guard.as_ref().expect("checked when it was entered")
    }
}

impl Deref for Stay {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
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
