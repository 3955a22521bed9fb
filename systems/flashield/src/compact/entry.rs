//! An entry, packed into as few bits as it has states.
//!
//! ```text
//!   | segment : segment_bits | function : 4 | state : 3 |        0 = free slot
//!
//!   state = (ghost bit, two CLOCK bits), inverted
//! ```
//!
//! A ghost has no CLOCK value, so a ghost with the highest one is a spare state. It stands for the free slot; inverted it
//! is zeros, as is new memory.

use format::segment::SegmentId;

/// Number of functions that place an object in a segment.
pub const FUNCTIONS: u8 = 1 << FUNCTION_BITS;
/// CLOCK value of an entry just read.
pub const CLOCK_HIGHEST: u8 = 3;

const FUNCTION_BITS: u32 = 4;
const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const GHOST: u64 = 0b100;
const CLOCK_MASK: u64 = 0b011;
/// Bits of an entry besides those of the segment.
pub(super) const FIXED_BITS: u32 = FUNCTION_BITS + STATE_BITS;
/// Content of a free slot.
pub(super) const FREE: u64 = 0;

const _: () =
    assert!((GHOST | CLOCK_MASK) ^ STATE_MASK == FREE && CLOCK_HIGHEST as u64 == CLOCK_MASK);

/// Location of an object on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// Segment of the device that holds the object.
    pub segment: SegmentId,
    /// Function of the key that gives the position in the segment, below [`FUNCTIONS`].
    pub function: u8,
}

/// State of an object with regard to eviction (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rank {
    /// The object is kept when its segment is reclaimed.
    Hot {
        /// Number of times that the hand still passes it, 0 to [`CLOCK_HIGHEST`].
        clock: u8,
    },
    /// The object goes with its segment, unless it is read before.
    Ghost,
}

impl Rank {
    /// Rank of an entry just read.
    pub const READ: Self = Self::Hot {
        clock: CLOCK_HIGHEST,
    };
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompactEntry {
    /// Location of the object.
    pub location: Location,
    /// Its state with regard to eviction.
    pub rank: Rank,
}

impl CompactEntry {
    /// Packs the entry into the lowest bits.
    ///
    /// # Panics
    ///
    /// If the function or the CLOCK value is out of range. The table checks the segment's width.
    #[inline]
    pub(super) fn pack(self) -> u64 {
        let Location { segment, function } = self.location;
        assert!(function < FUNCTIONS, "function {function} of {FUNCTIONS}");
        let state = match self.rank {
            Rank::Hot { clock } => {
                assert!(clock <= CLOCK_HIGHEST, "CLOCK {clock} of {CLOCK_HIGHEST}");
                u64::from(clock)
            }
            Rank::Ghost => GHOST,
        };
        u64::from(segment.0) << FIXED_BITS | u64::from(function) << STATE_BITS | state ^ STATE_MASK
    }

    /// Unpacks the entry of a slot, or returns `None` for a free one.
    #[inline]
    pub(super) fn unpack(packed: u64) -> Option<Self> {
        if packed == FREE {
            return None;
        }
        let state = packed & STATE_MASK ^ STATE_MASK;
        let rank = if state & GHOST == 0 {
            let clock = (state & CLOCK_MASK) as u8;
            Rank::Hot { clock }
        } else {
            Rank::Ghost
        };
        let location = Location {
            segment: SegmentId((packed >> FIXED_BITS) as u32),
            function: (packed >> STATE_BITS) as u8 % FUNCTIONS,
        };
        Some(Self { location, rank })
    }

    /// Returns the entry with another rank.
    pub fn ranked(self, rank: Rank) -> Self {
        Self { rank, ..self }
    }

    /// Whether the object goes with its segment.
    pub fn is_ghost(&self) -> bool {
        self.rank == Rank::Ghost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_unpacked_as_it_was_and_none_looks_free() {
        let clocks = (0..=CLOCK_HIGHEST).map(|clock| Rank::Hot { clock });
        let ranks: Vec<Rank> = clocks.chain([Rank::Ghost]).collect();
        for segment in [0, 1, 4095, u32::MAX >> FIXED_BITS].map(SegmentId) {
            for function in 0..FUNCTIONS {
                for &rank in &ranks {
                    let location = Location { segment, function };
                    let entry = CompactEntry { location, rank };
                    assert_ne!(entry.pack(), FREE);
                    assert_eq!(CompactEntry::unpack(entry.pack()), Some(entry));
                }
            }
        }
        assert_eq!(CompactEntry::unpack(FREE), None);
    }
}
