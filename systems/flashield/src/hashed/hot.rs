//! [`HotShare`]: the number of entries that may be hot.

use super::shard::Shard;
use engine::placement::InMemory;
use engine::store::SegmentStore;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The share of the entries that may be hot; the other entries are ghosts. With separate CLOCKs it holds only on a nearly
/// full flash.
pub(super) struct HotShare {
    hot_percent: u32,
    /// Whether memory and flash share one CLOCK.
    pub(super) has_one_clock: bool,
    /// Whether the flash is so full that some of its items must become ghosts.
    is_full: AtomicBool,
    /// Estimated number of items that the whole flash holds; 0 while it is not known.
    capacity: AtomicU64,
}

impl HotShare {
    pub(super) fn new(hot_percent: u32, has_one_clock: bool) -> Self {
        Self {
            hot_percent,
            has_one_clock,
            is_full: AtomicBool::new(false),
            capacity: AtomicU64::new(0),
        }
    }

    /// Turns some entries into ghosts, if too many are hot. With separate CLOCKs, does so only on a nearly full flash.
    pub(super) fn keep_ghosts(&self, shard: &mut Shard) {
        if self.has_one_clock {
            // The hand moves over the entries alone: items in memory must not pay for a ghost that was read.
            shard.move_hand(shard.most_hot);
        } else if self.is_full.load(Ordering::Relaxed) {
            shard.keep_ghosts(self.hot_percent);
        }
    }

    /// Returns the most hot entries of a partition under the shared CLOCK: as many as items fit all of memory and
    /// `hot_percent` of the flash (Flashield, section 4.3: DRAM + SSD x hot). Returns `None` while the capacity of the flash
    /// is not known.
    pub(super) fn most_hot(
        &self,
        store: &SegmentStore,
        partition_bits: u32,
        memory: InMemory,
    ) -> Option<usize> {
        let capacity = self.capacity.load(Ordering::Relaxed);
        if capacity == 0 {
            return None;
        }
        let flash_bytes =
            u64::from(store.table().segments()) * u64::from(store.table().segment_bytes());
        let item_bytes = (flash_bytes / capacity).max(1);
        let of_flash = (capacity * u64::from(self.hot_percent) / 100) >> partition_bits;
        let of_memory = memory.spare_bytes / item_bytes;
        Some((of_flash + of_memory) as usize)
    }

    /// Updates the capacity of the flash, and whether it is nearly full. A segment has `mean_keys` keys.
    pub(super) fn note_fill(&self, store: &SegmentStore, mean_keys: u64) {
        let capacity = mean_keys * u64::from(store.table().segments());
        self.capacity.store(capacity, Ordering::Relaxed);
        // Watermarks keep at most half of the flash free.
        let is_full = !store.pool().is_first_fill()
            && store.pool().counts().free <= store.table().segments() / 2;
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}
