//! Keeping an image durable: journal syncs, checkpoints, the orderly stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use device::DeviceError;
use futures_util::future::select;

use super::{STOP_RESERVE, VERSION_RESERVE};
use crate::cache::Engine;
use crate::counter::Count as _;
use crate::dram::{Due, NoSpace, Walked};
use crate::durability::journal::Journal;
pub use crate::durability::superblocks::CheckpointStats;
use crate::durability::superblocks::{SUPERBLOCK_OFFSETS, write_superblock};
use crate::flash::{BackgroundTask, CheckpointCut};
use crate::format::checkpoint::Head;
use crate::format::journal::VERSION_LIMIT;
use crate::format::superblock::Superblock;
use crate::placement::Event;
use crate::store::SavedCheckpoint;
use crate::sync::atomic::Ordering;

/// Interval at which an idle cache notes the time in the journal. The next start counts downtime from the last note.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Number of consecutive failed checkpoints after which a full journal is declared void, so that no request waits for
/// its space.
const MAX_FAILURES: u32 = 5;
/// Number of rounds in which an orderly stop places items, if segments could not be written.
const MAX_ROUNDS: usize = 3;
/// Number of times that an orderly stop makes space for its checkpoint and tries to write it.
const MAX_CHECKPOINTS: usize = 16;
/// Pause after a failed checkpoint. It doubles each time while the journal is void.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Interval of checking whether the index needs a checkpoint.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after a failed checkpoint.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The highest limit on versions that a superblock may name. Writes beyond it are refused.
const LAST_LIMIT: u64 = VERSION_LIMIT - 1;

/// Result of an orderly stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing was lost: the next start finds every item.
    Complete {
        /// Number of objects on flash.
        objects: u64,
    },
    /// The deadline passed or the device failed; the next start misses the items that were in memory only.
    Incomplete {
        /// Number of items that flash does not have: in memory, or in segments not yet written. An estimate if a part
        /// of a segment is on flash.
        items_left: u64,
        /// The journal has lost records: the next start finds nothing.
        next_is_empty: bool,
    },
    /// The cache had already been stopped.
    Already,
}

impl Engine {
    /// Starts the background work, which runs until [`stop`](Engine::stop). `spawn` starts each task on some worker.
    /// The engine writes nothing to flash before.
    pub fn start_background(self: &Arc<Self>, mut spawn: impl FnMut(BackgroundTask)) {
        for task in self.flash.background() {
            spawn(task);
        }
        let engine = Arc::clone(self);
        spawn(Box::new(move || Box::pin(engine.sync_journal())));
        let engine = Arc::clone(self);
        spawn(Box::new(move || Box::pin(engine.keep_checkpoints())));
        let engine = Arc::clone(self);
        spawn(Box::new(move || Box::pin(engine.crawl())));
        let engine = Arc::clone(self);
        spawn(Box::new(move || Box::pin(engine.write_back())));
        if self.gate.next_lesson().is_some() {
            let engine = Arc::clone(self);
            spawn(Box::new(move || Box::pin(engine.learn())));
        }
    }

    /// Trains admission at the end of each window, until an orderly stop.
    async fn learn(self: Arc<Self>) {
        while let Some(left) = self.gate.next_lesson() {
            let stopping = self.persistence.stopping.listener();
            if self.is_stopped() {
                return;
            }
            if left.is_zero() {
                self.gate.learn().await;
            } else {
                // Ends early if a stop begins; the loop checks both.
                let _ = runtime::timeout(left, stopping).await;
            }
        }
    }

