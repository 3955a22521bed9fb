//! [`FlashTier`]: the flash as requests and the memory tier see it, for any placement.
//!
//! ```text
//!   place ──> open segment of the item's stream ──> Placement::insert ──> the displaced copy is journalled
//!   invalidate, forget ──> noted while recovery runs ──> placement ──> the displaced copy is journalled
//!   background: writers, reclaimers, recovery │ drain, quiesce, checkpoint, dump
//! ```
//!
//! Every copy that an index displaces is journalled here, in the caller's hold of the partition's lock and so before
//! the request is answered: a placement cannot forget to do so.

mod background;
mod dump;
mod recover;

use std::sync::Arc;

use device::{DeviceError, Hurry, Journal as Log, LimitCounts, WriteLimit};
use futures_util::future::select;
use runtime::sync::Notify;

pub(crate) use background::background_tasks;
pub use dump::{DumpCursor, DumpItem};

use crate::counter::Count as _;
use crate::durability::RecoveryStats;
use crate::durability::checkpoint::{CheckpointInput, Checkpointer, Deaths, NotWritten};
use crate::durability::journal::{Journal, ring_chunks};
use crate::durability::recovery::Uncovered;
use crate::format::checkpoint::{Coverage, Head};
use crate::format::item::CHECKSUM_BYTES;
use crate::format::journal::{Record, chunk_words};
use crate::format::segment::{PAGE_BYTES, SummaryEntry, largest_item};
use crate::key::{HashSeed, KeyHash};
pub use crate::placement::BackgroundTask;
use crate::placement::{
    Collecting, DeadCopies, Description, Displaced, Event, Inserted, Look, Placement, Probe,
    SharedClock, Space, Superseded,
};
pub use crate::reclaim::FlashStats;
use crate::reclaim::{Entered, Named, Reclaimer, Resident, Upkeep, Writing};
use crate::store::{AppendItem, SavedCheckpoint, SegmentRecord, SegmentStore, Source};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Outcome of placing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The item is on flash, or will be.
    OnFlash,
    /// There is no space at present; this item and the items behind it wait for [`FlashTier::space`].
    NoSpace,
    /// The item is longer than a segment.
    NeverFits,
    /// The item is gone: the index is full, or no usable flash is left.
    Dropped,
}

/// Sealed segments with one second's writes divided by this may wait for a write limit, in addition to the segments
/// being written.
const WAITING_SHARE: u64 = 2;

/// Copies of a run header, and the bytes that each takes at most, but for the page that it may begin: for itself and for each of
/// its items.
const HEADERS: u32 = 2;
const HEADER_ROOM: u32 = PAGE_BYTES + 512;
const HEADER_ITEM_ROOM: u32 = 4;
/// Items of a run whatever the size of a segment, if there are as many.
const LEAST_AT_ONCE: u32 = 256;

/// Returns the most items of a run, such that its headers take no more than a quarter of a segment.
fn most_of_run(segment_bytes: u32) -> usize {
    let each = segment_bytes / 4 / HEADERS;
    (each.saturating_sub(HEADER_ROOM) / HEADER_ITEM_ROOM).max(LEAST_AT_ONCE) as usize
}

/// Memory in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that grow with the number of objects on flash.
    pub index_bytes: u64,
    /// Bytes that do not: buffers, the segment table, journal and checkpoints.
    pub fixed_bytes: u64,
}

/// The flash: segments, journal and the placement that indexes them. Shared by all threads.
pub(crate) struct FlashTier {
    pub(crate) upkeep: Arc<Upkeep>,
    pub(crate) writing: Arc<Writing>,
    reclaimer: Reclaimer,
    placement: Arc<dyn Placement>,
    /// Most items to place between two looks at the placement's pressure.
    placed_at_once: usize,
    /// Whether the longer items of a group are placed first.
    pub(crate) places_larger_first: bool,
    /// How items collect in memory before they are placed.
    pub(crate) collecting: Option<Collecting>,
    /// The CLOCK that memory may share with the index.
    pub(crate) clock: Arc<SharedClock>,
    checkpoint_wanted: Arc<Notify>,
    superseded: Arc<Superseded>,
    hash_seed: HashSeed,
    checkpointer: Checkpointer,
    /// The generation of the last flush whose items have been counted out.
    flushes_counted: AtomicU64,
    partition_bits: u32,
    /// The longest item body that can be placed, in bytes.
    pub(crate) largest_body: usize,
    fixed_bytes: u64,
    write_limit: Option<Arc<WriteLimit>>,
}

