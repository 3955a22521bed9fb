//! Counters of the server: a block per worker, written by that worker alone, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `by`. Only the owning worker does, so that a load and a store suffice.
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(by),
            Ordering::Relaxed,
        );
    }

    #[inline]
    pub(crate) fn hit(&self) {
        self.add(1);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        #[repr(align(128))]
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter),* }

        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Totals { $(pub(crate) $name: u64),* }

        impl Totals {
            pub(crate) fn add(&mut self, worker: &Counters) {
                $(self.$name = self.$name.wrapping_add(worker.$name.get());)*
            }

            #[must_use]
            pub(crate) fn since(mut self, base: &Self) -> Self {
                $(self.$name = self.$name.wrapping_sub(base.$name);)*
                self
            }

            /// Returns names and values, in the order of memcached's `stats`.
            pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    cmd_get, cmd_set, cmd_flush, cmd_touch, cmd_meta,
    get_hits, get_misses, delete_misses, delete_hits, incr_misses, incr_hits, decr_misses,
    decr_hits, cas_misses, cas_hits, cas_badval, touch_hits, touch_misses,
    store_too_large, store_no_memory, bytes_read, bytes_written, protocol_errors, conn_yields,
}
