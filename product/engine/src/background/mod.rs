//! Work that goes on beside requests: journal syncs, checkpoints, write-back, the crawler, lessons of admission; and the
//! orderly stop, which ends it.
//!
//! ```text
//!   phase ──> superblock ──> journal_syncs ──> write_back ──> checkpoints ──> stop
//!             a part uses the parts to its left
//!
//!   run:   journal synced every interval │ checkpoint when half of the journal is full, or it has lost records
//!   write_back: items that have been dirty for long are placed and flushed; serves Engine::sync
//!   stop:  clean all of memory ─> drain ─> checkpoint ─> sync ─> set the clean mark ─> sync
//! ```

mod checkpoints;
mod expire;
mod journal_syncs;
mod phase;
mod requests;
mod stop;
mod superblock;
mod write_back;

use std::sync::Arc;
use std::time::Duration;

use device::Region;

use checkpoints::Checkpoints;
use expire::Crawl;
use journal_syncs::JournalSyncs;
use phase::Phase;
use requests::Requests;
pub use requests::SyncError;
use stop::OrderlyStop;
pub use stop::Stop;
use superblock::LiveSuperblock;
pub(crate) use superblock::VERSION_RESERVE;
use write_back::WriteBack;

use crate::config::EngineConfig;
use crate::durability::superblocks::CheckpointCounters;
pub use crate::durability::superblocks::CheckpointStats;
use crate::format::superblock::Superblock;
use crate::store::SavedCheckpoint;
use crate::tiers::Tiers;

/// Time between two wake-ups of the writes that wait for space.
const WAKE_INTERVAL: Duration = Duration::from_millis(250);

/// The background work of a cache. Every task ends when a stop begins, and journal syncs when it has saved everything.
pub(crate) struct Background {
    tiers: Arc<Tiers>,
    pub(crate) phase: Arc<Phase>,
    pub(crate) superblock: Arc<LiveSuperblock>,
    pub(crate) journal_syncs: Arc<JournalSyncs>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) crawl: Crawl,
    pub(crate) stop: OrderlyStop,
}

impl Background {
    /// Returns the work of a run that has just begun: `superblock` lies in `meta`, and names `checkpoint`.
    pub(crate) fn new(
        tiers: &Arc<Tiers>,
        config: &EngineConfig,
        meta: Region,
        superblock: Superblock,
        checkpoint: Option<SavedCheckpoint>,
    ) -> Self {
        let phase = Arc::new(Phase::default());
        let superblock = Arc::new(LiveSuperblock::new(Arc::clone(tiers), meta, superblock));
        let journal_syncs = Arc::new(JournalSyncs {
            tiers: Arc::clone(tiers),
            phase: Arc::clone(&phase),
            superblock: Arc::clone(&superblock),
            counters: Arc::new(CheckpointCounters::default()),
            interval: config.sync_interval,
        });
        let write_back = Arc::new(WriteBack {
            tiers: Arc::clone(tiers),
            phase: Arc::clone(&phase),
            journal_syncs: Arc::clone(&journal_syncs),
            window: config.write_back,
            memory_bytes: config.memory_bytes,
            requests: Requests::default(),
        });
        let checkpoints = Arc::new(Checkpoints::new(
            Arc::clone(&superblock),
            Arc::clone(&journal_syncs),
            Arc::clone(&write_back),
            checkpoint,
        ));
        Self {
            crawl: Crawl {
                tiers: Arc::clone(tiers),
                phase: Arc::clone(&phase),
            },
            stop: OrderlyStop {
                tiers: Arc::clone(tiers),
                phase: Arc::clone(&phase),
                journal_syncs: Arc::clone(&journal_syncs),
                checkpoints: Arc::clone(&checkpoints),
                deadline: config.stop_deadline,
            },
            tiers: Arc::clone(tiers),
            phase,
            superblock,
            journal_syncs,
            write_back,
            checkpoints,
        }
    }

    /// Wakes all writes that wait for space four times a second, until an orderly stop: they find out whether they have waited
    /// too long. A write may run where there are no timers.
    pub(crate) async fn wake_stalled(&self) {
        loop {
            let stopping = self.phase.listener();
            if self.phase.is_stopped() {
                return;
            }
            let _ = runtime::timeout(WAKE_INTERVAL, stopping).await;
            self.tiers.flash.wake_stalled();
        }
    }

    /// Trains admission at the end of each window, until an orderly stop.
    pub(crate) async fn learn(&self) {
        while let Some(left) = self.tiers.gate.next_lesson() {
            let stopping = self.phase.listener();
            if self.phase.is_stopped() {
                return;
            }
            if left.is_zero() {
                self.tiers.gate.learn().await;
            } else {
                // Ends early if a stop begins; the loop checks both.
                let _ = runtime::timeout(left, stopping).await;
            }
        }
    }
}