    /// Returns the counters of checkpoints and syncs.
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.persistence.counters.read()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.persistence.stopped.load(Ordering::SeqCst)
    }

    fn is_saved(&self) -> bool {
        self.persistence.saved.load(Ordering::Acquire)
    }

    /// Syncs the journal, one interval after a record has been appended, until an orderly stop has saved everything.
    async fn sync_journal(self: Arc<Self>) {
        loop {
            let dirtied = self.journal.dirtied.listener();
            let stopping = self.persistence.stopping.listener();
            if self.is_saved() {
                return;
            }
            if !self.journal.is_dirty() {
                let either = select(dirtied, stopping);
                // Whichever event ends the wait, the journal is checked again.
                let _ = runtime::timeout(HEARTBEAT, either).await;
            }
            if self.journal.is_dirty() {
                runtime::sleep(self.config.sync_interval).await;
            }
            if !self.is_saved() {
                self.sync_now().await;
                self.reserve_versions().await;
            }
        }
    }

    /// Syncs the journal. Returns whether that succeeded.
    pub(super) async fn sync_now(&self) -> bool {
        let counters = &self.persistence.counters;
        let synced = self.journal.sync(runtime::unix_seconds()).await;
        let is_synced = synced.is_ok();
        match synced {
            Ok(()) => counters.syncs.add(1),
            Err(error) => {
                if counters.sync_errors.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!(%error, "the journal cannot be synced");
                }
            }
        }
        self.note_void().await;
        is_synced
    }

    /// Marks the journal void in the superblock if it has lost records: the superblock survives a power cut.
    async fn note_void(&self) {
        // A sync takes its turn at the superblock only if the journal is void.
        if !self.journal.is_void() {
            return;
        }
        let _turn = self.persistence.superblock_turn.acquire().await;
        let mut superblock = *self.persistence.superblock.lock();
        if superblock.is_journal_void() || !self.journal.is_void() {
            return;
        }
        superblock.mark_journal_void(true);
        match self.write_superblock(&mut superblock).await {
            Ok(()) => *self.persistence.superblock.lock() = superblock,
            Err(error) => {
                tracing::error!(%error, "the superblock cannot be written: a power cut may bring old values back");
            }
        }
    }

    /// Writes the superblock while nobody else syncs the flash, since an error is reported to one sync alone.
    async fn write_superblock(&self, superblock: &mut Superblock) -> Result<(), DeviceError> {
        let is_void = superblock.is_journal_void();
        // A power cut may leave the old superblock or the new one: the mark is durable only if both have it.
        self.journal
            .note_void_durable(is_void && self.journal.is_void_durable());
        let written = write_superblock(&self.persistence.meta, superblock);
        self.store().syncs().sync_by(written).await?;
        self.journal.note_void_durable(is_void);
        Ok(())
    }

    /// Reserves more versions when half of the reserved ones have been used.
    async fn reserve_versions(&self) {
        let next_version = self.next_version();
        let reserved = self.version_limit.load(Ordering::Relaxed);
        if next_version + VERSION_RESERVE / 2 < reserved || reserved == LAST_LIMIT {
            return;
        }
        let _turn = self.persistence.superblock_turn.acquire().await;
        let mut superblock = *self.persistence.superblock.lock();
        if superblock.is_clean() {
            // The run has ended and returned its unused versions; the next run may have begun.
            return;
        }
        let limit = (next_version + VERSION_RESERVE).min(LAST_LIMIT);
        superblock.version_limit = limit.into();
        // Both copies: a start that finds one damaged uses the other.
        for _ in SUPERBLOCK_OFFSETS {
            if let Err(error) = self.write_superblock(&mut superblock).await {
                tracing::warn!(%error, "no more versions could be reserved; it is tried again");
                return;
            }
            *self.persistence.superblock.lock() = superblock;
        }
        self.version_limit.fetch_max(limit, Ordering::Relaxed);
    }

    /// Writes checkpoints: when half of the journal is full, when the index needs one, when the journal has lost
    /// records and has to be healed, and on request.
    async fn keep_checkpoints(self: Arc<Self>) {
        let (mut failures, mut pause) = (0, RETRY_PAUSE);
        loop {
            let pressure = self.journal.pressure.listener();
            let stopping = self.persistence.stopping.listener();
            let come = self.checkpoints.come.listener();
            let asked = select(stopping, come);
            let wanted = self.flash.checkpoint_wanted();
            let is_recovering = self.flash.upkeep.recovery.is_running();
            // A stop that waits for recovery also waits for the journal space that recovery needs.
            if self.is_stopped() && !is_recovering {
                return;
            }
            let waiting = self.checkpoints.waiting();
            if self.journal.is_void() {
                self.note_void().await;
                if is_recovering {
                    // Recovery itself may be waiting for journal space, which a void journal has.
                    self.flash.space().notify_all();
                    // The index does not name every live item yet.
                    self.flash.recovered().await;
                    continue;
                }
            } else if !self.journal.is_due() && waiting.is_none() && !self.flash.wants_checkpoint()
            {
                let _ = runtime::timeout(LOOK_PAUSE, select(pressure, select(asked, pin!(wanted))))
                    .await;
                continue;
            }
            let is_written = self.checkpoint_unless_stopping().await;
            if let Some(last) = waiting {
                self.checkpoints.serve(last, is_written);
            }
            if is_written {
                (failures, pause) = (0, RETRY_PAUSE);
                continue;
            }
            if self.is_stopped() && !is_recovering {
                return;
            }
            if is_recovering && !self.flash.upkeep.recovery.is_running() {
                // The end of the recovery may have overtaken this checkpoint; it cannot overtake the next one.
                continue;
            }
            failures += 1;
            tracing::warn!("a checkpoint could not be written; it is tried again");
            if self.journal.is_void() || failures >= MAX_FAILURES && !self.journal.has_space() {
                self.journal
                    .lose("the journal is full and no checkpoint can be written");
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            if self.journal.has_space() {
                self.flash.space().notify_all();
            }
            let _ = runtime::timeout(pause, asked).await;
        }
    }

    /// Has the background task write a checkpoint now: a caller that stops waiting leaves no half-written one. Returns
    /// false if it cannot be written, or the cache is being stopped.
    pub async fn checkpoint_now(&self) -> bool {
        self.served(&self.checkpoints).await == Some(true)
    }

    async fn checkpoint_unless_stopping(&self) -> bool {
        let checkpointing = &self.persistence.checkpointing;
        // A stop waits for this flag after it has set `stopped`.
        checkpointing.store(true, Ordering::SeqCst);
        let may_be = !self.is_stopped() || self.flash.upkeep.recovery.is_running();
        let is_written = may_be && self.checkpoint(false).await;
        checkpointing.store(false, Ordering::SeqCst);
        self.persistence.checkpointed.notify_all();
        is_written
    }

    /// Writes a checkpoint and frees the one that it replaces. Returns false if it cannot be written; the previous one
    /// then stays in force.
    async fn checkpoint(&self, is_last: bool) -> bool {
        let is_named = self.write_checkpoint(is_last).await;
        let placement = self.flash.placement();
        placement.note(Event::CheckpointEnded(is_named));
        is_named == Some(true)
    }

    /// Returns whether a checkpoint has been written and named in the superblock; `None` if that is unknown.
    async fn write_checkpoint(&self, is_last: bool) -> Option<bool> {
        let (mut losses, heals) = self.journal.losses_and_void();
        let counters = &self.persistence.counters;
        if heals && self.flash.upkeep.recovery.is_running() {
            return Some(false);
        }
        if !self.free_perhaps_named().await {
            counters.failed.add(1);
            return Some(false);
        }
        let (end, head, uncovered) = {
            // A flush is either in the head, or its records are behind the cut.
            let _flushing = self.flushing.lock();
            let (end, covered, uncovered) = self.flash.cut(|| {
                if heals {
                    let end = self.journal.restart();
                    losses = self.journal.losses();
                    end
                } else {
                    self.journal.cut()
                }
            });
            // Later than the cut: a flush due by now is applied here, and its records are behind the cut.
            let now = runtime::unix_seconds();
            let cutoffs = (0..self.partitions.len())
                .map(|number| {
                    // Taking the lock applies a flush that is due.
                    let _partition = self.lock_partition(number, now);
                    self.cutoffs.cutoff(number)
                })
                .collect();
            let head = Head {
                clock: now.max(Journal::clock(&*self.journal.log)),
                flush_deadline: self.cutoffs.pending(now),
                cutoffs,
                covered,
                ..Head::default()
            };
            (end, head, uncovered)
        };
        if heals {
            // Requests that wait for journal space find some.
            self.flash.space().notify_all();
            if !self.sync_now().await {
                counters.failed.add(1);
                return Some(false);
            }
        }
        let failed_syncs = self.store().syncs().failed_syncs();
        let placed = self.back_in_memory();
        let last = self.persistence.checkpoint.lock().clone();
        let cut = CheckpointCut {
            head,
            next_version: self.next_version(),
            uncovered,
            journal_end: (!heals).then_some(end),
        };
        let written = self.flash.checkpoint(cut, last.as_ref(), is_last).await;
        let Some((saved, flash_bytes)) = written else {
            counters.failed.add(1);
            return Some(false);
        };
        if is_last && self.back_in_memory() != placed {
            // Items are in memory alone again, and have to be placed first.
            self.store().pool().free_checkpoint(&saved.segments);
            return Some(false);
        }
        // The section may name a copy that is not written yet, while flash has an older copy of the item. An orderly
        // stop has written everything.
        if self.flash.upkeep.survives() && !is_last && !self.write_placed(true).await {
            self.store().pool().free_checkpoint(&saved.segments);
            counters.failed.add(1);
            return Some(false);
        }
        let synced = self.flash.sync().await;
        if let Err(error) = &synced {
            tracing::warn!(%error, "a checkpoint could not be made durable");
        }
        // Another sync may have received an error that concerns this checkpoint.
        if synced.is_err() || self.store().syncs().failed_syncs() != failed_syncs {
            self.store().pool().free_checkpoint(&saved.segments);
            counters.failed.add(1);
            return Some(false);
        }
        match self.name_checkpoint(&saved, end, losses, is_last).await {
            Ok(true) => {}
            Ok(false) => {
                self.store().pool().free_checkpoint(&saved.segments);
                counters.failed.add(1);
                return Some(false);
            }
            Err(error) => {
                // Whether the superblock was written is unknown: neither checkpoint is freed.
                self.persistence.perhaps_named.lock().extend(saved.segments);
                tracing::warn!(%error, "a checkpoint could not be made durable");
                counters.failed.add(1);
                return None;
            }
        }
        counters.written.add(1);
        counters.bytes.add(flash_bytes);
        let before = self.persistence.checkpoint.lock().replace(saved);
        self.journal.retire(end);
        self.journal.heal(losses);
        let freed = before.map(|before| before.segments).unwrap_or_default();
        // Also wakes requests that wait for journal space.
        self.store().pool().free_checkpoint(&freed);
        Some(true)
    }

    /// Frees checkpoints whose superblock write has an unknown outcome, by writing the superblock in force once more.
    /// Returns false if that fails; no other checkpoint may take flash space then.
    async fn free_perhaps_named(&self) -> bool {
        if self.persistence.perhaps_named.lock().is_empty() {
            return true;
        }
        let _turn = self.persistence.superblock_turn.acquire().await;
        let mut superblock = *self.persistence.superblock.lock();
        if let Err(error) = self.write_superblock(&mut superblock).await {
            tracing::warn!(%error, "the superblock cannot be written");
            return false;
        }
        *self.persistence.superblock.lock() = superblock;
        let freed = std::mem::take(&mut *self.persistence.perhaps_named.lock());
        self.store().pool().free_checkpoint(&freed);
        true
    }

    /// Points the superblock to a checkpoint and reserves more versions; at the end of a run returns the unused ones.
    /// Returns false if the journal has lost records since it had counted `losses`: the checkpoint may lack them.
    async fn name_checkpoint(
        &self,
        saved: &SavedCheckpoint,
        end: u64,
        losses: u64,
        is_last: bool,
    ) -> Result<bool, DeviceError> {
        let _turn = self.persistence.superblock_turn.acquire().await;
        if self.journal.losses() != losses {
            return Ok(false);
        }
        let mut superblock = *self.persistence.superblock.lock();
        let segments: Vec<u32> = saved.segments.iter().map(|segment| segment.0).collect();
        superblock.set_checkpoint(saved.bytes, saved.sequence, &segments, end);
        superblock.mark_journal_void(false);
        let other_copy = superblock.version_limit.get();
        if is_last {
            let limit = self.next_version() + STOP_RESERVE;
            superblock.version_limit = limit.min(other_copy).into();
            self.version_limit.fetch_min(limit, Ordering::Relaxed);
            superblock.mark_clean(true);
        } else {
            let limit = (self.next_version() + VERSION_RESERVE).min(LAST_LIMIT);
            superblock.version_limit = limit.max(other_copy).into();
        }
        self.write_superblock(&mut superblock).await?;
        *self.persistence.superblock.lock() = superblock;
        if !is_last {
            // The other copy of the superblock has this lower limit, and a start that finds the new copy damaged uses
            // it.
            self.version_limit.fetch_max(other_copy, Ordering::Relaxed);
        }
        Ok(true)
    }

    fn next_version(&self) -> u64 {
        let partitions = self.partitions.iter();
        let next = partitions.map(|partition| partition.0.lock().next_version);
        next.max().unwrap_or(0)
    }

    /// Stops orderly: makes everything durable, memory included, within the configured deadline. A write acknowledged
    /// during the stop is at worst a miss after the next start.
    pub async fn stop(self: &Arc<Self>) -> Stop {
        if self.persistence.stopped.swap(true, Ordering::SeqCst) {
            return Stop::Already;
        }
        self.persistence.stopping.notify_all();
        let evicted = self.flash.upkeep.stats().items_evicted;
        let deadline = self.config.stop_deadline;
        let saved = runtime::timeout(deadline, self.save()).await == Ok(true);
        self.persistence.saved.store(true, Ordering::Release);
        self.persistence.stopping.notify_all();
        self.flash.end();
        let made_way = self.flash.upkeep.stats().items_evicted - evicted;
        if made_way > 0 {
            tracing::warn!(
                items = made_way,
                "flash was full: so many items have made way for what memory had"
            );
        }
        // Even if not everything was saved in time, the records of dead items become durable.
        self.sync_now().await;
        let is_void = self.journal.is_void();
        if saved && !is_void {
            Stop::Complete {
                objects: self.flash.upkeep.stats().objects,
            }
        } else {
            Stop::Incomplete {
                items_left: self.count_unplaced() + self.store().buffers().unwritten_items(),
                next_is_empty: is_void,
            }
        }
    }

    /// Makes everything durable. Returns false if some of it cannot be.
    async fn save(self: &Arc<Self>) -> bool {
        self.flash.recovered().await;
        loop {
            let checkpointed = self.persistence.checkpointed.listener();
            if !self.persistence.checkpointing.load(Ordering::SeqCst) {
                break;
            }
            checkpointed.await;
        }
        let now = runtime::unix_seconds();
        let mut placed = None;
        for _ in 0..MAX_CHECKPOINTS {
            if placed != Some(self.back_in_memory()) {
                placed = self.place_all(now).await;
            }
            // Blocks that went bad during a checkpoint may have used up the space kept free for it.
            self.flash.quiesce().await;
            let failed_syncs = self.store().syncs().failed_syncs();
            let is_synced = self.flash.sync_all().await.is_ok();
            let is_whole = placed.is_none_or(|placed| placed == self.back_in_memory());
            let is_durable = is_synced && is_whole && self.checkpoint(true).await;
            if is_durable && self.store().syncs().failed_syncs() == failed_syncs {
                return placed.is_some();
            }
            runtime::sleep(RETRY_PAUSE).await;
        }
        false
    }

    /// Places every item that only memory has, and waits until it is written. Returns the value that
    /// [`back_in_memory`](Self::back_in_memory) has until one of these items is lost; `None` if not all can be placed.
    async fn place_all(&self, now: u32) -> Option<[u64; 3]> {
        let mut returning = None;
        for round in 0..MAX_ROUNDS {
            if round > 0 {
                returning.get_or_insert_with(|| self.return_nothing());
            }
            self.flash.begin_stop();
            let before = self.back_in_memory();
            let are_all_placed = self.clean_memory(now).await;
            self.flash.drain().await;
            if are_all_placed && self.back_in_memory() == before {
                return Some(before);
            }
        }
        None
    }

    /// Returns counters that change when placed items are in memory alone again, or nowhere: lost with a segment that
    /// could not be written, returned by reclaim, or moved to a segment that is not written yet.
    pub(super) fn back_in_memory(&self) -> [u64; 3] {
        let stats = self.flash.upkeep.stats();
        let moved = self.store().counters().segments_moved.get();
        [stats.items_lost, stats.items_returned, moved]
    }

    /// Places every item on flash that only memory has; the items stay in memory. Returns false if a full index has
    /// refused some.
    async fn clean_memory(&self, now: u32) -> bool {
        let mut are_all_placed = true;
        for number in 0..self.partitions.len() {
            let mut walked = Walked::default();
            loop {
                let space = self.flash.space().listener();
                let wanted = self.flash.checkpoint_wanted();
                let cleaned = {
                    let mut partition = self.lock_partition(number, now);
                    let context = self.evict_context(number, now);
                    partition.tier.clean_chunk(&mut walked, &Due::ALL, &context)
                };
                match cleaned {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The task that writes checkpoints has ended.
                    Err(NoSpace) if self.flash.wants_checkpoint() => {
                        if !self.checkpoint(false).await {
                            runtime::sleep(RETRY_PAUSE).await;
                        }
                    }
                    Err(NoSpace) => {
                        select(space, pin!(wanted)).await;
                    }
                }
            }
            are_all_placed &= !walked.has_refused;
        }
        are_all_placed
    }

    /// Returns the number of items in memory that flash does not have, including items whose copy has been lost.
    fn count_unplaced(&self) -> u64 {
        let now = runtime::unix_seconds();
        let unplaced = |number| {
            let partition = self.lock_partition(number, now);
            let context = self.evict_context(number, now);
            partition.tier.count_due(&Due::ALL, &context)
        };
        (0..self.partitions.len()).map(unplaced).sum()
    }
}
