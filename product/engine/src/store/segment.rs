//! [`SegmentRecord`]: one generation of a segment.

use crate::format::segment::SegmentId;

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