/// The placement of a flash tier, and the objects that it shares with the engine.
pub(crate) struct Indexed {
    pub(crate) placement: Arc<dyn Placement>,
    pub(crate) description: Description,
    pub(crate) collecting: Option<Collecting>,
    pub(crate) clock: Arc<SharedClock>,
    pub(crate) checkpoint_wanted: Arc<Notify>,
    pub(crate) superseded: Arc<Superseded>,
    pub(crate) hash_seed: HashSeed,
}

/// State of the cache that a checkpoint holds, as of its cut.
pub(crate) struct CheckpointCut {
    /// Clock, pending flush, cutoffs, and the coverage of the section.
    pub(crate) head: Head,
    /// Version above all versions given out so far.
    pub(crate) next_version: u64,
    /// Segments that recovery had still to read.
    pub(crate) uncovered: Vec<Uncovered>,
    /// First chunk of the journal that is not in the checkpoint; `None` if the journal has lost records.
    pub(crate) journal_end: Option<u64>,
}

/// Returns the bytes of memory of the flash tier that never change, with this store and this log: buffers, the segment
/// table, journal and checkpoints.
pub(crate) fn fixed_bytes(store: &SegmentStore, log: &dyn Log, partitions: u32) -> u64 {
    let ring_bytes = ring_chunks(log, partitions) * 8 * chunk_words(partitions) as u64;
    let for_checkpoints =
        crate::durability::checkpoint::memory_bytes(store.table().segments(), ring_bytes);
    store.memory_bytes() as u64 + Journal::memory_of(partitions) + for_checkpoints
}

impl FlashTier {
    pub(crate) fn new(
        reclaimer: Reclaimer,
        indexed: Indexed,
        partition_bits: u32,
        fixed_bytes: u64,
        write_limit: Option<Arc<WriteLimit>>,
    ) -> Self {
        let upkeep = Arc::clone(&reclaimer.upkeep);
        let (store, journal) = (Arc::clone(&upkeep.store), Arc::clone(&upkeep.journal));
        let most_at_once = match indexed.collecting {
            Some(_) => most_of_run(store.table().segment_bytes()),
            None => indexed.description.placed_at_once,
        };
        Self {
            largest_body: largest_item(store.table().segment_bytes()) as usize - CHECKSUM_BYTES,
            fixed_bytes,
            write_limit,
            checkpointer: Checkpointer::new(store, journal),
            upkeep,
            writing: Arc::clone(&reclaimer.writing),
            reclaimer,
            placement: indexed.placement,
            placed_at_once: most_at_once,
            places_larger_first: indexed.description.places_larger_first,
            collecting: indexed.collecting,
            clock: indexed.clock,
            checkpoint_wanted: indexed.checkpoint_wanted,
            superseded: indexed.superseded,
            hash_seed: indexed.hash_seed,
            flushes_counted: AtomicU64::new(0),
            partition_bits,
        }
    }

    pub(crate) fn store(&self) -> &SegmentStore {
        &self.upkeep.store
    }

    pub(crate) fn placement(&self) -> &dyn Placement {
        &*self.placement
    }

    /// Returns whether items collect in memory before they are placed.
    pub(crate) fn collects(&self) -> bool {
        self.collecting.is_some()
    }

    /// Returns the index's answer for a key.
    #[inline]
    pub(crate) fn probe(&self, hash: KeyHash, look: Look) -> Probe {
        if self.is_hidden() && !self.is_written(hash) {
            return Probe::Absent;
        }
        self.placement.probe(hash, look)
    }

    /// Returns whether no copy of an earlier run may be found yet: if versions alone decide which copy of a key counts, all
    /// copies have to be recovered first, unless recovery finds the newest ones first.
    fn is_hidden(&self) -> bool {
        let dead_copies = self.upkeep.dead_copies;
        !dead_copies.are_located()
            && !dead_copies.are_told_at_reads()
            && self.upkeep.recovery.is_running()
    }

