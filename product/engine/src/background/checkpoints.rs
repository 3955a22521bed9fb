//! [`Checkpoints`]: writes checkpoints, and frees the journal and the checkpoints that they replace.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use runtime::sync::Notify;

use super::journal_syncs::JournalSyncs;
use super::phase::Phase;
use super::requests::Requests;
use super::superblock::LiveSuperblock;
use super::write_back::WriteBack;
use crate::counter::Count as _;
use crate::durability::journal::head;
use crate::durability::superblocks::CheckpointCounters;
use crate::flash::CheckpointCut;
use crate::format::checkpoint::Head;
use crate::placement::Event;
use crate::store::SavedCheckpoint;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tiers::Tiers;

/// Number of consecutive failed checkpoints after which a full journal is declared void, so that no request waits for
/// its space.
const MAX_FAILURES: u32 = 5;
/// Pause after a failed checkpoint. It doubles each time while the journal is void.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Interval of checking whether the index needs a checkpoint.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after a failed checkpoint.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Writes checkpoints, one at a time. Records of the journal, and the checkpoint in force, go only once the superblock
/// durably names another one.
pub(crate) struct Checkpoints {
    tiers: Arc<Tiers>,
    phase: Arc<Phase>,
    superblock: Arc<LiveSuperblock>,
    journal_syncs: Arc<JournalSyncs>,
    write_back: Arc<WriteBack>,
    /// The checkpoint that the superblock names.
    in_force: Mutex<Option<SavedCheckpoint>>,
    /// Whether a checkpoint is being written.
    checkpointing: AtomicBool,
    /// Notified when the write of a checkpoint has ended.
    checkpointed: Notify,
    pub(crate) requests: Requests,
    pub(crate) counters: Arc<CheckpointCounters>,
}

impl Checkpoints {
    /// Returns the checkpoints of a run that begins with `in_force`, the one that the superblock names.
    pub(super) fn new(
        superblock: Arc<LiveSuperblock>,
        journal_syncs: Arc<JournalSyncs>,
        write_back: Arc<WriteBack>,
        in_force: Option<SavedCheckpoint>,
    ) -> Self {
        Self {
            tiers: Arc::clone(&journal_syncs.tiers),
            phase: Arc::clone(&journal_syncs.phase),
            counters: Arc::clone(&journal_syncs.counters),
            superblock,
            journal_syncs,
            write_back,
            in_force: Mutex::new(in_force),
            checkpointing: AtomicBool::new(false),
            checkpointed: Notify::new(),
            requests: Requests::default(),
        }
    }

