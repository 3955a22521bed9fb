//! The DRAM tiers of all partitions above the flash tier: the state on which requests and background tasks work.
//!
//! ```text
//!   request, task ──> Partitions::lock ──> Partition ──evicts──> FlashTier
//!                        └─ applies a flush that is due      └─ within MemoryShares::tier_limit
//! ```

mod large;
mod marks;
mod partitions;
mod returned;
mod shares;

use std::sync::Arc;

pub(crate) use large::LargeHand;
pub(crate) use marks::VersionMarks;
pub(crate) use partitions::Partitions;
pub(crate) use shares::MemoryShares;

use crate::admission::Gate;
use crate::counter::Count as _;
use crate::dram::{DramTier, EvictContext, LargeClaim, LongValue, NewItem};
use crate::durability::FlushCutoffs;
use crate::durability::journal::Journal;
use crate::flash::FlashTier;
use crate::format::item::{ItemHeader, ItemRef, state};
use crate::key::{HashSeed, Key, KeyHash};
use crate::partition::Partition;
use crate::placement::InMemory;
use crate::settings::Dram;
use crate::store::SegmentStore;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Place of an item in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// In the memory of its partition.
    Partition,
    /// Among the large values; the claim covers it.
    Large,
    /// Among the large values, once this number of bytes more has been claimed.
    Claimed(usize),
    /// Nowhere: the item goes to flash at once and is read from there.
    Nowhere,
}

/// Memory and flash of a cache. An item is in a partition's DRAM tier, on flash, or in both with the same version.
pub(crate) struct Tiers {
    pub(crate) partitions: Partitions,
    pub(crate) flash: Arc<FlashTier>,
    pub(crate) gate: Box<Gate>,
    pub(crate) shares: MemoryShares,
    pub(crate) dram: Dram,
    pub(crate) seed: HashSeed,
    pub(crate) largest_body: usize,
    /// Versions below this limit have been reserved.
    pub(crate) version_limit: AtomicU64,
    /// Items with lower versions are stale.
    pub(crate) stale_below: u64,
    /// Whether reads of items in memory are counted, because admission or item priorities depend on the counts.
    pub(crate) counts_reads: bool,
    /// CLOCK value of an item that has just been read in memory.
    pub(crate) clock_read: u8,
    /// Number of syncs and stops in progress for which reclaim returns no items to memory.
    pub(crate) returning_nothing: AtomicUsize,
}

impl Tiers {
    pub(crate) fn store(&self) -> &SegmentStore {
        self.flash.store()
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.flash.upkeep.journal
    }

    pub(crate) fn cutoffs(&self) -> &FlushCutoffs {
        self.partitions.cutoffs()
    }

    /// Returns `bytes` as a key of this cache; `None` if it is empty or longer than 250 bytes.
    #[inline]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Option<Key<'a>> {
        Key::new(bytes, self.seed)
    }

    /// Returns the state bit of an item that went stale during a long downtime; 0 for any other item.
    pub(crate) fn downtime_mark(&self, header: &ItemHeader) -> u8 {
        u8::from(header.version.get() < self.stale_below) * state::STALE
    }

    /// Returns the context of an eviction in a partition.
    #[inline]
    pub(crate) fn evict_context(&self, partition: usize, now: u32) -> EvictContext<'_> {
        EvictContext {
            flash: &*self.flash,
            gate: &self.gate,
            seed: self.seed,
            cutoff: self.cutoffs().cutoff(partition),
            now,
            limit_bytes: self.shares.tier_limit(),
            rewrites_clean: self.dram == Dram::BeforeVictims,
            one_clock: self.flash.clock.is_shared(),
            cutoffs: self.cutoffs(),
        }
    }

    /// If memory and flash share one CLOCK, moves its hand when too many items are hot. Called when an item has come
    /// into memory.
    pub(crate) fn keep_one_clock(
        &self,
        partition: &mut Partition,
        hash: KeyHash,
        context: &EvictContext<'_>,
    ) {
        if !context.one_clock {
            return;
        }
        let tier = &mut partition.tier;
        let memory = InMemory {
            items: tier.items.len() as u64,
            spare_bytes: context
                .limit_bytes
                .saturating_sub(tier.items.memory_bytes()) as u64,
        };
        let passed = self.flash.clock.advance(hash, memory);
        if passed > 0 {
            tier.pass(passed, context);
        }
    }

    /// Returns the place in memory of a new item of `key`.
    #[inline]
    pub(crate) fn room_for(
        &self,
        tier: &DramTier,
        key: Key<'_>,
        new: &NewItem<'_>,
        claim: &LargeClaim<'_>,
        context: &EvictContext<'_>,
    ) -> Room {
        if matches!(self.dram, Dram::WriteBuffers { .. }) {
            return Room::Nowhere;
        }
        let body_bytes = new.body_bytes(key);
        let is_large = self.shares.is_large(body_bytes, context.limit_bytes);
        if is_large && !claim.is_refused() {
            let bytes = LongValue::bytes_for(new.value.len());
            if bytes <= self.shares.largest_value() {
                let covered = tier.items.large_bytes_of(key) + claim.bytes();
                return match bytes.checked_sub(covered) {
                    None | Some(0) => Room::Large,
                    Some(missing) => Room::Claimed(missing),
                };
            }
        }
        match MemoryShares::fits_partition(body_bytes, context.limit_bytes) {
            true => Room::Partition,
            false => Room::Nowhere,
        }
    }

    /// Returns the bytes to claim for a copy of an item, if its value would be large in memory. The caller holds no
    /// partition's lock.
    pub(crate) fn claim_for(&self, item: &ItemRef<'_>) -> Option<usize> {
        let body_bytes = item.header.body_bytes();
        let is_small = self.shares.is_inline(body_bytes);
        if is_small || matches!(self.dram, Dram::WriteBuffers { .. }) {
            return None;
        }
        let is_large = self.shares.is_large(body_bytes, self.shares.tier_limit());
        let bytes = LongValue::bytes_for(item.value.len());
        (is_large && bytes <= self.shares.largest_value()).then_some(bytes)
    }

    /// Makes a partition's DRAM tier give up memory above its limit. Returns false if flash had no space for an item
    /// that had to leave.
    pub(crate) fn shrink(&self, number: usize, now: u32) -> bool {
        let mut partition = self.partitions.lock_number(number, now);
        let context = self.evict_context(number, now);
        partition.tier.shrink(&context)
    }

    /// Returns counters that change when placed items are in memory alone again, or nowhere: lost with a segment that
    /// could not be written, returned by reclaim, or moved to a segment that is not written yet.
    pub(crate) fn back_in_memory(&self) -> [u64; 3] {
        let stats = self.flash.upkeep.stats();
        let moved = self.store().counters().segments_moved.get();
        let unwritten = stats.items_lost + stats.items_unplaced;
        [unwritten, stats.items_returned, moved]
    }

    /// Makes reclaim drop items instead of returning them to memory, until the result is dropped. Otherwise memory may
    /// never be all on flash: reclaim makes space for its items by returning other items that have been read.
    pub(crate) fn return_nothing(&self) -> ReturnNothing<'_> {
        self.returning_nothing.fetch_add(1, Ordering::Relaxed);
        ReturnNothing(&self.returning_nothing)
    }
}

/// Guard during which reclaim [returns nothing](Tiers::return_nothing) to memory.
pub(crate) struct ReturnNothing<'e>(&'e AtomicUsize);

impl Drop for ReturnNothing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
