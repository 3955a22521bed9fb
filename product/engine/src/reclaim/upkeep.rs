//! [`Upkeep`]: state that writing and reclaim share: the store, the journal, the phase of the work, counters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use runtime::sync::{Notify, Receiver, Sender, oneshot};

use super::IndexUse;
use super::free_segments::FreeSegments;
use super::watermarks::Watermarks;
use crate::counter::{Count as _, counters};
use crate::durability::FlushCutoffs;
use crate::durability::dead::DeadCopies;
use crate::durability::journal::Journal;
use crate::durability::recovery::RecoveryQueue;
use crate::format::journal::Record;
use crate::format::location::Place;
use crate::key::HashSeed;
use crate::settings::{ReclaimSettings, Schedule};
use crate::store::{SegmentRecord, SegmentStore};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Pause after a failed sync.
const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// Number of consecutive failed syncs after which waiting writes are told.
const FAILURES_TO_TELL: u32 = 10;

counters! {
    /// Counters of the flash tier; they only grow, except objects and watermarks.
    pub struct FlashStats {
        /// Segments reclaimed, dropped whole or with some items kept.
        segments_reclaimed,
        /// Segments reclaimed by dropping all of their items.
        segments_dropped,
        /// Rounds of wear leveling.
        wear_levelings,
        /// Segments erased for wear leveling.
        segments_leveled,
        /// Bytes of the items copied for wear leveling.
        bytes_copied_to_level,
        /// Items that reclaim kept by copying.
        items_copied,
        /// Bytes of the items that reclaim copied.
        bytes_copied,
        /// Items that reclaim returned to memory.
        items_returned,
        /// Live items that reclaim dropped.
        items_evicted,
        /// Live items dropped by reclaim that had not been read since they were written to flash.
        evicted_unfetched,
        /// Live items dropped by reclaim that had an expiry.
        evicted_nonzero,
        /// Bytes of the live items that reclaim dropped.
        bytes_evicted,
        /// Expired or flushed items that reclaim found.
        items_expired,
        /// Items dropped because the index was full.
        index_full,
        /// Items lost with segments that could not be written or read.
        items_lost,
        /// Items of segments that could not be written, which memory holds.
        items_unplaced,
    }
    also {
        /// Items that the index finds on flash.
        objects: u64,
        /// Free segments below which reclaim is urgent.
        low_watermark: u32,
        /// Free segments below which reclaim begins.
        high_watermark: u32,
        /// Seconds that the live item dropped last had been on flash without being read.
        evicted_age: u32,
    }
    from pub(crate) struct FlashCounters of std::sync::atomic::AtomicU64
}

/// Settings of the upkeep of one store for one placement.
pub(crate) struct UpkeepPlan {
    pub(crate) dead_copies: DeadCopies,
    pub(crate) demaps_by_itself: bool,
    pub(crate) reclaim: ReclaimSettings,
    /// Segments written at once.
    pub(crate) writers: usize,
    /// Free buffers below which sealed segments are written; `None` writes them at once.
    pub(crate) spare_buffers: Option<usize>,
    /// Segments that an orderly stop needs for dirty items; `None` if their number follows from the dirty items.
    pub(crate) for_stop: Option<u32>,
    /// Hash seed of the image.
    pub(crate) hash_seed: HashSeed,
}

/// State that writing and reclaim of one store share. A copy is counted out before its death is recorded, and recorded
/// before anything can follow from it. Shared by all threads.
pub(crate) struct Upkeep {
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) cutoffs: Arc<FlushCutoffs>,
    pub(crate) recovery: RecoveryQueue,
    pub(crate) index_use: Arc<IndexUse>,
    pub(crate) counters: FlashCounters,
    pub(crate) free_segments: FreeSegments,
    /// How a start tells which copies of a key are dead.
    pub(crate) dead_copies: DeadCopies,
    schedule: Schedule,
    /// Callers that wait for a round of on-demand writing and reclaim.
    rounds: Mutex<VecDeque<Sender<()>>>,
    /// Notified while work waits for a journal whose syncs keep failing.
    pub(crate) is_failing: Notify,
    /// Whether an orderly stop has begun: the segments kept for it may be filled.
    pub(crate) is_stopping: AtomicBool,
    /// Whether no further reclaim begins.
    pub(super) is_frozen: AtomicBool,
    /// Whether background work has ended.
    pub(crate) is_ended: AtomicBool,
    /// Number of reclaims in progress, and of tasks about to choose a segment.
    pub(super) reclaiming: AtomicU32,
    /// Notified when a segment has been written or given up, and when a reclaim has ended.
    pub(crate) progress: Notify,
    /// Seconds that the live item dropped last had been on flash without being read.
    pub(super) evicted_age: AtomicU32,
}

impl Upkeep {
    pub(crate) fn new(
        store: Arc<SegmentStore>,
        journal: Arc<Journal>,
        cutoffs: Arc<FlushCutoffs>,
        recovery: RecoveryQueue,
        index_use: Arc<IndexUse>,
        plan: &UpkeepPlan,
    ) -> Self {
        let free_segments = FreeSegments::new(Arc::clone(&store), &plan.reclaim, plan.for_stop);
        store.pool().reserve_segments(free_segments.reserved());
        Self {
            store,
            journal,
            cutoffs,
            recovery,
            index_use,
            counters: FlashCounters::default(),
            free_segments,
            dead_copies: plan.dead_copies,
            schedule: plan.reclaim.schedule,
            rounds: Mutex::default(),
            is_failing: Notify::new(),
            is_stopping: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            reclaiming: AtomicU32::new(0),
            progress: Notify::new(),
            evicted_age: AtomicU32::new(0),
        }
    }

