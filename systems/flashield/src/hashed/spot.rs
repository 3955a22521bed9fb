//! Where a copy of a key lies, as entries name it.

use crate::compact::Location;

use super::dead::CopyRank;
use engine::KeyHash;
use engine::format::hashed::{FUNCTIONS, HashedPositions};
use engine::format::segment::SegmentId;

const _: () = assert!(FUNCTIONS == u16::BITS);

/// The number of a function in the entries of a key for its number among the functions, and the other way round. The
/// first functions are those that most items have: without this, most keys that share a slot and a segment would have the same
/// entry.
pub(super) fn turned(hash: KeyHash, function: u8) -> u8 {
    function ^ turn_of(hash)
}

fn turn_of(hash: KeyHash) -> u8 {
    (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FUNCTIONS.ilog2())) as u8
}

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
    /// [`turned`] of function 0.
    turn: u8,
}

impl Spot {
    /// The place at an offset, if one of the functions of the key gives it.
    pub(super) fn at(
        segment: SegmentId,
        generation: u64,
        positions: &HashedPositions,
        offset: u32,
        hash: KeyHash,
    ) -> Option<Self> {
        let bit = |function: u32| u16::from(positions.offset(function) == offset) << function;
        let functions = (0..FUNCTIONS).fold(0, |functions, function| functions | bit(function));
        (functions != 0).then_some(Self {
            segment,
            generation,
            offset,
            functions,
            turn: turn_of(hash),
        })
    }

    /// What the entry of the copy names.
    pub(super) fn own(&self) -> Location {
        Location {
            segment: self.segment,
            function: self.function() ^ self.turn,
        }
    }

    /// The first function that gives the offset.
    fn function(&self) -> u8 {
        self.functions.trailing_zeros() as u8
    }

    /// Whether an entry leads there.
    pub(super) fn is_named_by(&self, location: Location) -> bool {
        location.segment == self.segment
            && self.functions >> (location.function ^ self.turn) & 1 == 1
    }

    /// The rank of a copy of this version that lies there.
    pub(super) fn rank(&self, version: u64) -> CopyRank {
        CopyRank::new(version, self.generation, self.function())
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
            turn: 0,
        }
    }

    #[test]
    fn every_function_that_gives_the_offset_leads_there() {
        let (segment, generation) = (SegmentId(3), 9);
        let mut aliases = 0;
        for key in 0..2000u64 {
            let hash = KeyHash(key << 4);
            let positions = HashedPositions::new(64 << 10, generation, hash.0);
            for function in 0..FUNCTIONS {
                let offset = positions.offset(function);
                let spot = Spot::at(segment, generation, &positions, offset, hash).unwrap();
                let own = turned(hash, function as u8);
                assert!(spot.is_named_by(Location {
                    segment,
                    function: own
                }));
                let first = turned(hash, spot.own().function);
                assert_eq!(positions.function_of(offset).unwrap(), u32::from(first));
                aliases += u32::from(u32::from(first) < function);
            }
        }
        assert!(aliases > 0);
        let positions = HashedPositions::new(64 << 10, generation, 16);
        let spot = Spot::at(segment, generation, &positions, 8, KeyHash(16));
        assert_eq!(spot, None);
    }

    #[test]
    fn the_first_function_has_every_number_in_entries() {
        let mut times = [0; FUNCTIONS as usize];
        for key in 0..16_000u64 {
            let hash = KeyHash(key.wrapping_mul(0xd6e8_feb8_6659_fd93));
            times[usize::from(turned(hash, 0))] += 1;
            assert_eq!(turned(hash, turned(hash, 5)), 5);
        }
        assert!(
            times.iter().all(|times| (800..1200).contains(times)),
            "{times:?}"
        );
    }
}
