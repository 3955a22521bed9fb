//! Input of wear leveling: the erase counts of blocks, and the read counts of segments.
//!
//! The first erase of a block precedes its first program and is no wear of use: a block written once counts like a
//! block never written. If the device counts no erases, no erase counts as one of use.

use std::collections::HashSet;

use super::core::{SegmentStore, block};
use super::segment::{Segment, SegmentRecord};
use crate::counter::Count as _;
use crate::format::segment::SegmentId;
use crate::sync::atomic::Ordering;

/// Distribution of the erases over the segments in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wear {
    /// Erases of the segment with the fewest.
    pub least: u64,
    /// Erases of the segment with the most.
    pub most: u64,
    /// Average erases of a segment.
    pub mean: f64,
}

impl Wear {
    fn of(counts: Vec<u64>) -> Self {
        Self {
            least: counts.iter().min().copied().unwrap_or(0),
            most: counts.iter().max().copied().unwrap_or(0),
            mean: counts.iter().sum::<u64>() as f64 / counts.len().max(1) as f64,
        }
    }
}

/// Reads of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentReads {
    /// Reads of its items since it was opened, or since the start of this run.
    pub(crate) reads: u64,
    /// Average reads of a segment that is not free.
    pub(crate) average: u64,
    /// Whether at least as many segments as are in use have been opened since: the segment has had as long to be read
    /// as the others.
    pub(crate) is_settled: bool,
}

impl SegmentStore {
    /// Returns the number of segments that wear leveling waits for.
    pub fn worn_least(&self) -> usize {
        self.queues.lock().worn_least.len()
    }

    /// Takes a written segment that wear leveling wants to have erased.
    pub(crate) fn take_worn_least(&self) -> Option<SegmentRecord> {
        let mut queues = self.queues.lock();
        let segment = queues.take_worn_least(|segment, generation| {
            self.is_on_flash(segment) && self.sequence(segment) == generation
        })?;
        Some(self.record(segment))
    }

    /// Returns the distribution of the erases over the segments in use, as the device counts them.
    pub fn wear(&self) -> Wear {
        let retired: HashSet<SegmentId> = self.queues.lock().retired.iter().copied().collect();
        let in_use = (0..self.segments()).map(SegmentId);
        let counts = in_use
            .filter(|segment| !retired.contains(segment))
            .map(|segment| self.erase_count(segment));
        Wear::of(counts.collect())
    }

    pub(super) fn erase_count(&self, segment: SegmentId) -> u64 {
        self.flash.erase_count(block(segment))
    }

    /// Returns the erases of a segment's block caused by use: all but the first.
    fn erases_of_use(&self, segment: SegmentId) -> u64 {
        self.erase_count(segment).saturating_sub(1)
    }

    /// Returns the distribution of the erases of use over the segments in use, and the erases of use of each written
    /// segment.
    pub(crate) fn wear_of_use(&self) -> (Wear, Vec<(SegmentRecord, u64)>) {
        let queues = self.queues.lock();
        let retired: HashSet<SegmentId> = queues.retired.iter().copied().collect();
        let written: Vec<SegmentId> = queues.each_written().collect();
        drop(queues);
        let in_use = (0..self.segments()).map(SegmentId);
        let counts = in_use
            .filter(|segment| !retired.contains(segment))
            .map(|segment| self.erases_of_use(segment));
        let wear = Wear::of(counts.collect());
        let each = |segment| (self.record(segment), self.erases_of_use(segment));
        (wear, written.into_iter().map(each).collect())
    }

    /// Marks these generations of written segments to be erased, in this order. Replaces earlier marks.
    pub(crate) fn mark_worn_least(&self, segments: &[SegmentRecord]) {
        let marks = segments
            .iter()
            .map(|record| (record.segment, record.sequence));
        self.queues.lock().worn_least = marks.collect();
    }

    /// Returns the reads of a segment, if reads are counted. Looks at no other segment.
    pub(crate) fn reads_of(&self, record: &SegmentRecord) -> Option<SegmentReads> {
        if !self.counts_reads {
            return None;
        }
        let ended = self.reads_ended.get();
        let living = u64::from(self.segments_in_use().saturating_sub(self.free_segments()));
        let opened_before = record.sequence.saturating_sub(self.first_sequence);
        let opened_since = self
            .counters
            .segments_opened
            .get()
            .saturating_sub(opened_before);
        Some(SegmentReads {
            reads: u64::from(self.segment(record.segment).reads.load(Ordering::Relaxed)),
            average: self.reads_counted.sum().saturating_sub(ended) / living.max(1),
            is_settled: opened_since >= u64::from(self.segments_in_use()),
        })
    }

    /// Notes that an item of a segment is being read.
    pub(super) fn count_read(&self, segment: SegmentId) {
        if self.counts_reads {
            let state = self.segment(segment);
            state.reads.fetch_add(1, Ordering::Relaxed);
            self.reads_counted.add(1);
            state.last_read_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// Removes the reads of a generation that ends from the sum.
    pub(super) fn end_reads(&self, state: &Segment) {
        let reads = state.reads.swap(0, Ordering::Relaxed);
        self.reads_ended.add(u64::from(reads));
    }
}
