//! [`Striped`]: a counter that all threads add to without waiting for one another's cache line, and the
//! [`CacheLine`] that keeps neighbours apart.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Keeps its content off the cache lines of its neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// Enough that the threads of a large machine seldom share one.
const STRIPES: usize = 16;

thread_local! {
    static STRIPE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES)
    };
}

/// A counter on as many cache lines as threads are likely to be at it.
#[derive(Default)]
pub struct Striped([CacheLine<AtomicU64>; STRIPES]);

impl Striped {
    pub(crate) fn add(&self, count: u64) {
        self.0[STRIPE.get()].0.fetch_add(count, Ordering::Relaxed);
    }

    /// What has been added so far.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0
            .iter()
            .map(|part| part.0.load(Ordering::Relaxed))
            .sum()
    }
}

impl std::fmt::Debug for Striped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sum().fmt(f)
    }
}
