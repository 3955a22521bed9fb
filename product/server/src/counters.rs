//! Counters of the server: a block per worker, written by that worker alone, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::Count;

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Count for Counter {
    /// Adds `by`. Only the owning worker does, so that a load and a store suffice.
    #[inline]
    fn add(&self, by: u64) {
        self.0.store(self.get().wrapping_add(by), Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counter {
    #[inline]
    pub(crate) fn hit(&self) {
        self.add(1);
    }
}

impl Counters {
    /// Returns the counters of hits and misses of `incr` or `decr`.
    pub(crate) fn arithmetic(&self, decrement: bool) -> (&Counter, &Counter) {
        if decrement {
            (&self.decr_hits, &self.decr_misses)
        } else {
            (&self.incr_hits, &self.incr_misses)
        }
    }
}

engine::counters! {
    /// Sums over all workers, in the order of memcached's `stats`.
    pub(crate) struct Totals {
        cmd_get, cmd_set, cmd_flush, cmd_touch, cmd_meta,
        get_hits, get_misses, delete_misses, delete_hits, incr_misses, incr_hits, decr_misses,
        decr_hits, cas_misses, cas_hits, cas_badval, touch_hits, touch_misses,
        store_too_large, store_no_memory, bytes_read, bytes_written, protocol_errors, conn_yields,
    }
    from #[repr(align(128))] pub(crate) struct Counters of Counter
}
