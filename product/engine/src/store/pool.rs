//! [`SegmentPool`]: the free, sealed, written and retired segments, and who takes the next one.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use device::Geometry;
use runtime::sync::Notify;

use super::blocks::Blocks;
use super::counters::StoreCounters;
use super::layout::Source;
use super::priority::Priority;
use super::queues::{Queues, Worn};
use super::segment::SegmentRecord;
use super::table::{SegmentTable, now_ms};
use super::wear::{SegmentReads, Wear};
use crate::counter::Count as _;
use crate::format::segment::SegmentId;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Rule that chooses the next written segment to reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The oldest segment.
    #[default]
    Oldest,
    /// The segment with the fewest valid bytes; among equals, the oldest.
    FewestValid,
    /// The segment whose last read is the longest ago.
    LeastRecentlyRead,
    /// The oldest segment of the lowest priority that has any.
    LowestPriority,
}

/// Number of segments in each state, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCounts {
    /// Segments that can be opened.
    pub free: u32,
    /// Sealed segments that wait to be written.
    pub sealed: u32,
    /// Sealed segments that are being written.
    pub writing: u32,
    /// Written segments that are not being reclaimed.
    pub written: u32,
    /// Segments being reclaimed. Their copies may not be on flash yet.
    pub reclaiming: u32,
}

/// The queues of the segments, and the signals given when they change.
///
/// A segment is in one queue, or has been taken from it by the one caller that fills, writes or reclaims it or writes a
/// checkpoint to it; that caller puts it into the next queue.
pub struct SegmentPool {
    queues: Mutex<Queues>,
    /// Free segments that only copies may open.
    reserved: AtomicUsize,
    /// Checkpoints that wait for a free segment.
    waiting_checkpoints: AtomicUsize,
    /// First sequence number of this run.
    first_sequence: u64,
    space: Notify,
    work: Notify,
    table: Arc<SegmentTable>,
    blocks: Arc<Blocks>,
    counters: Arc<StoreCounters>,
}

