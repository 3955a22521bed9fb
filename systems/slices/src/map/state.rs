//! What is in memory of a map: segments of records that have not reached a drive, and which of them has the newest change of a key.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use device::{AlignedBuf, PAGE_BYTES};
use format::slices_map::{Record, RecordAddress};

use crate::error::SliceError;
use crate::map::log::SLOTS;

/// A segment of records.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) bytes: AlignedBuf,
    /// Records end here.
    pub(super) len: usize,
    /// So far they are on the drive, whole pages.
    pub(super) stored: usize,
    /// Where each record begins that is not.
    pub(super) starts: VecDeque<usize>,
}

impl Segment {
    pub(super) fn new(number: u64, bytes: AlignedBuf, from: usize) -> Self {
        Self {
            number,
            bytes,
            len: from,
            stored: from,
            starts: VecDeque::new(),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.starts.capacity() * size_of::<usize>()) as u64
    }

    /// The pages that are not on the drive.
    fn unstored(&self) -> Range<usize> {
        self.stored..self.len.next_multiple_of(PAGE_BYTES)
    }
}

/// Under the lock of the map.
pub(super) struct State {
    /// The oldest first; the last one takes records. Never empty.
    pub(super) segments: VecDeque<Segment>,
    /// Where the newest record in memory of each key lies, by its hash, until the table has it.
    pub(super) pending: HashMap<u64, u64>,
    /// Records in front of it are to be written, also where their segment is not full.
    pub(super) wanted: u64,
    /// All records in front of it are on the drives, durably, and the table has their entries.
    pub(super) stored: u64,
    /// The same, and a power cut takes nothing of it.
    pub(super) synced: u64,
    /// A start begins here, or later: the end that a power cut leaves in the log.
    pub(super) durable_end: u64,
    /// There is a task that writes.
    pub(super) is_writing: bool,
    /// Why that has failed last, until it succeeds.
    pub(super) failing: Option<SliceError>,
}

/// Whether a record has found its place.
pub(super) enum Append {
    At(RecordAddress),
    /// The same, in a new segment: the one before it can be written.
    AtNew(RecordAddress),
    /// So many segments are in memory that one has to be written first.
    Full,
}

/// Pages of a segment that are to be written, with the records in them.
pub(super) struct Unstored {
    pub(super) segment: u64,
    /// Which bytes of the segment they are.
    pub(super) range: Range<usize>,
    /// None where all have been written, and the segment has to go.
    pub(super) pages: Option<Arc<AlignedBuf>>,
    /// Where records begin in the pages.
    pub(super) starts: Vec<usize>,
    /// The segment takes no more.
    pub(super) is_full: bool,
}

impl State {
    /// Of a map whose records end at byte `from` of a segment, and whose log says that they end at `synced` at least.
    pub(super) fn new((number, from): (u64, usize), segment_bytes: usize, synced: u64) -> Self {
        let stored = number * segment_bytes as u64 + from as u64;
        let bytes = AlignedBuf::new(segment_bytes);
        Self {
            segments: VecDeque::from([Segment::new(number, bytes, from)]),
            pending: HashMap::new(),
            wanted: 0,
            stored,
            synced,
            durable_end: 0,
            is_writing: false,
            failing: None,
        }
    }

    /// The segment that takes records.
    pub(super) fn open(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("one takes records")
    }

    pub(super) fn newest_segment(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    /// The position behind the last record.
    pub(super) fn end(&self) -> u64 {
        self.segments.back().map_or(0, |open| {
            open.number * open.bytes.len() as u64 + open.len as u64
        })
    }

    /// Finds the place of a record of so many bytes.
    pub(super) fn place(&mut self, bytes: usize) -> Append {
        let open = self.open();
        let (number, segment_bytes) = (open.number, open.bytes.len());
        let at = |number: u64, within: usize| RecordAddress {
            position: number * segment_bytes as u64 + within as u64,
            bytes,
        };
        if open.len + bytes <= segment_bytes {
            return Append::At(at(number, open.len));
        }
        if self.segments.len() == SLOTS {
            return Append::Full;
        }
        let next = Segment::new(number + 1, AlignedBuf::new(segment_bytes), 0);
        self.segments.push_back(next);
        Append::AtNew(at(number + 1, 0))
    }

    /// A record in memory.
    pub(super) fn record(&self, instance: u64, position: u64) -> Option<Record<'_>> {
        let segment_bytes = self.segments.front()?.bytes.len() as u64;
        let number = position / segment_bytes;
        let segment = self.segments.iter().find(|of| of.number == number)?;
        let bytes = &segment.bytes[(position % segment_bytes) as usize..segment.len];
        Record::decode(instance, position, bytes).ok()
    }

    /// Whether something is to be written.
    pub(super) fn has_unstored(&self) -> bool {
        self.segments.len() > 1 || self.wanted > self.stored
    }

    /// What is to be written next: a full segment, or what there is of one that is wanted. Records that come later begin on
    /// another page.
    pub(super) fn next_unstored(&mut self) -> Option<Unstored> {
        if !self.has_unstored() {
            return None;
        }
        let is_full = self.segments.len() > 1;
        let segment = self.segments.front_mut()?;
        let range = segment.unstored();
        segment.len = range.end;
        let copy = || {
            let mut pages = AlignedBuf::new(range.len());
            pages.copy_from_slice(&segment.bytes[range.clone()]);
            Arc::new(pages)
        };
        Some(Unstored {
            segment: segment.number,
            pages: (!range.is_empty()).then(copy),
            starts: segment.starts.iter().map(|at| at - range.start).collect(),
            is_full,
            range,
        })
    }

    /// What was to be written is on the drive, durably, and the table has its entries.
    pub(super) fn store(&mut self, written: &Unstored, hashes: impl Iterator<Item = (u64, u64)>) {
        for (hash, position) in hashes {
            if self.pending.get(&hash) == Some(&position) {
                self.pending.remove(&hash);
            }
        }
        let Some(segment) = self.segments.front_mut() else {
            return;
        };
        let segment_bytes = segment.bytes.len();
        segment.stored = written.range.end;
        segment.starts.drain(..written.starts.len());
        self.stored = segment.number * segment_bytes as u64 + segment.stored as u64;
        if written.is_full {
            self.stored = (segment.number + 1) * segment_bytes as u64;
            self.segments.pop_front();
        }
    }
}
