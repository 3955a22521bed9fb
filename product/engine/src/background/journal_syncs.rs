//! [`JournalSyncs`]: makes the journal durable at intervals, and on demand.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;

use super::phase::Phase;
use super::superblock::LiveSuperblock;
use crate::counter::Count as _;
use crate::durability::superblocks::CheckpointCounters;
use crate::sync::atomic::Ordering;
use crate::tiers::Tiers;

/// Interval at which an idle cache notes the time in the journal. The next start counts downtime from the last note.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Syncs of the journal. A record is durable one interval and one sync after it was appended. A journal that has lost
/// records is marked void in the superblock before a sync returns.
pub(crate) struct JournalSyncs {
    pub(super) tiers: Arc<Tiers>,
    pub(super) phase: Arc<Phase>,
    pub(super) superblock: Arc<LiveSuperblock>,
    pub(super) counters: Arc<CheckpointCounters>,
    /// Time between a record and its sync.
    pub(super) interval: Duration,
}

impl JournalSyncs {
    /// Syncs the journal, one interval after a record has been appended, until an orderly stop has saved everything.
    pub(crate) async fn run(&self) {
        let journal = self.tiers.journal();
        loop {
            let dirtied = journal.dirtied.listener();
            let stopping = self.phase.listener();
            if self.phase.is_saved() {
                return;
            }
            if !journal.is_dirty() {
                let either = select(dirtied, stopping);
                // Whichever event ends the wait, the journal is checked again.
                let _ = runtime::timeout(HEARTBEAT, either).await;
            }
            if journal.is_dirty() {
                runtime::sleep(self.interval).await;
            }
            if !self.phase.is_saved() {
                self.sync_now().await;
                self.superblock.reserve_versions().await;
            }
        }
    }

    /// Syncs the journal. Returns whether that succeeded.
    pub(super) async fn sync_now(&self) -> bool {
        let counters = &self.counters;
        let synced = self.tiers.journal().sync(runtime::unix_seconds()).await;
        let is_synced = synced.is_ok();
        match synced {
            Ok(()) => counters.syncs.add(1),
            Err(error) => {
                let is_first = counters.sync_errors.fetch_add(1, Ordering::Relaxed) == 0;
                // The journal has told of lost records itself.
                if is_first && !self.tiers.journal().is_void() {
                    tracing::error!(%error, "the journal cannot be synced");
                }
            }
        }
        self.superblock.note_void().await;
        is_synced
    }
}
