//! The request paths: what reads and writes do with memory and flash.
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
//! A partition's lock is held for memory operations only. An operation that has to wait, for a flash read or for
//! space, lets go of the lock and starts over, so that every change is made against the state it was decided on.
//! Nothing here knows memcached: what `append` or `mg` mean is the server's business.

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
use crate::counter::CacheLine;
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

/// An item larger than this fraction of what a partition has of memory is not kept there: it goes
/// to flash at once, and is read from there.
const LARGEST_SHARE: usize = 4;

/// Why a write was not carried out. The old value is gone all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The item is larger than the settings allow.
    #[error("object too large for cache")]
    TooLarge,
    /// There is no memory for the item, and flash cannot take others out of memory.
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
    /// Held by a `flush_all` from its record to the last partition, and by a checkpoint that notes the cutoffs.
    pub(crate) flushing: Mutex<()>,
    pub(crate) seed: u64,
    /// Bytes of memory that never change: segment buffers, tables, reads of large items.
    pub(crate) fixed_bytes: u64,
    pub(crate) largest_body: usize,
    /// Versions below it have been reserved.
    pub(crate) version_limit: AtomicU64,
    /// Items with lower versions are stale.
    pub(crate) stale_below: u64,
    pub(crate) config: EngineConfig,
    pub(crate) gate: Box<Gate>,
    /// Whether reads of items in memory are counted: something goes by them.
    pub(crate) counts_reads: bool,
    /// CLOCK value of what has just been read in memory.
    pub(crate) clock_read: u8,
    pub(crate) persistence: Persistence,
    pub(crate) syncs: Requests,
    pub(crate) checkpoints: Requests,
    /// Writes that stalled on flash.
    pub(crate) write_stalls: AtomicU64,
    /// Syncs and stops for which reclaim returns nothing to memory.
    pub(crate) returning_nothing: AtomicUsize,
    /// Bytes of the memory that others hold at present.
    /// The partition whose DRAM tier gives up memory for them next.
    pub(crate) next_to_shrink: AtomicUsize,
}

