//! Where a copy of a key lies, as entries name it.

use index::compact::Location;

use super::dead::CopyRank;
use crate::format::hashed::{FUNCTIONS, HashedPositions};
use crate::format::segment::SegmentId;

const _: () = assert!(FUNCTIONS == u16::BITS);

/// A place for a copy of a key in one generation of a segment. Several functions may give the same offset: the entry of the
/// copy has the first of them, and entries of other keys that have any of them lead there, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) segment: SegmentId,
    pub(super) generation: u64,
    /// In its segment, in bytes.
    pub(super) offset: u32,
    /// A bit for each function that gives the offset.
    functions: u16,
}

impl Spot {
    /// The place at an offset, if one of the functions of the key gives it.
    pub(super) fn at(
        segment: SegmentId,
        generation: u64,
        positions: &HashedPositions,
        offset: u32,
    ) -> Option<Self> {
        let bit = |function: u32| u16::from(positions.offset(function) == offset) << function;
        let functions = (0..FUNCTIONS).fold(0, |functions, function| functions | bit(function));
        (functions != 0).then_some(Self {
            segment,
            generation,
            offset,
            functions,
        })
    }

    /// What the entry of the copy names.
    pub(super) fn own(&self) -> Location {
        Location {
            segment: self.segment,
            function: self.functions.trailing_zeros() as u8,
        }
    }

    /// Whether an entry leads there.
    pub(super) fn is_named_by(&self, location: Location) -> bool {
        location.segment == self.segment && self.functions >> location.function & 1 == 1
    }

    /// The rank of a copy of this version that lies there.
    pub(super) fn rank(&self, version: u64) -> CopyRank {
        CopyRank::new(version, self.generation, self.own().function)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A place that these functions give.
    pub(in super::super) fn spot(segment: SegmentId, functions: &[u8]) -> Spot {
        Spot {
            segment,
            generation: 1,
            offset: 0,
            functions: functions.iter().map(|function| 1 << function).sum(),
        }
    }

    #[test]
    fn every_function_that_gives_the_offset_leads_there() {
        let (segment, generation) = (SegmentId(3), 9);
        let mut aliases = 0;
        for key in 0..2000u64 {
            let positions = HashedPositions::new(64 << 10, generation, key << 4);
            for function in 0..FUNCTIONS {
                let offset = positions.offset(function);
                let spot = Spot::at(segment, generation, &positions, offset).unwrap();
                let function = function as u8;
                assert!(spot.is_named_by(Location { segment, function }));
                assert!(spot.own().function <= function);
                let first = positions.function_of(offset).unwrap();
                assert_eq!(u32::from(spot.own().function), first);
                aliases += u32::from(spot.own().function < function);
            }
        }
        assert!(aliases > 0);
        let positions = HashedPositions::new(64 << 10, generation, 16);
        assert_eq!(Spot::at(segment, generation, &positions, 8), None);
    }
}
