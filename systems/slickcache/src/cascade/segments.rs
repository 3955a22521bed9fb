//! The segments as a cascade sees them.

use crate::encoding::mapping::Entry;
use device::{Disk as _, IoFuture, Region};
use format::segment::Position;

/// The segments that the entries of a cascade name.
pub trait Segments: Send + Sync {
    /// Returns the segment's number and the position that a place code names, or `None` if the segment is gone.
    fn named_by(&self, code: u64) -> Option<(u32, Position)>;

    /// Returns the place code of a position in a segment, or `None` if the segment is gone.
    fn code(&self, number: u32, position: Position) -> Option<u64>;

    /// Returns a number such that nearly all segments with lower numbers are gone.
    fn horizon(&self) -> u32;

    /// Makes everything written to the region durable. The region may share its device with the segments. If it has a
    /// device of its own, calls do not overlap.
    fn sync<'a>(&'a self, region: &'a Region) -> IoFuture<'a, ()> {
        region.sync()
    }

    /// Returns the number of failed syncs of the region's device, whoever called them, as an error is reported to one
    /// caller only.
    fn failed_syncs(&self) -> u64;
}

impl dyn Segments {
    /// Returns the place code of an entry, or `None` for a tombstone and for a segment that is gone.
    pub(super) fn code_of(&self, entry: &Entry) -> Option<u64> {
        let (number, position) = entry.item()?;
        self.code(number, position)
    }
}
