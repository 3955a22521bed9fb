//! [`OrderlyStop`]: makes everything durable and ends the run.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;

use super::checkpoints::{Checkpoints, RETRY_PAUSE};
use super::journal_syncs::JournalSyncs;
use super::phase::Phase;
use crate::dram::{Due, NoSpace, Walked};
use crate::tiers::Tiers;

/// Number of rounds in which an orderly stop places items, if segments could not be written.
const MAX_ROUNDS: usize = 3;
/// Time that the last sync of the journal has, whether or not the deadline has passed.
const LAST_SYNC: Duration = Duration::from_secs(1);
/// Number of times that an orderly stop makes space for its checkpoint and tries to write it.
const MAX_CHECKPOINTS: usize = 16;

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

/// The orderly stop of a run. It ends the background work whether or not everything could be saved in time.
pub(crate) struct OrderlyStop {
    pub(super) tiers: Arc<Tiers>,
    pub(super) phase: Arc<Phase>,
    pub(super) journal_syncs: Arc<JournalSyncs>,
    pub(super) checkpoints: Arc<Checkpoints>,
    /// Time within which everything has to be durable.
    pub(super) deadline: Duration,
}

impl OrderlyStop {
    /// Stops orderly: makes everything durable, memory included, within the configured deadline. A write acknowledged
    /// during the stop is at worst a miss after the next start.
    pub(crate) async fn run(&self) -> Stop {
        if !self.phase.begin_stop() {
            return Stop::Already;
        }
        let begun = runtime::now();
        let evicted = self.tiers.flash.upkeep.stats().items_evicted;
        let saved = runtime::timeout(self.deadline, self.save()).await == Ok(true);
        self.phase.note_saved();
        self.tiers.flash.upkeep.end();
        let made_way = self.tiers.flash.upkeep.stats().items_evicted - evicted;
        if made_way > 0 {
            tracing::warn!(
                items = made_way,
                "flash was full: the oldest items on flash were dropped to make space for the items in memory"
            );
        }
        // Even if not everything was saved in time, the records of dead items become durable, unless the drive is slow.
        let left = self.deadline.saturating_sub(runtime::now().since(begun));
        let last_syncs = runtime::timeout(left.max(LAST_SYNC), async {
            if !self.journal_syncs.sync_now().await {
                // A journal whose pages had been taken away is whole again now.
                self.journal_syncs.sync_now().await;
            }
        })
        .await;
        let is_void = self.tiers.journal().is_void();
        if saved && last_syncs.is_ok() && !is_void {
            Stop::Complete {
                objects: self.tiers.flash.upkeep.stats().objects,
            }
        } else {
            Stop::Incomplete {
                items_left: self.count_unplaced() + self.tiers.store().buffers().unwritten_items(),
                next_is_empty: is_void,
            }
        }
    }

    /// Makes everything durable. Returns false if some of it cannot be.
    async fn save(&self) -> bool {
        self.tiers.flash.recovered().await;
        self.checkpoints.ended().await;
        let now = runtime::unix_seconds();
        let mut placed = None;
        for _ in 0..MAX_CHECKPOINTS {
            if placed != Some(self.tiers.back_in_memory()) {
                placed = self.place_all(now).await;
            }
            // Blocks that went bad during a checkpoint may have used up the space kept free for it.
            self.tiers.flash.upkeep.quiesce().await;
            let failed_syncs = self.tiers.store().syncs().failed_syncs();
            let is_synced = self.tiers.flash.sync_all().await.is_ok();
            let is_whole = placed.is_none_or(|placed| placed == self.tiers.back_in_memory());
            let is_durable = is_synced && is_whole && self.checkpoints.save(true).await;
            if is_durable && self.tiers.store().syncs().failed_syncs() == failed_syncs {
                return placed.is_some();
            }
            runtime::sleep(RETRY_PAUSE).await;
        }
        false
    }

    /// Places every item that only memory has, and waits until it is written. Returns the value that
    /// [`back_in_memory`](Tiers::back_in_memory) has until one of these items is lost; `None` if not all can be placed.
    async fn place_all(&self, now: u32) -> Option<[u64; 3]> {
        let mut returning = None;
        for round in 0..MAX_ROUNDS {
            if round > 0 {
                returning.get_or_insert_with(|| self.tiers.return_nothing());
            }
            self.tiers.flash.upkeep.begin_stop();
            let before = self.tiers.back_in_memory();
            let are_all_placed = self.clean_memory(now).await;
            self.tiers.flash.upkeep.drain().await;
            if are_all_placed && self.tiers.back_in_memory() == before {
                return Some(before);
            }
        }
        None
    }

    /// Places every item on flash that only memory has; the items stay in memory. Returns false if a full index has
    /// refused some.
    async fn clean_memory(&self, now: u32) -> bool {
        let mut are_all_placed = true;
        for number in 0..self.tiers.partitions.len() {
            let mut walked = Walked::default();
            loop {
                let space = self.tiers.flash.space().listener();
                let wanted = self.tiers.flash.checkpoint_wanted();
                let cleaned = {
                    let mut partition = self.tiers.partitions.lock_number(number, now);
                    let context = self.tiers.evict_context(number, now);
                    walked.clean_chunk(&mut partition.tier.items, &Due::ALL, &context)
                };
                match cleaned {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The task that writes checkpoints has ended.
                    Err(NoSpace) if self.tiers.flash.wants_checkpoint() => {
                        if !self.checkpoints.save(false).await {
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
            let partition = self.tiers.partitions.lock_number(number, now);
            let context = self.tiers.evict_context(number, now);
            Due::ALL.count(&partition.tier.items, &context)
        };
        (0..self.tiers.partitions.len()).map(unplaced).sum()
    }
}
