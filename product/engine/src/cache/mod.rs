//! The request paths: how reads and writes use memory and flash.
//!
//! ```text
//!   lookup ──> DRAM tier ──hit──> view
//!      │ miss: index probe ──absent──> miss
//!      ▼ present
//!   FlashRead: make or share the read ──> placement.get ──> promote to the DRAM tier
//!
//!   modify ──> DRAM tier (an item on flash is read into it first) ──> put │ amend │ remove
//!                 └─> version, then the flash copy is invalidated, all under the partition's lock
//! ```
//!
//! A partition's lock is held for memory operations only. An operation that has to wait, for a flash read or for space,
//! releases the lock and starts over, so that every change is made against the state it was decided on. Nothing here
//! knows memcached: the meaning of `append` or `mg` is the server's business.

mod modify;
mod read;
mod stall;
mod sync;

use device::LimitCounts;
use std::ops::ControlFlow;
use std::sync::Arc;

pub use modify::{Amend, Change, Modified, Put};
pub use read::{FlashRead, ItemView, Lookup, Owner, Peek, SharedValue};
use stall::Stall;
pub(crate) use sync::Requests;
pub use sync::SyncError;

use crate::admission::{AdmissionStats, Gate};
use crate::config::EngineConfig;
use crate::counter::{CacheLine, NamedStats};
use crate::dram::{EvictContext, LogPosition, NewItem, TierStats};
use crate::durability::journal::Journal;
use crate::durability::superblocks::Persistence;
use crate::durability::{FlushCutoffs, RecoveryStats};
use crate::flash::{DumpCursor, FlashStats, FlashTier, MemoryUse};
use crate::format::item::{ItemHeader, ItemRef, state};
use crate::format::journal::Record;
use crate::key::{Key, KeyHash};
use crate::partition::{Partition, PathStats};
use crate::placement::{InMemory, IndexStats, Placement};
use crate::reclaim::{Dirty, Entered, Named, Resident, ReturnToMemory};
use crate::settings::Dram;
use crate::store::SegmentStore;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// An item larger than a partition's memory divided by this is not kept in memory: it goes to flash at once and is read
/// from there.
const LARGEST_SHARE: usize = 4;

/// Reason why a write failed. The old value is gone in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The item is larger than the settings allow.
    #[error("object too large for cache")]
    TooLarge,
    /// There is no memory for the item, and flash cannot take other items out of memory.
    #[error("out of memory storing object")]
    OutOfMemory,
}

/// The cache. Shared by all threads.
pub struct Engine {
    pub(crate) partitions: Box<[CacheLine<Mutex<Partition>>]>,
    pub(crate) partition_bits: u32,
    pub(crate) flash: Arc<FlashTier>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) cutoffs: Arc<FlushCutoffs>,
    /// Held by a `flush_all` from its record to the last partition, and by a checkpoint while it notes the cutoffs.
    pub(crate) flushing: Mutex<()>,
    pub(crate) seed: u64,
    /// Bytes of memory that never change: segment buffers, tables, reads of large items.
    pub(crate) fixed_bytes: u64,
    pub(crate) largest_body: usize,
    /// Versions below this limit have been reserved.
    pub(crate) version_limit: AtomicU64,
    /// Items with lower versions are stale.
    pub(crate) stale_below: u64,
    pub(crate) config: EngineConfig,
    pub(crate) gate: Box<Gate>,
    /// Whether reads of items in memory are counted, because admission or item priorities depend on the counts.
    pub(crate) counts_reads: bool,
    /// CLOCK value of an item that has just been read in memory.
    pub(crate) clock_read: u8,
    pub(crate) persistence: Persistence,
    pub(crate) syncs: Requests,
    pub(crate) checkpoints: Requests,
    /// Number of times that a write stalled on flash.
    pub(crate) write_stalls: AtomicU64,
    /// Number of syncs and stops in progress for which reclaim returns no items to memory.
    pub(crate) returning_nothing: AtomicUsize,
    /// Number of loans of memory so far; modulo the number of partitions, the partition whose DRAM tier shrinks next.
    pub(crate) next_to_shrink: AtomicUsize,
}