    /// Returns whether this run has written the key, so that all copies that recovery finds are older and stay out of the
    /// index. False for an index that locates copies later: it may name older ones as well.
    #[cold]
    fn is_written(&self, hash: KeyHash) -> bool {
        let upkeep = &self.upkeep;
        let partition = hash.partition(self.partition_bits);
        let dead_below = || upkeep.recovery.superseded(partition).dead_below(hash);
        upkeep.dead_copies != DeadCopies::LocatedLater
            && dead_below().is_some_and(|version| upkeep.cutoffs.is_of_this_run(version))
    }

    /// Returns whether a request that displaces copies can go ahead. If not, it waits for [`space`](FlashTier::space).
    #[inline]
    pub(crate) fn may_displace(&self) -> bool {
        self.upkeep.journal.has_space() && self.placement.pressure().space < Space::Full
    }

    /// Returns whether a write limit holds writes back. A caller without space then does better to go on without it.
    pub(crate) fn is_held_back(&self) -> bool {
        self.write_limit
            .as_ref()
            .is_some_and(|limit| limit.holds_back())
    }

    /// Returns whether the sealed segments keep a write limit busy for a while. Further segments would only delay
    /// a checkpoint, which is written after them, and the requests that wait for journal space until then.
    fn has_enough_waiting(&self) -> bool {
        let Some(limit) = self
            .write_limit
            .as_ref()
            .filter(|_| self.upkeep.dead_copies.are_in_section())
        else {
            return false;
        };
        let segment_bytes = u64::from(self.store().table().segment_bytes());
        let most = limit.bytes_per_s() / WAITING_SHARE / segment_bytes;
        u64::from(self.store().pool().counts().sealed) > most && limit.holds_back()
    }