    /// Writes checkpoints: when half of the journal is full, when the index needs one, when the journal has lost
    /// records and has to be healed, and on request.
    pub(crate) async fn run(&self) {
        let (mut failures, mut pause) = (0, RETRY_PAUSE);
        loop {
            let pressure = self.tiers.journal().pressure.listener();
            let stopping = self.phase.listener();
            let come = self.requests.come();
            let asked = select(stopping, come);
            let wanted = self.tiers.flash.checkpoint_wanted();
            let is_recovering = self.tiers.flash.upkeep.recovery.is_running();
            // A stop that waits for recovery also waits for the journal space that recovery needs.
            if self.phase.is_stopped() && !is_recovering {
                return;
            }
            let waiting = self.requests.waiting();
            if self.tiers.journal().is_void() {
                self.superblock.note_void().await;
                if is_recovering {
                    // Recovery itself may be waiting for journal space, which a void journal has.
                    self.tiers.flash.space().notify_all();
                    // The index does not name every live item yet.
                    self.tiers.flash.recovered().await;
                    continue;
                }
            } else if !self.tiers.journal().is_due()
                && waiting.is_none()
                && !self.tiers.flash.wants_checkpoint()
            {
                let _ = runtime::timeout(LOOK_PAUSE, select(pressure, select(asked, pin!(wanted))))
                    .await;
                continue;
            }
            let is_written = self.save_unless_stopping().await;
            if let Some(last) = waiting {
                self.requests.serve(last, is_written);
            }
            if is_written {
                (failures, pause) = (0, RETRY_PAUSE);
                continue;
            }
            if self.phase.is_stopped() && !is_recovering {
                return;
            }
            if is_recovering && !self.tiers.flash.upkeep.recovery.is_running() {
                // The end of the recovery may have overtaken this checkpoint; it cannot overtake the next one.
                continue;
            }
            failures += 1;
            if failures == 1 {
                tracing::warn!("a checkpoint could not be written; it is tried again");
            }
            if self.tiers.journal().is_void()
                || failures >= MAX_FAILURES && !self.tiers.journal().has_space()
            {
                self.tiers
                    .journal()
                    .lose("the journal is full and no checkpoint can be written");
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            if self.tiers.journal().has_space() {
                self.tiers.flash.space().notify_all();
            }
            let _ = runtime::timeout(pause, asked).await;
        }
    }

    async fn save_unless_stopping(&self) -> bool {
        let checkpointing = &self.checkpointing;
        // A stop waits for this flag after it has set `stopped`.
        checkpointing.store(true, Ordering::SeqCst);
        let may_be = !self.phase.is_stopped() || self.tiers.flash.upkeep.recovery.is_running();
        let is_written = may_be && self.save(false).await;
        checkpointing.store(false, Ordering::SeqCst);
        self.checkpointed.notify_all();
        is_written
    }

    /// Waits until no checkpoint is being written.
    pub(super) async fn ended(&self) {
        loop {
            let checkpointed = self.checkpointed.listener();
            if !self.checkpointing.load(Ordering::SeqCst) {
                return;
            }
            checkpointed.await;
        }
    }

    /// Writes a checkpoint and frees the one that it replaces. Returns false if it cannot be written; the previous one
    /// then stays in force.
    pub(super) async fn save(&self, is_last: bool) -> bool {
        let is_named = self.write(is_last).await;
        let placement = self.tiers.flash.placement();
        placement.note(Event::CheckpointEnded(is_named));
        is_named == Some(true)
    }

    /// Returns whether a checkpoint has been written and named in the superblock; `None` if that is unknown.
    async fn write(&self, is_last: bool) -> Option<bool> {
        let _hurry = self.tiers.flash.hurry();
        let (mut losses, heals) = self.tiers.journal().losses_and_void();
        let counters = &self.counters;
        if heals && self.tiers.flash.upkeep.recovery.is_running() {
            return Some(false);
        }
        if !self.superblock.free_perhaps_named().await {
            counters.failed.add(1);
            return Some(false);
        }
        let (end, head, uncovered) = {
            // A flush is either in the head, or its records are behind the cut.
            let _flushing = self.tiers.partitions.hold_flushes();
            let (end, covered, uncovered) = self.tiers.flash.cut(|| {
                if heals {
                    let end = self.tiers.journal().restart();
                    losses = self.tiers.journal().losses();
                    end
                } else {
                    self.tiers.journal().cut()
                }
            });
            // Later than the cut: a flush due by now is applied here, and its records are behind the cut.
            let now = runtime::unix_seconds();
            let cutoffs = self.tiers.partitions.cutoffs_at(now);
            let head = Head {
                clock: now.max(head::clock(&*self.tiers.journal().log)),
                flush_deadline: self.tiers.cutoffs().pending(now),
                cutoffs,
                covered,
                ..Head::default()
            };
            (end, head, uncovered)
        };
        if heals {
            // Requests that wait for journal space find some.
            self.tiers.flash.space().notify_all();
            if !self.journal_syncs.sync_now().await {
                counters.failed.add(1);
                return Some(false);
            }
        }
        let failed_syncs = self.tiers.store().syncs().failed_syncs();
        let placed = self.tiers.back_in_memory();
        let last = self.in_force.lock().clone();
        let cut = CheckpointCut {
            head,
            next_version: self.tiers.partitions.next_version(),
            uncovered,
            journal_end: (!heals).then_some(end),
        };
        let written = self
            .tiers
            .flash
            .checkpoint(cut, last.as_ref(), is_last)
            .await;
        let Some((saved, flash_bytes)) = written else {
            counters.failed.add(1);
            return Some(false);
        };
        if is_last && self.tiers.back_in_memory() != placed {
            // Items are in memory alone again, and have to be placed first.
            self.tiers.store().pool().free_checkpoint(&saved.segments);
            return Some(false);
        }
        // The section may name a copy that is not written yet, while flash has an older copy of the item. An orderly
        // stop has written everything.
        if self.tiers.flash.upkeep.dead_copies.are_in_section()
            && !is_last
            && !self.write_back.write_placed(true).await
        {
            self.tiers.store().pool().free_checkpoint(&saved.segments);
            counters.failed.add(1);
            return Some(false);
        }
        let synced = self.tiers.flash.sync().await;
        if let Err(error) = &synced {
            tracing::warn!(%error, "a checkpoint could not be made durable");
        }
        // Another sync may have received an error that concerns this checkpoint.
        if synced.is_err() || self.tiers.store().syncs().failed_syncs() != failed_syncs {
            self.tiers.store().pool().free_checkpoint(&saved.segments);
            counters.failed.add(1);
            return Some(false);
        }
        match self
            .superblock
            .name_checkpoint(&saved, end, losses, is_last)
            .await
        {
            Ok(true) => {}
            Ok(false) => {
                self.tiers.store().pool().free_checkpoint(&saved.segments);
                counters.failed.add(1);
                return Some(false);
            }
            Err(error) => {
                // Whether the superblock was written is unknown: neither checkpoint is freed.
                self.superblock.note_perhaps_named(saved.segments);
                tracing::warn!(%error, "a checkpoint could not be made durable");
                counters.failed.add(1);
                return None;
            }
        }
        counters.written.add(1);
        counters.bytes.add(flash_bytes);
        let before = self.in_force.lock().replace(saved);
        self.tiers.journal().retire(end);
        self.tiers.journal().heal(losses);
        let freed = before.map(|before| before.segments).unwrap_or_default();
        // Also wakes requests that wait for journal space.
        self.tiers.store().pool().free_checkpoint(&freed);
        Some(true)
    }
}
