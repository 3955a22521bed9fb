//! The DRAM tiers of all partitions above the flash tier: the state on which requests and background tasks work.
//!
//! ```text
//!   request, task ──> Partitions::lock ──> Partition ──evicts──> FlashTier
//!                        └─ applies a flush that is due      └─ within MemoryShares::tier_limit
//! ```

mod marks;
mod partitions;
mod shares;

use std::sync::Arc;

pub(crate) use marks::VersionMarks;
pub(crate) use partitions::Partitions;
pub(crate) use shares::MemoryShares;

use crate::admission::Gate;
use crate::counter::Count as _;
use crate::dram::{EvictContext, NewItem};
use crate::durability::FlushCutoffs;
use crate::durability::journal::Journal;
use crate::flash::FlashTier;
use crate::format::item::{ItemHeader, ItemRef, state};
use crate::key::{HashSeed, Key, KeyHash};
use crate::partition::Partition;
use crate::placement::InMemory;
use crate::reclaim::{Dirty, Entered, Named, Resident, ReturnToMemory};
use crate::settings::Dram;
use crate::store::SegmentStore;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An item larger than a partition's memory divided by this is not kept in memory: it goes to flash at once and is read
/// from there.
const LARGEST_SHARE: usize = 4;

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

    /// Returns whether an item with a body of `body_bytes` may be kept in memory; if not, it goes to flash at once.
    pub(crate) fn may_keep(&self, body_bytes: usize, context: &EvictContext<'_>) -> bool {
        let keeps_items = !matches!(self.dram, Dram::WriteBuffers { .. });
        keeps_items && body_bytes <= context.limit_bytes / LARGEST_SHARE
    }

    /// Returns counters that change when placed items are in memory alone again, or nowhere: lost with a segment that
    /// could not be written, returned by reclaim, or moved to a segment that is not written yet.
    pub(crate) fn back_in_memory(&self) -> [u64; 3] {
        let stats = self.flash.upkeep.stats();
        let moved = self.store().counters().segments_moved.get();
        [stats.items_lost, stats.items_returned, moved]
    }

    /// Makes reclaim drop items instead of returning them to memory, until the result is dropped. Otherwise memory may
    /// never be all on flash: reclaim makes space for its items by returning other items that have been read.
    pub(crate) fn return_nothing(&self) -> ReturnNothing<'_> {
        self.returning_nothing.fetch_add(1, Ordering::Relaxed);
        ReturnNothing(&self.returning_nothing)
    }
}

impl ReturnToMemory for Tiers {
    fn take_back(&self, item: &Resident, contents: &ItemRef<'_>) -> bool {
        if self.returning_nothing.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let now = runtime::unix_seconds();
        let number = self.partitions.number_of(item.hash);
        let mut partition = self.partitions.lock_number(number, now);
        let Some(key) = self.key(contents.key) else {
            return false;
        };
        let context = self.evict_context(number, now);
        if !self.may_keep(contents.header.body_bytes(), &context) {
            return false;
        }
        let placement = self.flash.placement();
        let is_live = self.cutoffs().is_item_live(item.hash, contents.header, now);
        if !is_live || partition.tier.items.find(key).is_some() {
            return false;
        }
        let Entered::Yes(entry) = placement.entry(item) else {
            return false;
        };
        let mark = self.downtime_mark(contents.header);
        let new = NewItem::copy_of(contents, state::DIRTY | mark);
        if partition.tier.put(key, &new, &context).is_err() {
            return false;
        }
        if let Some(handle) = partition.tier.items.find(key) {
            let header = partition.tier.items.header_mut(handle);
            if entry.was_read
                && let Some(known) = self.gate.known_of_hot()
            {
                known.note_in(header);
            }
            header.set_clock(entry.clock);
        }
        // The partition's lock is still held, so that no write has come in between.
        let is_taken = placement.check(item, &mut |_| false) == Named::Removed;
        self.keep_one_clock(&mut partition, item.hash, &context);
        is_taken
    }

    fn dirty(&self) -> Dirty {
        let mut dirty = Dirty::default();
        for partition in self.partitions.each() {
            let tier = &partition.tier;
            dirty.items += tier.items.dirty;
            dirty.bytes += tier.items.dirty_bytes;
        }
        dirty
    }
}

/// Guard during which reclaim [returns nothing](Tiers::return_nothing) to memory.
pub(crate) struct ReturnNothing<'e>(&'e AtomicUsize);

impl Drop for ReturnNothing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