/// Counts one waiting checkpoint as long as this value exists, also if the task that holds it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SegmentPool {
    /// Returns a pool in which all segments are free, except those on bad blocks.
    pub(super) fn new(
        table: Arc<SegmentTable>,
        blocks: Arc<Blocks>,
        counters: Arc<StoreCounters>,
        first_sequence: u64,
        priorities: u8,
    ) -> Self {
        let geometry = blocks.flash().geometry();
        let (retired, free): (Vec<_>, Vec<_>) = (0..table.segments())
            .map(SegmentId)
            .partition(|&segment| blocks.is_bad(segment));
        counters.segments_retired.add(retired.len() as u64);
        let mut queues = Queues::new(&geometry, priorities);
        queues.retired = retired;
        for segment in round_robin(free, &geometry) {
            queues.push_free(segment, blocks.erase_count(segment));
        }
        Self {
            queues: Mutex::new(queues),
            reserved: AtomicUsize::new(0),
            waiting_checkpoints: AtomicUsize::new(0),
            first_sequence,
            space: Notify::new(),
            work: Notify::new(),
            table,
            blocks,
            counters,
        }
    }

    /// Returns the number of segments in each state.
    pub fn counts(&self) -> PoolCounts {
        let queues = self.queues.lock();
        PoolCounts {
            free: queues.free as u32,
            sealed: queues.sealed.len() as u32,
            writing: queues.writing as u32,
            written: queues.written as u32,
            reclaiming: queues.reclaiming as u32,
        }
    }

    /// Returns whether the cache was empty when this run began and nothing has been reclaimed since.
    pub fn is_first_fill(&self) -> bool {
        self.queues.lock().is_first_fill
    }

    /// Returns the number of channels that have a segment to fill or to reclaim, one at least.
    pub(crate) fn channels_in_use(&self) -> u32 {
        self.queues.lock().channels_in_use().max(1) as u32
    }

    /// Returns whether every segment is retired or belongs to a checkpoint: there is no space, and will be none.
    pub fn is_exhausted(&self) -> bool {
        self.queues.lock().channels_in_use() == 0
    }

    /// Returns the number of segments that are not retired.
    pub fn segments_in_use(&self) -> u32 {
        let retired = self.counters.segments_retired.get() as u32;
        self.table.segments().saturating_sub(retired)
    }

    /// Returns the retired segments.
    pub fn retired(&self) -> Vec<SegmentId> {
        self.queues.lock().retired.clone()
    }

    /// Returns the signal that is given whenever an append that found no space may find some.
    pub fn space(&self) -> &Notify {
        &self.space
    }

    /// Returns the signal that is given whenever there is a segment to write, or fewer segments are free than before.
    pub fn work(&self) -> &Notify {
        &self.work
    }

    /// Returns every written segment, oldest first.
    pub fn written(&self) -> Vec<SegmentRecord> {
        let queues = self.queues.lock();
        let record = |segment| self.table.record(segment);
        let mut records: Vec<SegmentRecord> = queues.each_written().map(record).collect();
        drop(queues);
        records.sort_by_key(|record| record.sequence);
        records
    }

    /// Returns the average of the valid bytes of the written segments.
    pub(crate) fn average_valid_bytes(&self) -> u64 {
        let queues = self.queues.lock();
        let valid = queues
            .each_written()
            .map(|segment| self.table.valid_bytes(segment));
        valid.sum::<u64>() / (queues.written as u64).max(1)
    }

    /// Returns the number of free segments beyond those reserved from items of this source; `None` when fewer are free
    /// than are reserved.
    pub(super) fn beyond_reserved(&self, source: Source) -> Option<usize> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        if source != Source::Write || reserved == 0 {
            return Some(usize::MAX);
        }
        let queues = self.queues.lock();
        if queues.is_still() {
            // If there is nothing to reclaim, no copies will come that need reserved segments.
            return Some(usize::MAX);
        }
        queues.free.checked_sub(reserved)
    }

    /// Reserves free segments for copies made by reclaim.
    pub(crate) fn reserve_segments(&self, segments: u32) {
        self.reserved.store(segments as usize, Ordering::Relaxed);
        self.space.notify_all();
    }

    /// Returns whether no segment can be opened, and none becomes free unless a segment being filled is sealed.
    pub(super) fn has_nothing_left(&self) -> bool {
        self.queues.lock().has_nothing_left()
    }

    /// Takes a free segment to open.
    pub(super) fn pop_free(&self, which: Worn) -> Option<SegmentId> {
        let load = |channel: u32| self.blocks.flash().channel_load(channel);
        self.queues.lock().pop_free(which, load)
    }

    /// Takes a free segment, once there is one; `None` if none will become free.
    pub(super) async fn next_free(&self) -> Option<SegmentId> {
        loop {
            let space = self.space.listener();
            let free = self.pop_free(Worn::Least);
            let _waiting = free
                .is_none()
                .then(|| Waiting::begin(&self.waiting_checkpoints));
            // Reclaim may have work to do: one free segment less is left, or none.
            self.work.notify_all();
            if free.is_some() {
                return free;
            }
            if self.queues.lock().is_still() {
                return None;
            }
            space.await;
        }
    }

    /// Forgets a free segment that was taken, because it is written with a checkpoint and not with items.
    pub(super) fn forget_opened(&self, segment: SegmentId) {
        self.queues.lock().forget_opened(segment);
    }

    /// Returns whether a checkpoint waits for a free segment.
    pub(crate) fn is_checkpoint_waiting(&self) -> bool {
        self.waiting_checkpoints.load(Ordering::SeqCst) > 0
    }

    /// Adds a sealed segment that waits to be written, with its buffer.
    pub(super) fn push_sealed(&self, segment: SegmentId, buffer: usize) {
        self.queues.lock().push_sealed(segment, buffer);
    }

    /// Takes a sealed segment to write it: the oldest of the least loaded channel.
    pub(super) fn pop_sealed(&self) -> Option<(SegmentId, usize)> {
        self.queues.lock().pop_sealed()
    }

    /// Takes the first of these sealed segments that still waits, to write it.
    pub(super) fn take_sealed(
        &self,
        sealed: Vec<(SegmentId, usize)>,
    ) -> Option<(SegmentId, usize)> {
        let mut queues = self.queues.lock();
        let mut sealed = sealed.into_iter();
        sealed.find(|&(segment, _)| queues.take_sealed(segment))
    }

    /// Puts back a sealed segment that has been written but stays in its buffer.
    pub(super) fn put_back_sealed(&self, segment: SegmentId, buffer: usize) {
        self.queues.lock().put_back_sealed(segment, buffer);
    }

    /// Adds a segment that has been written, at the head of its priority.
    pub(super) fn push_written(&self, segment: SegmentId) {
        let mut queues = self.queues.lock();
        queues.push_written(segment);
        let moved = |moved, to| self.table.set_priority(moved, to);
        let priority = self.table.priority(segment);
        queues.priorities.enter(segment, priority, moved);
    }

    /// Takes back a segment whose write failed: retires or frees it.
    pub(super) fn end_failed_write(&self, segment: SegmentId, is_retired: bool) {
        let mut queues = self.queues.lock();
        queues.end_write(segment);
        if is_retired {
            self.retire(&mut queues, segment);
        } else {
            self.push_free(&mut queues, segment);
        }
        drop(queues);
        self.space.notify_all();
    }

    /// Takes a written segment with at most `max_valid` valid bytes out of its queue, to reclaim it. By fewest valid
    /// bytes and by last read, only one channel is searched: the one with the fewest free segments.
    pub(crate) fn take_victim(&self, victim: Victim, max_valid: u64) -> Option<SegmentRecord> {
        let now = now_ms();
        let may = |segment| {
            self.table.is_on_flash(segment) && self.table.valid_bytes(segment) <= max_valid
        };
        let mut queues = self.queues.lock();
        let segment = match victim {
            Victim::Oldest => queues.take_least(1, |segment| {
                may(segment).then(|| self.table.sequence(segment))
            }),
            Victim::FewestValid => queues
                .take_from_channel(|segment| may(segment).then(|| self.table.valid_bytes(segment))),
            Victim::LeastRecentlyRead => queues.take_from_channel(|segment| {
                let idle_ms = self.table.idle_ms(segment, now);
                may(segment).then_some(Reverse(idle_ms))
            }),
            Victim::LowestPriority => queues.take_lowest(may),
        }?;
        Some(self.table.record(segment))
    }

    /// Takes the written segment with the lowest sequence number, if that is below `bound`.
    pub(super) fn take_oldest(&self, bound: Option<u64>) -> Option<SegmentId> {
        self.queues.lock().take_least(usize::MAX, |segment| {
            let sequence = self.table.sequence(segment);
            let is_next = bound.is_none_or(|bound| sequence < bound);
            (is_next && self.table.is_on_flash(segment)).then_some(sequence)
        })
    }

    /// Frees a segment taken by [`take_victim`](Self::take_victim) that no index names any more, once its last
    /// reader has left.
    pub(crate) async fn release(&self, segment: SegmentId) {
        self.table.end_generation(segment).await;
        let mut queues = self.queues.lock();
        queues.end_reclaim(segment);
        self.push_free(&mut queues, segment);
        drop(queues);
        self.space.notify_all();
    }

    /// Returns the number of segments that wear leveling waits for.
    pub fn worn_least(&self) -> usize {
        self.queues.lock().worn_least.len()
    }

    /// Marks these generations of written segments to be erased, in this order. Replaces earlier marks.
    pub(crate) fn mark_worn_least(&self, segments: &[SegmentRecord]) {
        let marks = segments
            .iter()
            .map(|record| (record.segment, record.sequence));
        self.queues.lock().worn_least = marks.collect();
    }

    /// Takes a written segment that wear leveling wants to have erased.
    pub(crate) fn take_worn_least(&self) -> Option<SegmentRecord> {
        let mut queues = self.queues.lock();
        let segment = queues.take_worn_least(|segment, generation| {
            self.table.is_on_flash(segment) && self.table.sequence(segment) == generation
        })?;
        Some(self.table.record(segment))
    }

    /// Returns the distribution of the erases over the segments in use, as the device counts them.
    pub fn wear(&self) -> Wear {
        let retired: HashSet<SegmentId> = self.queues.lock().retired.iter().copied().collect();
        let in_use = (0..self.table.segments()).map(SegmentId);
        let counts = in_use
            .filter(|segment| !retired.contains(segment))
            .map(|segment| self.blocks.erase_count(segment));
        Wear::of(counts.collect())
    }

    /// Returns the distribution of the erases of use over the segments in use, and the erases of use of each written
    /// segment.
    pub(crate) fn wear_of_use(&self) -> (Wear, Vec<(SegmentRecord, u64)>) {
        let queues = self.queues.lock();
        let retired: HashSet<SegmentId> = queues.retired.iter().copied().collect();
        let written: Vec<SegmentId> = queues.each_written().collect();
        drop(queues);
        let in_use = (0..self.table.segments()).map(SegmentId);
        let counts = in_use
            .filter(|segment| !retired.contains(segment))
            .map(|segment| self.blocks.erases_of_use(segment));
        let wear = Wear::of(counts.collect());
        let each = |segment| {
            (
                self.table.record(segment),
                self.blocks.erases_of_use(segment),
            )
        };
        (wear, written.into_iter().map(each).collect())
    }

    /// Returns the reads of a segment, if reads are counted. Looks at no other segment.
    pub(crate) fn reads_of(&self, record: &SegmentRecord) -> Option<SegmentReads> {
        let ended = self.table.reads_ended()?;
        let living = u64::from(self.segments_in_use().saturating_sub(self.counts().free));
        let opened_before = record.sequence.saturating_sub(self.first_sequence);
        let opened_since = self
            .counters
            .segments_opened
            .get()
            .saturating_sub(opened_before);
        Some(SegmentReads {
            reads: self.table.reads(record.segment),
            average: self.table.reads_counted().saturating_sub(ended) / living.max(1),
            is_settled: opened_since >= u64::from(self.segments_in_use()),
        })
    }

    /// Takes over the segments of an earlier run: the live ones, oldest first, those of its checkpoint, and the retired
    /// ones.
    pub(crate) fn adopt(
        &self,
        living: &[SegmentRecord],
        checkpoint: &[SegmentId],
        retired: impl Iterator<Item = SegmentId>,
    ) {
        let mut taken: HashSet<SegmentId> = checkpoint.iter().copied().collect();
        let mut queues = self.queues.lock();
        taken.extend(&queues.retired);
        for segment in retired {
            if segment.0 < self.table.segments() && taken.insert(segment) {
                self.retire(&mut queues, segment);
            }
        }
        for record in living {
            if taken.insert(record.segment) {
                self.table.adopt(record);
                queues.adopt_written(record.segment);
                queues.is_first_fill = false;
                queues
                    .priorities
                    .enter(record.segment, Priority::LOWEST, |_, _| ());
            }
        }
        queues.retain_free(|segment| !taken.contains(&segment));
    }

    /// Frees the segments of a superseded checkpoint; those on bad blocks are retired instead. Returns whether there
    /// were any on bad blocks.
    pub(crate) fn free_checkpoint(&self, segments: &[SegmentId]) -> bool {
        let mut has_bad = false;
        let mut queues = self.queues.lock();
        for &segment in segments {
            if self.blocks.is_bad(segment) {
                self.retire(&mut queues, segment);
                has_bad = true;
            } else {
                self.push_free(&mut queues, segment);
            }
        }
        drop(queues);
        self.space.notify_all();
        self.work.notify_all();
        has_bad
    }

    /// Adds a segment that can be opened.
    fn push_free(&self, queues: &mut Queues, segment: SegmentId) {
        queues.push_free(segment, self.blocks.erase_count(segment));
    }

    /// Adds a segment to those that are not used again.
    fn retire(&self, queues: &mut Queues, segment: SegmentId) {
        queues.retired.push(segment);
        self.counters.segments_retired.add(1);
    }
}

/// Sorts segments so that neighbours lie on different channels, then on different LUNs.
fn round_robin(mut free: Vec<SegmentId>, geometry: &Geometry) -> Vec<SegmentId> {
    free.sort_by_key(|segment| {
        let lun = segment.0 / geometry.blocks_per_lun;
        let block = segment.0 % geometry.blocks_per_lun;
        let (channel, lun) = (
            lun / geometry.luns_per_channel,
            lun % geometry.luns_per_channel,
        );
        (block, lun, channel)
    });
    free
}