    /// Returns all counters and the watermarks. Watermarks that depend on the items in memory are the ones found last,
    /// since the caller may hold a partition's lock.
    pub(crate) fn stats(&self) -> FlashStats {
        let Watermarks { low, high } = self.free_segments.known_watermarks();
        FlashStats {
            objects: self.index_use.objects.get(),
            low_watermark: low,
            high_watermark: high,
            evicted_age: self.evicted_age.load(Ordering::Relaxed),
            ..self.counters.read()
        }
    }

    /// Returns whether there are more free segments than reclaim keeps: flash has never been full, or has been flushed.
    pub(crate) fn has_unused(&self) -> bool {
        self.store.pool().counts().free > self.free_segments.known_watermarks().high
    }

    /// Returns the number of free segments to keep at present; during a stop, the number that the checkpoint will fill.
    pub(super) fn free_target(&self) -> u32 {
        self.free_segments
            .target(self.is_stopping.load(Ordering::SeqCst))
    }

    /// Returns whether segments are written and reclaimed in background. Under any schedule they are once the cache is
    /// stopping.
    pub(crate) fn works_in_background(&self) -> bool {
        self.schedule == Schedule::Background || self.is_stopping.load(Ordering::SeqCst)
    }

    /// Requests a round for a caller that has found no space, if writing and reclaim are done on demand. The result
    /// resolves once the round has been done for this caller: a stalled caller waits for all the work that its write
    /// causes, and others go on.
    pub(crate) fn ask_for_round(&self) -> Option<Receiver<()>> {
        let is_over = || self.works_in_background() || self.is_ended.load(Ordering::Acquire);
        if is_over() {
            return None;
        }
        let (done, round) = oneshot();
        self.rounds.lock().push_back(done);
        self.store.pool().work().notify_all();
        if is_over() {
            self.end_rounds();
        }
        Some(round)
    }

    /// Returns the caller whose round is next.
    pub(crate) fn next_round(&self) -> Option<Sender<()>> {
        self.rounds.lock().pop_front()
    }

    /// Ends the waits for rounds: background tasks do the work from now on.
    pub(crate) fn end_rounds(&self) {
        drop(std::mem::take(&mut *self.rounds.lock()));
    }

    /// Resolves once a start will know of all items that have died so far, or will know that it cannot. A newer copy
    /// does not become durable before that: if a start finds two copies of a key, it knows that one is dead. Goes on
    /// after the end of background work, until its task is dropped.
    pub(crate) async fn sync_deaths(&self) {
        let reached = self.journal.reached();
        let mut failures = 0;
        loop {
            let synced = self.journal.sync_to(&reached, runtime::unix_seconds());
            let Err(error) = synced.await else { return };
            if self.journal.is_void_durable() {
                return;
            }
            failures += 1;
            if failures == 1 {
                tracing::warn!(%error, "what is to be written waits for the journal to be synced");
            }
            if failures >= FAILURES_TO_TELL {
                // Writes that wait for space see that the failures persist.
                self.is_failing.notify_all();
                self.store.pool().space().notify_all();
            }
            runtime::sleep(SYNC_PAUSE).await;
        }
    }

    /// Records in the journal that a generation of a segment will never be read again.
    pub(crate) fn declare_segment_dead(&self, record: &SegmentRecord) {
        self.journal.append(Record::SegmentDead {
            segment: record.segment.0,
            generation: record.sequence,
        });
    }

    /// Records in the journal that the copy at a place will never be read again.
    pub(crate) fn declare_dead(&self, place: Place) {
        self.journal.append(Record::Dead {
            location: self.store.codec.encode(place.segment, place.position),
            generation: place.generation,
        });
    }

    /// Counts out a copy that the index no longer names, and records it as dead.
    pub(crate) fn displace(&self, place: Place) {
        self.store
            .table()
            .count_out(place.segment, place.generation);
        self.declare_dead(place);
    }

    /// Begins a stop: from now on, and again after a [`quiesce`](Upkeep::quiesce), the segments kept for an orderly
    /// stop may be filled.
    pub(crate) fn begin_stop(&self) {
        self.is_frozen.store(false, Ordering::SeqCst);
        self.is_stopping.store(true, Ordering::SeqCst);
        self.store.pool().reserve_segments(0);
        self.store.appender().reopen();
    }

    /// Ends the background work. Segments whose write has not begun are never written.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.store.pool().work().notify_all();
        self.store.pool().space().notify_all();
    }

    /// Stops placing items. Resolves once every item placed so far is on flash or given up, and reclaim has finished
    /// the segments it had begun. Requests that go on do not delay this; requests that need space wait.
    pub(crate) async fn drain(&self) {
        self.store.appender().close();
        loop {
            let progress = self.progress.listener();
            self.store.appender().flush();
            if self.store.appender().is_drained() && self.reclaiming.load(Ordering::SeqCst) == 0 {
                return;
            }
            progress.await;
        }
    }

    /// Drains, waits until reclaim has freed the space that the checkpoint needs, and ends reclaim: from then on
    /// neither the places in the index nor the segments change.
    pub(crate) async fn quiesce(&self) {
        loop {
            self.drain().await;
            let progress = self.progress.listener();
            let store = &self.store;
            if store.pool().counts().free < self.free_target() && store.pool().counts().written > 0
            {
                self.is_frozen.store(false, Ordering::SeqCst);
                store.pool().work().notify_all();
                progress.await;
                continue;
            }
            self.is_frozen.store(true, Ordering::SeqCst);
            if self.reclaiming.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    }
}
