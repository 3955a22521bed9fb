//! The memory of a map: segments of records that have not reached a drive, and the newest record in them of each key.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::encoding::map::{Record, RecordAddress};
use device::{AlignedBuf, PAGE_BYTES};

use crate::error::SliceError;
use crate::map::log::SLOTS;
use crate::map::ring::RecordRing;

/// A segment of records.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) bytes: AlignedBuf,
    /// Bytes up to the end of the records.
    pub(super) len: usize,
    /// Bytes whose pages are on the drive: whole pages.
    pub(super) stored: usize,
    /// Start of each record that is not on the drive.
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

    /// Returns the pages that are not on the drive.
    fn unstored(&self) -> Range<usize> {
        self.stored..self.len.next_multiple_of(PAGE_BYTES)
    }
}

/// The state of a map. Accessed under the lock of the map.
pub(super) struct State {
    /// Segments in memory, oldest first. The last one takes records. Never empty.
    pub(super) segments: VecDeque<Segment>,
    /// Position of the newest record in memory of each key, by the hash of the key, until the table has its address.
    pub(super) pending: HashMap<u64, u64>,
    /// Position in front of which all records are to be written, even if their segment is not full.
    pub(super) wanted: u64,
    /// Position in front of which all records are durably on the drives, and their entries in the table.
    pub(super) stored: u64,
    /// Position in front of which a power cut loses neither records nor their entries.
    pub(super) synced: u64,
    /// End of the records that the log says durably. A start after a power cut begins here, or later.
    pub(super) durable_end: u64,
    /// Whether a task writes.
    pub(super) is_writing: bool,
    /// Error of the last write, until one succeeds.
    pub(super) failing: Option<SliceError>,
}

/// The place of a new record.
pub(super) enum Append {
    At(RecordAddress),
    /// The record begins a new segment: the segment before it can be written.
    AtNew(RecordAddress),
    /// The maximum number of segments is in memory, and one has to be written first.
    Full,
}

/// Pages of a segment that are to be written, with the records in them.
pub(super) struct Unstored {
    pub(super) segment: u64,
    /// Bytes of the segment that the pages are.
    pub(super) range: Range<usize>,
    /// The pages; `None` if all have been written, and only the segment is to leave memory.
    pub(super) pages: Option<Arc<AlignedBuf>>,
    /// Start of each record in the pages.
    pub(super) starts: Vec<usize>,
    /// Whether the segment takes no more records.
    pub(super) is_full: bool,
}

impl State {
    /// Returns the state of a map whose records end at `end`. The log says that they end at `synced`, or later.
    pub(super) fn new(ring: &RecordRing, end: u64, synced: u64) -> Self {
        let (number, from) = ring.segment_of(end);
        let bytes = AlignedBuf::new(ring.segment_bytes());
        Self {
            segments: VecDeque::from([Segment::new(number, bytes, from)]),
            pending: HashMap::new(),
            wanted: 0,
            stored: end,
            synced,
            durable_end: 0,
            is_writing: false,
            failing: None,
        }
    }

    /// Returns the segment that takes records.
    pub(super) fn open(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("one takes records")
    }

    pub(super) fn newest_segment(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    /// Returns the position behind the last record.
    pub(super) fn end(&self) -> u64 {
        self.segments.back().map_or(0, |open| {
            open.number * open.bytes.len() as u64 + open.len as u64
        })
    }

    /// Finds the place of a record of `bytes` bytes.
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

    /// Returns the record in memory at a position.
    pub(super) fn record(&self, instance: u64, position: u64) -> Option<Record<'_>> {
        let segment_bytes = self.segments.front()?.bytes.len() as u64;
        let number = position / segment_bytes;
        let segment = self.segments.iter().find(|of| of.number == number)?;
        let bytes = &segment.bytes[(position % segment_bytes) as usize..segment.len];
        Record::decode(instance, position, bytes).ok()
    }

    /// Returns whether something is to be written.
    pub(super) fn has_unstored(&self) -> bool {
        self.segments.len() > 1 || self.wanted > self.stored
    }

    /// Returns the next pages to write: of a full segment, or of a segment whose records are wanted. Later records begin on
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

    /// Notes that pages are durably on the drive, and their entries in the table.
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