/// Everything counted, added up over the partitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Request paths.
    pub paths: PathStats,
    /// DRAM tier.
    pub tier: TierStats,
    /// Items, in memory, on flash or both. An estimate: [`Engine::stats`] says what of.
    pub items: u64,
    /// Bytes of these items: of an item in memory and on flash, of its copy on flash.
    pub item_bytes: u64,
    /// Items on flash that no flush has made dead, an estimate.
    pub flash_items: u64,
    /// Bytes of these items, an estimate.
    pub flash_item_bytes: u64,
    /// Unix second of the last access to the oldest item, as far as it is known: of one on flash, of its writing.
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
    /// What admission has done.
    pub admission: AdmissionStats,
    /// Writes that stalled on flash.
    pub write_waits: u64,
    /// The limit on what is written to flash, if there is one, in bytes a second, and what it has held back.
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
        // Under the partition's lock no write has come between.
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
    /// The bit of an item's state that says that it was down for too long.
    pub(crate) fn downtime_mark(&self, header: &ItemHeader) -> u8 {
        u8::from(header.version.get() < self.stale_below) * state::STALE
    }

    /// `bytes` as a key of this cache; `None` when it is empty or longer than 250 bytes.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Option<Key<'a>> {
        Key::new(bytes, self.seed)
    }

    /// Everything stored before Unix second `deadline` is gone from then on. Waits while the journal has no space.
    pub async fn flush_all(&self, deadline: u32) {
        let mut stall = Stall::default();
        while !self.try_flush_all(deadline) {
            self.stall(&mut stall).await;
        }
    }

    fn try_flush_all(&self, deadline: u32) -> bool {
        // One after the other: a delayed flush would replace another that is still being applied.
        let _flushing = self.flushing.lock();
        if !self.flash.may_displace() {
            return false;
        }
        let now = runtime::unix_seconds();
        // An earlier flush whose deadline has come holds, also where nobody has asked since.
        self.apply_due_flush(now);
        {
            // All at once: a request that applied the earlier flush meanwhile would say so behind the record of this one,
            // and a start would take this one for applied.
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
            // Applied now, so that nothing stored after this call falls under it.
            self.apply_due_flush(now);
        }
        true
    }

    fn apply_due_flush(&self, now: u32) {
        for number in 0..self.partitions.len() {
            drop(self.lock_partition(number, now));
        }
    }

    /// The lock of the partition of `hash`, brought up to date with `flush_all`.
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

    /// What eviction needs to know, for the partition of `hash`.
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

    /// Where memory and flash have one CLOCK: moves its hand, if more is hot than may be. Called when something has come into
    /// memory.
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

    /// Whether an item with a body of this many bytes may be kept in memory; else it goes to flash at once.
    fn may_keep(&self, body_bytes: usize, context: &EvictContext<'_>) -> bool {
        let keeps_items = !matches!(self.config.dram, Dram::WriteBuffers { .. });
        keeps_items && body_bytes <= context.limit_bytes / LARGEST_SHARE
    }

    /// Bytes of memory the DRAM tier of a partition may use at present: an equal share of what is left.
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

    /// Whether `bytes` more can be lent beside what the index has now and the DRAM tier has in any case, or are left to be
    /// lent in any case.
    pub fn may_lend_memory(&self, bytes: u64) -> bool {
        let lent_bytes = self.lent().load(Ordering::Relaxed) + bytes;
        let index_bytes = self.flash.memory().index_bytes;
        lent_bytes <= self.config.lendable_bytes
            || self.flash.upkeep.index_use.leaves(lent_bytes, index_bytes)
    }

    /// Takes `bytes` of the memory for something outside the cache. The DRAM tier gives up as much:
    /// of one partition now, of the others in the calls that follow, as new items come and in
    /// [`shrink`](Engine::shrink).
    pub fn lend_memory(&self, bytes: u64) {
        self.lent().fetch_add(bytes, Ordering::Relaxed);
        let number = self.next_to_shrink.fetch_add(1, Ordering::Relaxed) % self.partitions.len();
        self.shrink_partition(number);
    }

    /// The same if the DRAM tier gives up all that has been lent now, or all that it can; else takes nothing and returns
    /// false.
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

    /// Has the DRAM tier give up what has been lent, as far as flash takes it now: to be called again while much is.
    pub fn shrink(&self) {
        for number in 0..self.partitions.len() {
            self.shrink_partition(number);
        }
    }

    /// Whether the partition's part of the tier keeps to its limit then, or is as small as it gets.
    fn shrink_partition(&self, number: usize) -> bool {
        let now = runtime::unix_seconds();
        let mut partition = self.lock_partition(number, now);
        let context = self.evict_context(number, now);
        partition.tier.shrink(&context)
    }

    /// Gives back what [`lend_memory`](Engine::lend_memory) took.
    pub fn return_memory(&self, bytes: u64) {
        self.lent().fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The segments underneath, for statistics.
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

    /// Counters of the flash tier alone: takes no partition's lock.
    pub fn flash_stats(&self) -> FlashStats {
        self.flash.upkeep.stats()
    }

    /// How far recovery has come.
    pub fn recovery(&self) -> RecoveryStats {
        self.flash.recovery()
    }

    /// The journal, for statistics.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The settings.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Counters, added up.
    ///
    /// Items that a flush has made dead are counted no more, though they may still hold space. Expired ones are
    /// counted until the crawler finds them in memory, within seconds, or reclaim on flash. Of items on flash a few
    /// more or less may be counted, their bytes are those of the average item of their segment, and an item that
    /// only memory has left because its segment was reclaimed is counted from its next write to flash on.
    pub fn stats(&self) -> EngineStats {
        let on_flash = self.store().in_use();
        let placement = self.flash.upkeep.stats();
        let mut stats = EngineStats {
            // Segments that are being reclaimed count though the index names nothing of them any more.
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

    /// Sets the counters of the request paths and the DRAM tier to zero.
    pub fn reset_stats(&self) {
        for partition in &self.partitions {
            let mut partition = partition.0.lock();
            partition.stats = PathStats::default();
            partition.tier.stats = TierStats::default();
        }
        self.write_stalls.store(0, Ordering::Relaxed);
    }

    /// Visits live items in memory, a partition at a time, from where the cursor stands until `visit` has had
    /// enough; false once all have been visited. An item that is moved meanwhile may come twice.
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
        // What comes later, or is appended again, is not waited for.
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

    /// Visits live items of one more segment that have no newer copy in memory, until `visit` has had enough; false
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

/// Where a dump of memory has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryCursor {
    partition: usize,
    at: LogPosition,
    /// Behind all items that the partition had when its turn came.
    end: Option<LogPosition>,
}
