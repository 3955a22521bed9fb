//! What is known of a segment: its record, and its entry in the segment table.

use crate::format::segment::SegmentId;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// A segment as the checkpoint remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentRecord {
    /// The number of the segment on its flash.
    pub segment: SegmentId,
    /// The sequence number of its generation.
    pub sequence: u64,
    /// Items in it.
    pub items: u32,
    /// Bytes of each item's slot; 0 where they are packed.
    pub slot_bytes: u32,
    /// Where an earlier run has left it, the bytes that its items lie in; else all there are.
    pub data_bytes: u32,
}

/// What is known of one segment: [`SEGMENT_TABLE_BYTES`].
#[derive(Default)]
pub(super) struct Segment {
    /// Sequence number of its present generation, 0 when free.
    pub(super) sequence: AtomicU64,
    /// Items in it, once sealed.
    pub(super) items: AtomicU32,
    /// Items in it that the index names and no flush has made dead.
    pub(super) live: AtomicU32,
    /// Bytes that its items take, once sealed; 0 where it is what an earlier run has left.
    pub(super) item_bytes: AtomicU32,
    /// Bytes of each item's slot; 0 where they are packed.
    pub(super) slot_bytes: AtomicU32,
    /// Where an earlier run has left it, the bytes that its items lie in: what it had appended behind them is lost.
    pub(super) data_bytes: AtomicU32,
    /// Unix second in which it was sealed; 0 where an earlier run did so.
    pub(super) sealed_at: AtomicU32,
    /// Reads of its items since it was opened, where reads are counted.
    pub(super) reads: AtomicU32,
    /// When an item of it was read last, where reads are counted.
    pub(super) last_read_ms: AtomicU32,
    /// Readers in it, and [`DRAINING`].
    pub(super) pins: AtomicU32,
    /// One more than the buffer that holds its bytes, 0 when they are on flash.
    pub(super) buffer: AtomicU8,
    /// Its [`Priority`](super::Priority), where there are several.
    pub(super) priority: AtomicU8,
    /// Writes that failed in a row.
    pub(super) failures: AtomicU8,
    /// A sync that has failed may have lost a part of it.
    pub(super) is_doubtful: AtomicBool,
}

/// Bytes of memory for each segment of the flash.
pub(crate) const SEGMENT_TABLE_BYTES: u64 = 48;

const _: () = assert!(size_of::<Segment>() as u64 == SEGMENT_TABLE_BYTES);

/// Set in [`Segment::pins`] while a release waits for the readers.
pub(super) const DRAINING: u32 = 1 << 31;

/// Failed writes in a row after which a segment is not used again.
pub(super) const MAX_FAILURES: u8 = 3;
