//! [`Upkeep`]: state that writing and reclaim share: the store, the journal, the phase of the cache, counters. Also
//! writes segments, and handles segments that could not be written.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use device::DeviceError;
use runtime::sync::{Notify, Receiver, Semaphore, Sender, oneshot};

use super::watermarks::{Load, Regulator, Watermarks};
use super::{IndexUse, Named, Resident, Residents};
use crate::counter::{Count as _, Ewma, counters};
use crate::durability::FlushCutoffs;
use crate::durability::dead::DeadCopies;
use crate::durability::journal::Journal;
use crate::durability::recovery::RecoveryQueue;
use crate::format::item::{CHECKSUM_BYTES, ItemRef};
use crate::format::journal::Record;
use crate::format::location::Place;
use crate::format::segment::{PAGE_BYTES, SUMMARY_ENTRY_BYTES, SegmentId, SummaryEntry};
use crate::settings::{ReclaimPolicy, ReclaimSettings, Schedule};
use crate::store::{SegmentRecord, SegmentStore, Unflushed, WriteFailure};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Pause after a failed sync.
const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// Number of consecutive failed syncs after which waiting writes are told.
const FAILURES_TO_TELL: u32 = 10;
/// Number of reclaims that take processor time at once, beside requests.
const TURNS: usize = 2;
/// Maximum bytes of an object in a checkpoint: dead, or read since it was written.
const CHECKPOINT_ENTRY_BYTES: u64 = 2;
/// Segments that a checkpoint may need in addition to its lists.
const CHECKPOINT_SPARE_SEGMENTS: u32 = 2;

/// Takes items of segments being reclaimed back into memory.
pub(crate) trait ReturnToMemory: Send + Sync {
    /// Moves an item from the index into memory, dirty. Returns false if the index no longer names it, or memory has no
    /// space.
    fn take_back(&self, item: &Resident, contents: &ItemRef<'_>) -> bool;

    /// Returns the items that only memory has at present.
    fn dirty(&self) -> Dirty;
}

/// Items without a copy on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Number of items.
    pub(crate) items: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
}

impl Dirty {
    /// Estimates how many segments of this size the items fill: items of their mean length take as many pages.
    fn segments(self, segment_bytes: u32) -> u32 {
        let summary = self.items * u64::from(SUMMARY_ENTRY_BYTES);
        let mean = self.bytes / self.items.max(1) + CHECKSUM_BYTES as u64;
        let in_a_page = u64::from(PAGE_BYTES) / mean;
        let pages = match in_a_page {
            0 => self.items * mean.div_ceil(u64::from(PAGE_BYTES)),
            some => self.items.div_ceil(some),
        };
        let bytes = pages * u64::from(PAGE_BYTES) + summary;
        bytes.div_ceil(u64::from(segment_bytes)) as u32
    }
}

counters! {
    FlashCounters, read as
    /// Counters of the flash tier; they only grow, except objects and watermarks.
    FlashStats {
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
}

/// Writing and reclaim of one store. Shared by all threads.
pub(crate) struct Upkeep {
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) cutoffs: Arc<FlushCutoffs>,
    pub(crate) recovery: RecoveryQueue,
    pub(crate) index_use: Arc<IndexUse>,
    pub(crate) counters: FlashCounters,
    /// How a start tells which copies of a key are dead.
    pub(crate) dead_copies: DeadCopies,
    /// Whether entries of the index tell by themselves that their segment has gone.
    pub(super) demaps_by_itself: bool,
    pub(super) policy: ReclaimPolicy,
    pub(super) wear_leveling: Option<u32>,
    schedule: Schedule,
    /// Whether the bytes of copies in memory alone are bounded.
    pub(super) bounds_copies: bool,
    spare_buffers: Option<usize>,
    writers: usize,
    pub(super) reclaimers: u32,
    /// Segments that an orderly stop needs for dirty items; `None` if their number follows from the dirty items.
    for_stop: Option<u32>,
    regulator: Regulator,
    /// Memory that takes items back; set once, after the engine has been put together.
    pub(crate) memory: OnceLock<Weak<dyn ReturnToMemory>>,

    /// Callers that wait for a round of on-demand writing and reclaim.
    rounds: Mutex<VecDeque<Sender<()>>>,
    /// Notified while work waits for a journal whose syncs keep failing.
    pub(crate) is_failing: Notify,
    /// Number of callers for whom sealed segments are written whatever the schedule says.
    syncing: AtomicU32,
    /// Whether an orderly stop has begun: the segments kept for it may be filled.
    pub(crate) is_stopping: AtomicBool,
    /// Whether no further reclaim begins.
    pub(crate) is_frozen: AtomicBool,
    /// Whether background work has ended.
    pub(crate) is_ended: AtomicBool,
    /// Number of reclaims in progress, and of tasks about to choose a segment.
    pub(crate) reclaiming: AtomicU32,
    /// Notified when a segment has been written or given up, and when a reclaim has ended.
    pub(crate) progress: Notify,

    /// Held by a reclaim that checks items or copies them.
    pub(super) turns: Semaphore,
    /// Held while a victim is taken and declared dead, so that victims die in the order in which they are taken.
    pub(super) taking: Mutex<()>,
    pub(super) balance: Mutex<CopyBalance>,
    /// Number of reclaims whose copies wait for a free segment.
    pub(super) starved: AtomicU32,
    /// Seconds that the live item dropped last had been on flash without being read.
    pub(super) evicted_age: AtomicU32,
    /// EWMA of the time to drop a segment.
    pub(super) drop_time: Ewma,
    pub(super) dropping: AtomicU32,
    /// Bytes that the reclaims in progress may copy.
    pub(super) claimed: AtomicU64,
    /// Count of `segments_opened` before which no segment to copy from is searched.
    pub(super) copying_rests_until: AtomicU64,
    /// Number of erases of use at the last wear leveling.
    pub(super) leveled_at: AtomicU64,
    /// Number of segments marked at the last wear leveling.
    pub(super) leveled_segments: AtomicU64,
}

