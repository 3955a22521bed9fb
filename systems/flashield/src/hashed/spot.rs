//! Spots: the place of a copy of a key, as entries name it.

use crate::compact::Location;

use super::dead::CopyRank;
use engine::KeyHash;
use engine::format::hashed::{FUNCTIONS, HashedPositions};
use engine::format::segment::SegmentId;

const _: () = assert!(FUNCTIONS == u16::BITS);

/// Maps the number of a function to its number in the entries of a key, and back. Most items lie at one of the first
/// functions. Without this mapping most keys that share a slot and a segment would have the same entry.
pub(super) fn turned(hash: KeyHash, function: u8) -> u8 {
    function ^ turn_of(hash)
}

fn turn_of(hash: KeyHash) -> u8 {
    (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FUNCTIONS.ilog2())) as u8
}

/// A place for a copy of a key in one generation of a segment. Several functions may give the same offset. The entry of the
/// copy has the first one; entries of other keys with any such function lead there as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) segment: SegmentId,
    pub(super) generation: u64,
    /// Offset in the segment, in bytes.
    pub(super) offset: u32,
    /// One bit for each function that gives the offset.
    functions: u16,
    /// [`turned`] of function 0.
    turn: u8,
}

impl Spot {
    /// Returns the spot at an offset; `None` if no function of the key gives the offset.
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

    /// Returns the location in the entry of the copy.
    pub(super) fn own(&self) -> Location {
        Location {
            segment: self.segment,
            function: self.function() ^ self.turn,
        }
    }

    /// Returns the first function that gives the offset.
    fn function(&self) -> u8 {
        self.functions.trailing_zeros() as u8
    }

    /// Returns whether an entry with this location leads to the spot.
    pub(super) fn is_named_by(&self, location: Location) -> bool {
        location.segment == self.segment
            && self.functions >> (location.function ^ self.turn) & 1 == 1
    }

    /// Returns the rank of a copy with this version at the spot.
    pub(super) fn rank(&self, version: u64) -> CopyRank {
        CopyRank::new(version, self.generation, self.function())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a spot whose offset these functions give.
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
