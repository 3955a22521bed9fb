//! [`WriteFailure`]: a segment that could not be written.

use device::DeviceError;

use super::segment::SegmentRecord;
use crate::format::segment::SummaryEntry;

/// A segment that could not be written, and never will be. Its items are lost unless they are moved: the caller removes
/// them from the index, then calls [`Writer::abandon`](super::write::Writer::abandon).
#[derive(Debug)]
pub(crate) struct WriteFailure {
    /// The segment and its lost generation.
    pub record: SegmentRecord,
    /// The summary entries of its items.
    pub entries: Vec<SummaryEntry>,
    pub error: DeviceError,
    /// Number of the run of failed writes, of any segments, that it belongs to. `None` if the device is full, which is no
    /// fault of the segment.
    pub(super) outage: Option<u32>,
    pub(super) buffer: usize,
}