/// All counters, added up over the partitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Request paths.
    pub paths: PathStats,
    /// DRAM tier.
    pub tier: TierStats,
    /// Items in memory, on flash or both. An estimate; [`Engine::stats`] gives its limits.
    pub items: u64,
    /// Bytes of all items. An item both in memory and on flash counts with its flash copy.
    pub item_bytes: u64,
    /// Items on flash that no flush has made dead, an estimate.
    pub flash_items: u64,
    /// Bytes of the items on flash that no flush has made dead, an estimate.
    pub flash_item_bytes: u64,
    /// Unix second of the last access to the oldest item, if known. For items on flash it is the second in which their
    /// segment was sealed.
    pub oldest_access: Option<u32>,
    /// Items in memory.
    pub dram_items: u64,
    /// Items in memory without a copy on flash.
    pub dram_dirty_items: u64,
    /// Bytes of items in memory.
    pub dram_item_bytes: u64,
    /// Memory the DRAM tier holds, in bytes.
    pub dram_bytes: u64,
    /// Bytes of the hash tables of the DRAM tier.
    pub dram_table_bytes: u64,
    /// Memory the DRAM tier may hold, in bytes.
    pub dram_limit_bytes: u64,
    /// Flash tier.
    pub placement: FlashStats,
    /// Memory of the flash tier.
    pub memory: MemoryUse,
    /// Counters of admission.
    pub admission: AdmissionStats,
    /// Number of times that a write stalled on flash.
    pub write_waits: u64,
    /// Limit on flash writes in bytes a second, if one is set, and counters of the writes it has delayed.
    pub write_limit: Option<(u64, LimitCounts)>,
}

impl ReturnToMemory for Engine {
    fn take_back(&self, item: &Resident, contents: &ItemRef<'_>) -> bool {
        if self.returning_nothing.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let now = runtime::unix_seconds();
        let number = item.hash.partition(self.partition_bits);
        let mut partition = self.lock_partition(number, now);
        let Some(key) = self.key(contents.key) else {
            return false;
        };
        let context = self.evict_context(number, now);
        if !self.may_keep(contents.header.body_bytes(), &context) {
            return false;
        }
        let placement = self.flash.placement();
        let is_live = self.cutoffs.is_item_live(item.hash, contents.header, now);
        if !is_live || partition.tier.find(key).is_some() {
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
        if let Some(handle) = partition.tier.find(key) {
            let header = partition.tier.header_mut(handle);
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
        for partition in &self.partitions {
            let tier = &partition.0.lock().tier;
            dirty.items += tier.dirty;
            dirty.bytes += tier.dirty_bytes;
        }
        dirty
    }
}

impl Engine {
    /// Returns the state bit of an item that went stale during a long downtime; 0 for any other item.
    pub(crate) fn downtime_mark(&self, header: &ItemHeader) -> u8 {
        u8::from(header.version.get() < self.stale_below) * state::STALE
    }

    /// Returns `bytes` as a key of this cache; `None` if it is empty or longer than 250 bytes.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Option<Key<'a>> {
        Key::new(bytes, self.seed)
    }

    /// Makes everything stored before Unix second `deadline` dead from that second on. Waits while the journal has no
    /// space.
    pub async fn flush_all(&self, deadline: u32) {
        let mut stall = Stall::default();
        while !self.try_flush_all(deadline) {
            self.stall(&mut stall).await;
        }
    }

    fn try_flush_all(&self, deadline: u32) -> bool {
        // One flush at a time: a delayed flush would replace another one that is still being applied.
        let _flushing = self.flushing.lock();
        if !self.flash.may_displace() {
            return false;
        }
        let now = runtime::unix_seconds();
        // Applies an earlier flush whose deadline has passed, even if no request has come since.
        self.apply_due_flush(now);
        {
            // All partitions at once: otherwise a request could apply the earlier flush now and record it behind the
            // record of this one, and a start would take this one for applied.
            let numbers = 0..self.partitions.len();
            let _partitions: Vec<_> = numbers
                .map(|number| self.lock_partition(number, now))
                .collect();
            self.journal.append(Record::FlushAt {
                deadline,
                chunk: 0,
                replaces_come: self.cutoffs.has_come(),
            });
            self.cutoffs.flush_at(deadline);
        }
        if deadline <= now {
            // Applied now, so that it affects nothing stored after this call.
            self.apply_due_flush(now);
        }
        true
    }

    fn apply_due_flush(&self, now: u32) {
        for number in 0..self.partitions.len() {
            drop(self.lock_partition(number, now));
        }
    }

    /// Locks the partition of `hash` and brings it up to date with `flush_all`.
    #[inline]
    pub(crate) fn lock(&self, hash: KeyHash, now: u32) -> MutexGuard<'_, Partition> {
        self.lock_partition(hash.partition(self.partition_bits), now)
    }

