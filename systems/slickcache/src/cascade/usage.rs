//! Memory and flash in use by a cascade, by part.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory and flash in use, and the settings that determine them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Share of the mappings that Tier 1 holds, in percent.
    pub hot_percent: u32,
    /// Filter bits for each entry on flash.
    pub filter_bits: u32,
    /// Bytes of memory of Tier 1.
    pub tier1_bytes: u64,
    /// Bytes of memory of Tiers 2 and 3: filters, fences, and entries that are not on flash yet.
    pub below_bytes: u64,
    /// Bytes of memory of the page map of the region.
    pub map_bytes: u64,
    /// Pages of the region in use, pages that wait for a checkpoint included.
    pub pages_used: u64,
    /// Free pages of the region.
    pub pages_free: u64,
}

/// Bytes of memory of all partitions: the sum of every change of Tier 1, and for each partition the bytes below Tier 1
/// after its last step of upkeep. Lock-free.
pub struct MemoryUse {
    hot: AtomicU64,
    below: Box<[AtomicU64]>,
}

impl MemoryUse {
    pub(super) fn new(hot: u64, partitions: usize) -> Self {
        Self {
            hot: AtomicU64::new(hot),
            below: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the bytes of Tier 1.
    pub fn hot(&self) -> u64 {
        self.hot.load(Ordering::Relaxed)
    }

    /// Returns the bytes of Tiers 2 and 3.
    pub fn below(&self) -> u64 {
        let below = self.below.iter();
        below.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Adds the growth of Tier 1 of a partition, modulo 2^64: Tier 1 may have shrunk.
    pub(super) fn hot_has_grown(&self, bytes: u64) {
        self.hot.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes below Tier 1 of a partition.
    pub(super) fn set_below(&self, partition: usize, bytes: u64) {
        self.below[partition].store(bytes, Ordering::Relaxed);
    }
}