    /// Lets items go at the speed of the drive, as far as a write limit has space, until the result is dropped: for a
    /// checkpoint that is written after them.
    pub(crate) fn hurry(&self) -> Option<Hurry<'_>> {
        let is_after_items = self.upkeep.dead_copies.are_in_section();
        let limit = self.write_limit.as_ref().filter(|_| is_after_items)?;
        Some(limit.hurry())
    }

    /// Returns the limit on writes, if there is one, in bytes a second, and the counters of its waits.
    pub(crate) fn write_limit(&self) -> Option<(u64, LimitCounts)> {
        let limit = self.write_limit.as_ref()?;
        Some((limit.bytes_per_s(), limit.counts()))
    }

    /// Returns the event that is notified when a caller that found no space may find some.
    pub(crate) fn space(&self) -> &Notify {
        self.store().pool().space()
    }

    /// Wakes all callers that wait for [`space`](FlashTier::space), whether there is some or not.
    pub(crate) fn wake_stalled(&self) {
        self.upkeep.is_failing.notify_all();
        self.space().notify_all();
    }

    /// Announces that a caller has found no space and is going to wait for [`space`](FlashTier::space). If segments are
    /// written and reclaimed on demand, resolves once that has been done for this caller, or when the journal keeps
    /// failing.
    pub(crate) async fn ask_for_space(&self) {
        let is_failing = self.upkeep.is_failing.listener();
        if let Some(round) = self.upkeep.ask_for_round() {
            // The round is dropped if background tasks have taken over.
            select(round, is_failing).await;
        }
    }

    /// Places items, each under the lock of its partition, and reports the outcomes to `each`, in order. Items behind
    /// one for which there was no space are left out.
    ///
    /// `new` items outdate all other copies of their keys; other items did so when they were set.
    pub(crate) fn place(
        &self,
        items: &[AppendItem<'_>],
        new: bool,
        mut each: impl FnMut(usize, Placed),
    ) {
        let mut done = 0;
        while done < items.len() {
            let fitting = items[done..]
                .iter()
                .take(self.placed_at_once)
                .take_while(|item| item.item.header.body_bytes() <= self.largest_body)
                .count();
            if fitting == 0 {
                let item = &items[done];
                self.invalidate(item.hash, item.item.header.version.get());
                each(done, Placed::NeverFits);
                done += 1;
                continue;
            }
            let batch = &items[done..done + fitting];
            let placed = self.append(batch, new, |number, placed| each(done + number, placed));
            if placed < batch.len() {
                return each(done + placed, Placed::NoSpace);
            }
            done += placed;
        }
    }

    /// Appends items that fit a segment. Returns the number placed or dropped, from the first on.
    fn append(
        &self,
        batch: &[AppendItem<'_>],
        new: bool,
        mut each: impl FnMut(usize, Placed),
    ) -> usize {
        let upkeep = &self.upkeep;
        if upkeep.index_use.headroom() == 0 && self.store().pool().counts().written > 0 {
            // Reclaim makes space in the index as well as on flash.
            self.store().pool().work().notify_all();
            return 0;
        }
        let is_behind = self.placement.pressure().space >= Space::Behind;
        if is_behind || self.has_enough_waiting() {
            return 0;
        }
        let is_stopping = upkeep.is_stopping.load(Ordering::SeqCst);
        let locates_later = upkeep.dead_copies == DeadCopies::LocatedLater;
        if locates_later && !self.may_displace() && !is_stopping {
            // An entry that makes way for another is recorded. At a stop the last checkpoint records all of them.
            return 0;
        }
        let is_run = batch.iter().any(|item| !item.is_listed);
        let behind = match is_run {
            true => HEADERS * (HEADER_ROOM + batch.len() as u32 * HEADER_ITEM_ROOM),
            false => 0,
        };
        let mut outcomes = Vec::new();
        let mut number = 0;
        let mut appending = self.store().appender().begin();
        let placed = appending.append(batch, Source::Write, behind, |index, place| {
            let hash = batch[index].hash;
            let header = batch[index].item.header;
            let version = header.version.get();
            self.note_write(hash, version);
            let inserted = self.placement.insert(hash, version, place, header.clock());
            let (displaced, placed) = match inserted {
                Inserted::Yes(displaced) => (displaced, Placed::OnFlash),
                Inserted::Full(displaced) => {
                    upkeep.counters.index_full.add(1);
                    // Neither this copy nor an older one may be found by a later start.
                    if upkeep.dead_copies.are_located() {
                        upkeep.displace(place);
                    } else {
                        // Recorded by key and version: a copy dead by its place would still supersede the key's record.
                        self.store()
                            .table()
                            .count_out(place.segment, place.generation);
                        self.journal_dead_key(hash, version + 1);
                        if locates_later {
                            // The key's record goes once its copies have been located, but this copy never is.
                            upkeep.declare_dead(place);
                        }
                    }
                    (displaced, Placed::Dropped)
                }
            };
            if new || displaced != Displaced::Unknown {
                self.journal_displaced(hash, version, displaced);
            }
            match is_run {
                true => outcomes.push(placed),
                false => each(index, placed),
            }
            number = index + 1;
        });
        debug_assert_eq!(
            placed, number,
            "the store reports each item that it appends"
        );
        let mut has_header = !is_run;
        if let Some(last) = batch[..placed].last() {
            let mut append_header = |header: AppendItem<'_>| {
                let mut first = None;
                let copies = [header; HEADERS as usize];
                appending.append(&copies, Source::Write, 0, |_, place| {
                    first.get_or_insert(place);
                    // It is no item of the cache.
                    let table = self.store().table();
                    table.count_out(place.segment, place.generation);
                });
                has_header = first.is_some();
                first
            };
            self.placement.note(Event::Placed {
                last: last.hash,
                append_header: is_run.then_some(&mut append_header),
            });
        }
        drop(appending);
        for (index, mut outcome) in outcomes.into_iter().enumerate() {
            if !has_header && outcome == Placed::OnFlash {
                // No start would find the item.
                upkeep.counters.items_lost.add(1);
                outcome = Placed::Dropped;
            }
            each(index, outcome);
        }
        if placed == batch.len() || !self.store().pool().is_exhausted() {
            return placed;
        }
        // Waiting would never end: a cache without usable flash drops the items that memory cannot hold.
        for (index, item) in batch.iter().enumerate().skip(placed) {
            self.invalidate(item.hash, item.item.header.version.get());
            upkeep.counters.items_lost.add(1);
            each(index, Placed::Dropped);
        }
        batch.len()
    }

    /// Makes the copies of a key on flash with versions below `version` outdated. Returns whether there may be any.
    pub(crate) fn invalidate(&self, hash: KeyHash, version: u64) -> bool {
        self.note_write(hash, version);
        let displaced = self.placement.invalidate(hash, version);
        self.journal_displaced(hash, version, displaced);
        displaced != Displaced::None
    }

    /// Removes the entry of a key, which is wrong or dead, as are copies with versions below `version`.
    pub(crate) fn forget(&self, hash: KeyHash, probe: Probe, version: u64) {
        match probe {
            Probe::Absent => {}
            Probe::At(located) => {
                let place = located.place;
                let item = Resident {
                    hash,
                    version,
                    place,
                };
                if self.placement.check(&item, &mut |_| false) == Named::Removed {
                    self.journal_displaced(hash, version, Displaced::Known(place));
                }
            }
            Probe::Perhaps => {
                self.invalidate(hash, version);
            }
        }
    }

    /// Notes a write during recovery, when the copies that it displaces may not be known yet: declares all older copies
    /// of the key dead. Called before the index changes; otherwise recovery could put an older copy into it after the
    /// write.
    fn note_write(&self, hash: KeyHash, version: u64) {
        if self.upkeep.dead_copies.are_told_at_reads() {
            // The placement compares versions whenever it finds a copy.
            return;
        }
        let partition = hash.partition(self.partition_bits);
        if self.upkeep.recovery.note_write(partition, hash, version) {
            self.journal_dead_key(hash, version);
        }
    }

    fn journal_displaced(&self, hash: KeyHash, version: u64, displaced: Displaced) {
        match displaced {
            Displaced::None => {}
            Displaced::Known(place) => {
                self.upkeep.displace(place);
                if !self.upkeep.dead_copies.are_located() {
                    // There may be further copies.
                    self.journal_dead_key(hash, version);
                }
            }
            Displaced::Unknown => self.journal_dead_key(hash, version),
        }
    }

    fn journal_dead_key(&self, hash: KeyHash, version: u64) {
        let hash = hash.0;
        self.upkeep
            .journal
            .append(Record::KeyDead { hash, version });
    }

    /// Returns whether the index needs a checkpoint, because that would free a resource or much has changed.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.placement.pressure().wants_checkpoint
    }

    /// Resolves when the index begins to need a checkpoint.
    pub(crate) fn checkpoint_wanted(&self) -> impl Future<Output = ()> + use<> {
        self.checkpoint_wanted.listener()
    }

    /// Calls `cut`, which ends the contents of a checkpoint, and returns its result. If the index is part of the
    /// checkpoint, also returns the items that the index has by then, and the segments that a recovery still has to
    /// read.
    pub(crate) fn cut<T>(&self, cut: impl FnOnce() -> T) -> (T, Coverage, Vec<Uncovered>) {
        if !self.upkeep.dead_copies.are_in_section() {
            return (cut(), Coverage::default(), Vec::new());
        }
        // Taken before the cut: a segment recovered in between is read once more.
        let uncovered = self.upkeep.recovery.uncovered();
        let (cut, mut covered) = self.store().appender().appended_before(cut);
        let partly = |left: &Uncovered| (left.record.segment, left.covered_items);
        covered.partly.extend(uncovered.iter().map(partly));
        (cut, covered, uncovered)
    }

    /// Writes a checkpoint of the dead items. It gets them from the index section, if the index is part of the
    /// checkpoint; else from the `last` checkpoint and the journal's chunks before the end of the `cut`; else, if the
    /// cut has no such end or the last checkpoint cannot be read, from the index. `is_last` marks the last checkpoint of
    /// a run. Returns the checkpoint and its bytes on flash.
    pub(crate) async fn checkpoint(
        &self,
        cut: CheckpointCut,
        last: Option<&SavedCheckpoint>,
        is_last: bool,
    ) -> Option<(SavedCheckpoint, u64)> {
        let (live, _) = self.store().appender().live_segments();
        let is_named = |record: &SegmentRecord, entry: &SummaryEntry| {
            let item = Resident::of(record, entry);
            self.upkeep.dead_copies.are_told_at_reads()
                || matches!(self.placement.entry(&item), Entered::Yes(entry) if entry.is_own)
        };
        let by_index = Deaths::Indexed(&is_named);
        let deaths = match cut.journal_end {
            _ if self.upkeep.dead_copies.are_in_section() => Deaths::InSection(&cut.uncovered),
            Some(end) => Deaths::Recorded { last, end },
            None => by_index,
        };
        let mut input = CheckpointInput {
            head: cut.head,
            next_version: cut.next_version,
            deaths,
            section: self.placement.section(&live, is_last).await?,
            dead_copies: self.upkeep.dead_copies,
            recovery: &self.upkeep.recovery,
            outdated: &|each| self.placement.note(Event::DeadKeysWanted(each)),
            superseded: &self.superseded,
        };
        let mut written = self.checkpointer.write(&input).await;
        // Before recovery has ended the index does not name every live item.
        if written == Err(NotWritten::Unreadable) && !self.upkeep.recovery.is_running() {
            input.deaths = by_index;
            written = self.checkpointer.write(&input).await;
        }
        let written = written.ok()?;
        for record in &written.lost {
            // Otherwise the segment has been reclaimed since.
            if let Some(_pin) = self.store().table().pin(record.segment, record.sequence) {
                self.lose_segment(record);
            }
        }
        Some((written.saved, written.flash_bytes))
    }

    /// Counts all items out that the flush of this generation has made dead. Only items that come later are counted.
    pub(crate) fn count_flush(&self, generation: u64) {
        let last = self
            .flushes_counted
            .fetch_max(generation, Ordering::Relaxed);
        if last < generation {
            self.store().table().count_all_out();
        }
    }

    /// Makes all written segments durable, except segments in doubt.
    pub(crate) async fn sync(&self) -> Result<(), DeviceError> {
        self.store().syncs().sync().await?;
        self.forget_superseded();
        Ok(())
    }

    /// Writes the segments again that an earlier sync may have lost, then does the same as [`sync`](Self::sync).
    pub(crate) async fn sync_all(&self) -> Result<(), DeviceError> {
        let lose = |record: &SegmentRecord| self.lose_segment(record);
        self.store().flusher().sync_all(&lose).await?;
        self.forget_superseded();
        Ok(())
    }

    /// Returns the bytes of memory of superseded keys.
    fn superseded_bytes(&self) -> u64 {
        self.superseded.memory_bytes()
    }

    /// Forgets superseded keys whose copies are durable, or all of whose older copies are gone.
    fn forget_superseded(&self) {
        if self.superseded_bytes() == 0 {
            return;
        }
        let durable = self.checkpointer.durable_segments();
        let before = self.store().syncs().durable_before();
        let (live, next_sequence) = self.store().appender().live_segments();
        let oldest = live.iter().map(|record| record.sequence).min();
        let oldest = oldest.unwrap_or(next_sequence);
        self.superseded.forget(|sequence| {
            sequence < oldest || sequence < before && durable.contains(&sequence)
        });
    }

    /// Gives up a segment that can no longer be read: the index stops naming it, and no start will find it.
    fn lose_segment(&self, record: &SegmentRecord) {
        self.upkeep.declare_segment_dead(record);
        let lost = self.forget_segment(record);
        self.upkeep.counters.items_lost.add(lost);
        tracing::warn!(
            segment = record.segment.0,
            items = lost,
            "a segment cannot be read; its items are lost"
        );
    }

    /// Removes the items of a segment from the index. Returns their number.
    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let forgotten = self.placement.forget_segment(record);
        for _ in 0..forgotten {
            self.store()
                .table()
                .count_out(record.segment, record.sequence);
        }
        forgotten
    }

    /// Returns the progress of recovery.
    pub(crate) fn recovery(&self) -> RecoveryStats {
        self.upkeep.recovery.stats()
    }

    /// Resolves once all live items of the last run are found again.
    pub(crate) async fn recovered(&self) {
        self.upkeep.recovery.wait().await;
    }

    /// Returns the memory in use.
    pub(crate) fn memory(&self) -> MemoryUse {
        let index_use = &self.upkeep.index_use;
        let index_bytes =
            index_use.bytes.get() + index_use.recovery_bytes.get() + self.superseded.memory_bytes();
        MemoryUse {
            index_bytes: index_bytes + self.upkeep.recovery.memory_bytes(),
            fixed_bytes: self.fixed_bytes,
        }
    }
}
