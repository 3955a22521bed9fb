//! Results of wear leveling's questions: the erase counts of blocks, and the read counts of segments.
//!
//! The first erase of a block precedes its first program and is no wear of use: a block written once counts like a
//! block never written. If the device counts no erases, no erase counts as one of use.

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
    /// Returns the distribution of these erase counts.
    pub(super) fn of(counts: Vec<u64>) -> Self {
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
