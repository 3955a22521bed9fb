//! The state of a segment: its record, and its entry in the segment table.

use crate::format::segment::SegmentId;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// One generation of a segment: its number, its sequence number, and the extent of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentRecord {
    /// Number of the segment on its flash.
    pub segment: SegmentId,
    /// Sequence number of its generation.
    pub sequence: u64,
    /// Number of items.
    pub items: u32,
    /// Bytes of each item's slot; 0 if items are packed.
    pub slot_bytes: u32,
    /// Bytes up to the end of the last item if an earlier run wrote the segment, else all bytes of the segment.
    pub data_bytes: u32,
}

/// Entry of a segment in the segment table: [`SEGMENT_TABLE_BYTES`].
#[derive(Default)]
pub(super) struct Segment {
    /// Sequence number of its present generation, 0 when free.
    pub(super) sequence: AtomicU64,
    /// Number of items, once sealed.
    pub(super) items: AtomicU32,
    /// Number of items that the index names and no flush of the cache has made dead.
    pub(super) live: AtomicU32,
    /// Bytes of its items, slots and summary entries, once sealed; 0 if an earlier run wrote the segment.
    pub(super) item_bytes: AtomicU32,
    /// Bytes of each item's slot; 0 if items are packed.
    pub(super) slot_bytes: AtomicU32,
    /// Bytes up to the end of the last item if an earlier run wrote the segment: later appends of that run are lost.
    /// Else all bytes of the segment.
    pub(super) data_bytes: AtomicU32,
    /// Unix second in which it was sealed; 0 if an earlier run sealed it.
    pub(super) sealed_at: AtomicU32,
    /// Reads of its items since it was opened, if reads are counted.
    pub(super) reads: AtomicU32,
    /// Time of the last read of one of its items in milliseconds of the runtime's clock, if reads are counted.
    pub(super) last_read_ms: AtomicU32,
    /// Number of readers, and the bit [`DRAINING`].
    pub(super) pins: AtomicU32,
    /// Number of the buffer that holds its bytes, plus 1; 0 when they are on flash.
    pub(super) buffer: AtomicU8,
    /// Its [`Priority`](super::Priority), if there are several.
    pub(super) priority: AtomicU8,
    /// Number of writes that failed in a row.
    pub(super) failures: AtomicU8,
    /// Whether a failed sync may have lost a part of it.
    pub(super) is_doubtful: AtomicBool,
}

/// Bytes of memory for each segment of the flash.
pub(crate) const SEGMENT_TABLE_BYTES: u64 = 48;

const _: () = assert!(size_of::<Segment>() as u64 == SEGMENT_TABLE_BYTES);

/// Bit of [`Segment::pins`] that is set while a release waits for the readers.
pub(super) const DRAINING: u32 = 1 << 31;