    pub(crate) fn lock_partition(&self, number: usize, now: u32) -> MutexGuard<'_, Partition> {
        let mut partition = self.partitions[number].0.lock();
        let Partition {
            tier,
            flush_generation,
            next_version,
            ..
        } = &mut *partition;
        let is_new = self
            .cutoffs
            .apply_due(number, flush_generation, *next_version, now);
        if is_new {
            self.journal.append(Record::Cutoff {
                partition: number as u32,
                version: *next_version,
                chunk: 0,
            });
            tier.flush(*next_version);
            self.flash.count_flush(*flush_generation);
        }
        partition
    }

    /// Returns the context of an eviction in a partition.
    pub(crate) fn evict_context(&self, partition: usize, now: u32) -> EvictContext<'_> {
        EvictContext {
            flash: &*self.flash,
            gate: &self.gate,
            seed: self.seed,
            cutoff: self.cutoffs.cutoff(partition),
            now,
            limit_bytes: self.tier_limit(),
            rewrites_clean: self.config.dram == Dram::BeforeVictims,
            one_clock: self.flash.clock.is_shared(),
        }
    }

    /// If memory and flash share one CLOCK, moves its hand when too many items are hot. Called when an item has come
    /// into memory.
    fn keep_one_clock(&self, partition: &mut Partition, hash: KeyHash, context: &EvictContext<'_>) {
        if !context.one_clock {
            return;
        }
        let tier = &mut partition.tier;
        let memory = InMemory {
            items: tier.len() as u64,
            spare_bytes: context.limit_bytes.saturating_sub(tier.memory_bytes()) as u64,
        };
        let passed = self.flash.clock.advance(hash, memory);
        if passed > 0 {
            tier.pass(passed, context);
        }
    }

    /// Returns whether an item with a body of `body_bytes` may be kept in memory; if not, it goes to flash at once.
    fn may_keep(&self, body_bytes: usize, context: &EvictContext<'_>) -> bool {
        let keeps_items = !matches!(self.config.dram, Dram::WriteBuffers { .. });
        keeps_items && body_bytes <= context.limit_bytes / LARGEST_SHARE
    }

    /// Returns the bytes of memory that the DRAM tier of a partition may use at present: an equal share of the
    /// remainder.
    ///
    /// ```text
    ///   memory = fixed (segment buffers, tables) + index (grows with the objects on flash) + lent + DRAM tier
    /// ```
    fn tier_limit(&self) -> usize {
        let lent_bytes = self.lent().load(Ordering::Relaxed);
        let others = self.fixed_bytes + self.flash.memory().index_bytes + lent_bytes;
        let left = self.config.memory_bytes.saturating_sub(others);
        usize::try_from(left / self.partitions.len() as u64).unwrap_or(usize::MAX)
    }

    fn lent(&self) -> &std::sync::atomic::AtomicU64 {
        &self.flash.upkeep.index_use.lent_bytes
    }

    /// Returns whether `bytes` more may be lent: all loans together stay within `lendable_bytes`, or they fit beside
    /// the present index and the least memory of the DRAM tier.
    pub fn may_lend_memory(&self, bytes: u64) -> bool {
        let lent_bytes = self.lent().load(Ordering::Relaxed) + bytes;
        let index_bytes = self.flash.memory().index_bytes;
        lent_bytes <= self.config.lendable_bytes
            || self.flash.upkeep.index_use.leaves(lent_bytes, index_bytes)
    }

    /// Lends `bytes` of the memory to a user outside the cache. The DRAM tier gives up as much: one partition shrinks
    /// now, the others in later calls, as new items come, and in [`shrink`](Engine::shrink).
    pub fn lend_memory(&self, bytes: u64) {
        self.lent().fetch_add(bytes, Ordering::Relaxed);
        let number = self.next_to_shrink.fetch_add(1, Ordering::Relaxed) % self.partitions.len();
        self.shrink_partition(number);
    }

    /// Lends `bytes` if the DRAM tier can give up all lent memory now or shrink to its least size; otherwise lends
    /// nothing and returns false.
    pub fn try_lend_memory(&self, bytes: u64) -> bool {
        self.lent().fetch_add(bytes, Ordering::Relaxed);
        let mut is_given = true;
        for number in 0..self.partitions.len() {
            is_given &= self.shrink_partition(number);
        }
        if !is_given {
            self.return_memory(bytes);
        }
        is_given
    }

    /// Makes the DRAM tier give up lent memory, as far as flash has space for its items now. Called repeatedly while
    /// much memory is lent.
    pub fn shrink(&self) {
        for number in 0..self.partitions.len() {
            self.shrink_partition(number);
        }
    }

    /// Shrinks a partition's DRAM tier. Returns false if flash had no space for an item that had to leave.
    fn shrink_partition(&self, number: usize) -> bool {
        let now = runtime::unix_seconds();
        let mut partition = self.lock_partition(number, now);
        let context = self.evict_context(number, now);
        partition.tier.shrink(&context)
    }

    /// Returns memory taken by [`lend_memory`](Engine::lend_memory).
    pub fn return_memory(&self, bytes: u64) {
        self.lent().fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the segment store, for statistics.
    pub fn store(&self) -> &SegmentStore {
        self.flash.store()
    }

    /// Returns the placement.
    pub fn placement(&self) -> &dyn Placement {
        self.flash.placement()
    }

    /// Returns the statistics of the index.
    pub fn index_stats(&self) -> IndexStats {
        IndexStats::of(self.flash.placement())
    }

    /// Returns the statistics of an admission that learns; none for another.
    pub fn learner_stats(&self) -> NamedStats {
        self.gate.learned()
    }

    /// Returns the counters of the flash tier alone, without taking a partition's lock.
    pub fn flash_stats(&self) -> FlashStats {
        self.flash.upkeep.stats()
    }

    /// Returns the progress of recovery.
    pub fn recovery(&self) -> RecoveryStats {
        self.flash.recovery()
    }

    /// Returns the journal, for statistics.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the settings.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns all counters, added up.
    ///
    /// Items made dead by a flush are not counted, though they may still take space. Expired items are counted until
    /// the crawler finds them in memory, which takes seconds, or reclaim finds them on flash. The number of items on
    /// flash is off by a few; their bytes are estimated from the average item of their segment. An item whose flash
    /// copy was reclaimed while memory kept it is not counted again before its next write to flash.
    pub fn stats(&self) -> EngineStats {
        let on_flash = self.store().buffers().in_use();
        let placement = self.flash.upkeep.stats();
        let mut stats = EngineStats {
            // Segments being reclaimed still count their items, although the index no longer names them.
            flash_items: on_flash.items.min(placement.objects),
            flash_item_bytes: on_flash.bytes,
            oldest_access: on_flash.oldest,
            placement,
            memory: self.flash.memory(),
            write_waits: self.write_stalls.load(Ordering::Relaxed),
            write_limit: self.flash.write_limit(),
            admission: self.gate.stats(),
            ..EngineStats::default()
        };
        let limit = self.tier_limit() as u64;
        stats.dram_limit_bytes = limit * self.partitions.len() as u64;
        let mut dirty_bytes = 0;
        for partition in &self.partitions {
            let partition = partition.0.lock();
            stats.paths += partition.stats;
            stats.tier += partition.tier.stats;
            let in_memory = partition.tier.in_use();
            dirty_bytes += in_memory.dirty_bytes;
            let oldest = partition.tier.oldest_access().into_iter();
            stats.oldest_access = oldest.chain(stats.oldest_access).min();
            stats.dram_table_bytes += partition.tier.table_bytes() as u64;
            stats.dram_items += in_memory.items;
            stats.dram_dirty_items += in_memory.dirty;
            stats.dram_item_bytes += in_memory.bytes;
            stats.dram_bytes += partition.tier.memory_bytes() as u64;
        }
        stats.items = stats.flash_items + stats.dram_dirty_items;
        stats.item_bytes = stats.flash_item_bytes + dirty_bytes;
        stats
    }

    /// Resets the counters of the request paths and of the DRAM tier to zero.
    pub fn reset_stats(&self) {
        for partition in &self.partitions {
            let mut partition = partition.0.lock();
            partition.stats = PathStats::default();
            partition.tier.stats = TierStats::default();
        }
        self.write_stalls.store(0, Ordering::Relaxed);
    }

    /// Visits live items in memory, one partition at a time, from the cursor on until `visit` breaks. Returns false
    /// once all items have been visited. An item that moves during the dump may be visited twice.
    pub fn dump_memory(
        &self,
        cursor: &mut MemoryCursor,
        mut visit: impl FnMut(ItemRef<'_>) -> ControlFlow<()>,
    ) -> bool {
        if cursor.partition >= self.partitions.len() {
            return false;
        }
        let now = runtime::unix_seconds();
        let guard = self.lock_partition(cursor.partition, now);
        let cutoff = self.cutoffs.cutoff(cursor.partition);
        // Items appended later, or appended again, are not visited.
        let end = *cursor.end.get_or_insert_with(|| guard.tier.end());
        for (behind, item) in guard.tier.items_from(cursor.at) {
            if behind > end {
                break;
            }
            cursor.at = behind;
            if !item.header.is_expired(now)
                && item.header.version.get() >= cutoff
                && visit(item).is_break()
            {
                return true;
            }
        }
        *cursor = MemoryCursor {
            partition: cursor.partition + 1,
            ..MemoryCursor::default()
        };
        true
    }

    /// Visits live items of one more segment that have no newer copy in memory, until `visit` breaks. Returns false
    /// once all segments have been visited.
    pub async fn dump_flash(
        &self,
        cursor: &mut DumpCursor,
        mut visit: impl FnMut(ItemRef<'_>) -> ControlFlow<()>,
    ) -> bool {
        let now = runtime::unix_seconds();
        self.flash
            .dump(cursor, &mut |found| {
                let Some(key) = self.key(found.item.key) else {
                    return ControlFlow::Continue(());
                };
                let in_memory = self.lock(found.hash, now).tier.find(key).is_some();
                if in_memory {
                    return ControlFlow::Continue(());
                }
                visit(found.item)
            })
            .await
    }
}

/// Position of a dump of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryCursor {
    partition: usize,
    at: LogPosition,
    /// Position behind the last item that the partition had when the dump reached it.
    end: Option<LogPosition>,
}