/// Settings of [`Upkeep`] for one store and one placement.
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
}

/// Bytes gained by copying: a share of the reclaimed segments, less the bytes of sealed segments that copies take.
#[derive(Default)]
pub(super) struct CopyBalance {
    pub(super) gained: i64,
    /// Number of segments reclaimed for space at the last update.
    pub(super) reclaimed: i64,
    /// Bytes of sealed segments taken by copies at the last update.
    pub(super) for_copies: u64,
}

/// Counts one for as long as it exists, even if the task that holds it is dropped.
pub(super) struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    pub(super) fn begin(counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Upkeep {
    pub(crate) fn new(
        store: Arc<SegmentStore>,
        journal: Arc<Journal>,
        cutoffs: Arc<FlushCutoffs>,
        recovery: RecoveryQueue,
        index_use: Arc<IndexUse>,
        plan: UpkeepPlan,
    ) -> Self {
        let (reclaim, for_stop) = (plan.reclaim, plan.for_stop);
        let first = stop_watermarks(for_stop.unwrap_or(0), store.table().segments());
        let upkeep = Self {
            dead_copies: plan.dead_copies,
            demaps_by_itself: plan.demaps_by_itself,
            policy: reclaim.policy,
            wear_leveling: reclaim.wear_leveling,
            schedule: reclaim.schedule,
            bounds_copies: reclaim.bound_copies && store.flusher().can_flush(),
            spare_buffers: plan
                .spare_buffers
                .map(|spare| spare + store.buffers().buffers_for_writes()),
            writers: plan.writers,
            reclaimers: reclaim.reclaimers as u32,
            regulator: Regulator::new(reclaim.reserve, first),
            for_stop,
            store,
            journal,
            cutoffs,
            recovery,
            index_use,
            memory: OnceLock::new(),
            counters: FlashCounters::default(),
            rounds: Mutex::default(),
            is_failing: Notify::new(),
            syncing: AtomicU32::new(0),
            is_stopping: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            reclaiming: AtomicU32::new(0),
            progress: Notify::new(),
            turns: Semaphore::new(TURNS),
            taking: Mutex::default(),
            balance: Mutex::default(),
            starved: AtomicU32::new(0),
            evicted_age: AtomicU32::new(0),
            drop_time: Ewma::default(),
            dropping: AtomicU32::new(0),
            claimed: AtomicU64::new(0),
            copying_rests_until: AtomicU64::new(0),
            leveled_at: AtomicU64::new(0),
            leveled_segments: AtomicU64::new(0),
        };
        upkeep
            .store
            .pool()
            .reserve_segments(upkeep.reserved_segments());
        upkeep
    }

    /// Segments written at once.
    pub(crate) fn writers(&self) -> usize {
        self.writers
    }

    /// Segments reclaimed at once.
    pub(crate) fn reclaimers(&self) -> usize {
        self.reclaimers as usize
    }

    /// Whether the place of every displaced copy is known at once.
    pub(crate) fn is_located(&self) -> bool {
        self.dead_copies == DeadCopies::Located
    }

    /// Whether a start finds the index as it was at the last checkpoint.
    pub(crate) fn survives(&self) -> bool {
        self.dead_copies == DeadCopies::BySection
    }

    /// Whether the journal records the places of dead copies, at once or later.
    pub(crate) fn records_places(&self) -> bool {
        matches!(
            self.dead_copies,
            DeadCopies::Located | DeadCopies::LocatedLater
        )
    }

    pub(super) fn memory(&self) -> Option<Arc<dyn ReturnToMemory>> {
        self.memory.get()?.upgrade()
    }

    /// Returns the number of free segments that only copies may fill: stalled writes must not take the segments that
    /// copies need.
    pub(super) fn reserved_segments(&self) -> u32 {
        match self.policy.under_pressure() {
            Some(_) => 0,
            None => stop_watermarks(0, self.store.table().segments()).low + TURNS as u32 - 1,
        }
    }

    /// Returns all counters and the watermarks. Watermarks that depend on the items in memory are the ones found last,
    /// since the caller may hold a partition's lock.
    pub(crate) fn stats(&self) -> FlashStats {
        let Watermarks { low, high } = if self.regulator.follows_load() {
            self.watermarks()
        } else {
            self.regulator.last()
        };
        FlashStats {
            objects: self.index_use.objects.get(),
            low_watermark: low,
            high_watermark: high,
            evicted_age: self.evicted_age.load(Ordering::Relaxed),
            ..self.counters.read()
        }
    }

    /// Returns the present watermarks.
    pub(super) fn watermarks(&self) -> Watermarks {
        let segments = self.store.table().segments();
        let dirty = || {
            let dirty = self.memory().map(|memory| memory.dirty());
            dirty.map_or(0, |dirty| {
                dirty.segments(self.store.table().segment_bytes())
            })
        };
        self.regulator.watermarks(&Load {
            for_stop: if self.regulator.follows_load() {
                Watermarks::default()
            } else {
                stop_watermarks(self.for_stop.unwrap_or_else(dirty), segments)
            },
            free: self.store.pool().counts().free,
            channels: self.store.pool().channels_in_use(),
            segments: self.store.pool().segments_in_use(),
            opened: self.store.counters().segments_opened_for_writes.get(),
            service: self.drop_time.get() + self.store.blocks().erase_time(),
            reclaimers: self.reclaimers,
            buffers: self.store.buffers().count() as u32,
            is_first_fill: self.store.pool().is_first_fill(),
        })
    }

    /// Returns the number of free segments to keep at present; during a stop, the number that the checkpoint will fill.
    pub(crate) fn free_target(&self) -> u32 {
        if !self.is_stopping.load(Ordering::SeqCst) {
            // Writes need one segment more than are reserved for copies.
            return self.watermarks().high.max(self.reserved_segments() + 1);
        }
        let entries =
            self.store.appender().items_placed() + u64::from(self.store.table().segments());
        let segments =
            entries * CHECKPOINT_ENTRY_BYTES / u64::from(self.store.table().segment_bytes());
        segments as u32 + CHECKPOINT_SPARE_SEGMENTS
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

    /// Returns whether a sealed segment is to be written now.
    pub(crate) fn writes_now(&self) -> bool {
        if self.syncing.load(Ordering::SeqCst) > 0 {
            return true;
        }
        // A segment that stays in memory cannot be reclaimed.
        let may_wait = |_: &usize| {
            !self.is_stopping.load(Ordering::SeqCst)
                && self.store.pool().counts().free > self.reserved_segments()
                && self.store.pool().counts().free >= self.watermarks().low
        };
        let spare = self.spare_buffers.filter(may_wait);
        // Writes go on in proportion to the missing buffers, since all writers are woken alike.
        let are_missing = |spare: usize| {
            let missing = spare.saturating_sub(self.store.buffers().free_buffers());
            self.store.pool().counts().writing as usize * spare < missing * self.writers
        };
        self.works_in_background() && spare.is_none_or(are_missing)
    }

    /// With true, makes writers write every sealed segment, whatever the schedule says, until a matching call with
    /// false.
    pub(crate) fn writes_all(&self, yes: bool) {
        if yes {
            self.syncing.fetch_add(1, Ordering::SeqCst);
        } else {
            self.syncing.fetch_sub(1, Ordering::SeqCst);
        }
        self.store.pool().work().notify_all();
    }

    /// Writes the sealed segment whose turn it is. Returns false if none waits.
    pub(crate) async fn write_one(&self, residents: &dyn Residents) -> bool {
        let ahead = async || self.sync_deaths().await;
        let written = self.store.writer().write_next(ahead).await;
        self.note_written(residents, written).await
    }

    /// Handles the outcome of writing a sealed segment. Returns false if none waited.
    pub(super) async fn note_written(
        &self,
        residents: &dyn Residents,
        written: Option<Result<SegmentId, WriteFailure>>,
    ) -> bool {
        match written {
            Some(Ok(_)) => {}
            Some(Err(failure)) => self.give_up(residents, failure).await,
            None => return false,
        }
        self.progress.notify_all();
        true
    }

    /// Writes the items of the segments being filled to flash.
    pub(crate) async fn flush_filling(&self, which: Unflushed) -> Result<(), DeviceError> {
        let ahead = async || self.sync_deaths().await;
        self.store.flusher().flush_filling(which, ahead).await
    }

    /// Moves the items of a segment that could not be written to another segment, or forgets them.
    pub(super) async fn give_up(&self, residents: &dyn Residents, failure: WriteFailure) {
        let record = failure.record;
        // Parts of the segment may be on flash all the same; no start may find them.
        self.declare_segment_dead(&record);
        let of = |entry: &SummaryEntry| Resident::of(&record, entry);
        let is_moved = self.store.appender().move_elsewhere(
            &failure,
            |entry| residents.check(&of(entry), &mut |_| true) == Named::Kept,
            |entry, place| {
                if !residents.moved(&of(entry), place) {
                    self.displace(place);
                }
            },
        );
        let mut lost = 0;
        for entry in &failure.entries {
            let removed = residents.check(&of(entry), &mut |_| false) == Named::Removed;
            lost += u64::from(removed);
        }
        self.counters.items_lost.add(lost);
        tracing::warn!(
            segment = record.segment.0,
            items = record.items,
            lost,
            error = %failure.error,
            "a segment could not be written"
        );
        if self.store.writer().abandon(failure, is_moved).await {
            let segment = record.segment.0;
            self.journal.append(Record::Retired { segment });
        }
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
            tracing::warn!(%error, "what is to be written waits for the journal to be synced");
            failures += 1;
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
}

/// Returns watermarks that keep enough segments free for an orderly stop to write `for_stop` segments and the
/// checkpoint, but at most a quarter of the flash.
fn stop_watermarks(for_stop: u32, segments: u32) -> Watermarks {
    let spare = (segments / 64).clamp(2, 16);
    Watermarks {
        low: (spare / 2).max(2),
        high: for_stop.min(segments / 4).max(1) + spare,
    }
}

#[cfg(test)]
mod tests {
    use device::{Latency, MemoryDisk, MemoryJournal};
    use runtime::sim::Sim;

    use super::*;
    use crate::settings::{Dram, WriteSettings};
    use crate::store::tests::append;
    use crate::{Engine, EngineConfig, Opening};

    const WRITERS: usize = 6;
    const BUFFERS: usize = 16;
    /// Configured spare buffers. An eighth of all buffers is left to writes beside them.
    const SPARE_BUFFERS: usize = 7;
    const ALL_SPARE: usize = SPARE_BUFFERS + BUFFERS / 8;

    /// Opens an engine without background tasks, whose writes take a second.
    async fn open() -> Arc<Engine> {
        let latency = Latency {
            write: Duration::from_secs(1),
            ..Latency::default()
        };
        let config = EngineConfig {
            memory_bytes: 16 << 20,
            segment_bytes: Some(256 << 10),
            partition_bits: 1,
            max_value_bytes: 100_000,
            dram: Dram::WriteBuffers {
                spare_buffers: Some(SPARE_BUFFERS),
            },
            write_back: None,
            writing: WriteSettings {
                writers: WRITERS,
                buffers: BUFFERS,
                ..EngineConfig::default().writing
            },
            ..EngineConfig::default()
        };
        let journal = Arc::new(MemoryJournal::from_words(vec![0; 512 + 16 * 8192]));
        let disk = MemoryDisk::with_latency(64 << 20, latency);
        let opening = Opening::new(Arc::new(disk) as Arc<dyn device::Disk>, config);
        opening.open(move || Ok(journal)).await.unwrap()
    }

    #[test]
    fn segments_are_written_in_proportion_to_the_spare_buffers_that_are_missing() {
        Sim::new(1).block_on(async {
            let engine = open().await;
            let upkeep = &engine.tiers.flash.upkeep;
            let mut begun = Vec::new();
            for missing in 0..=ALL_SPARE {
                while upkeep.store.buffers().free_buffers() > ALL_SPARE - missing {
                    append(&upkeep.store, 1).expect("a buffer is free");
                }
                while upkeep.writes_now() && begun.len() < WRITERS {
                    let writing = upkeep.store.pool().counts().writing;
                    let engine = Arc::clone(&engine);
                    begun.push(runtime::spawn(async move {
                        let flash = &engine.tiers.flash;
                        flash.upkeep.write_one(flash.placement()).await
                    }));
                    while upkeep.store.pool().counts().writing == writing {
                        runtime::yield_now().await;
                    }
                }
                let expected = (missing * WRITERS).div_ceil(ALL_SPARE);
                assert_eq!(begun.len(), expected, "{missing} buffers are missing");
            }
        });
    }
}
