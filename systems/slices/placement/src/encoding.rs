//! Checkpoint section of the placement `sliced`: the location of the saved part of the index that is in memory.
//!
//! ```text
//!  section:  Header
//!  saved part, in one of the areas of the index region, whole pages:
//!    for each partition: tables u32 │ each: generation u32, changes u32 │ key u64, Value │ …
//!    segments with numbers u32 │ NumberedSegment │ … │ the next number u32
//! ```

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use format::segment::Position;

/// Version of the section.
pub const VERSION: u32 = 1;
/// Segment number that stands for a delete.
pub const NO_NUMBER: u32 = u32::MAX;

/// The section of a checkpoint.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Identity of the index. Earlier indexes of the region had others.
    pub instance: U64,
    /// Incarnations of a slicetable.
    pub incarnations: U32,
    /// Bytes of a table in memory.
    pub table_bytes: U32,
    /// Partitions of the index.
    pub partitions: U32,
    /// Number of the area that holds the saved bytes.
    pub area: U32,
    /// Number of saved bytes.
    pub bytes: U64,
    /// CRC-32C of the saved bytes.
    pub checksum: U32,
}

const _: () = assert!(size_of::<Header>() == 36);

/// Value of a key in the index: the place of its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Number of the segment's generation.
    pub number: u32,
    /// Position of the item in the segment.
    pub position: Position,
}

impl Value {
    /// Returns the 8 bytes that the index keeps.
    pub fn encode(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.position.bits())
    }

    /// Decodes 8 bytes of the index; `None` for a delete.
    pub fn decode(bits: u64) -> Option<Self> {
        let number = (bits >> 32) as u32;
        (number != NO_NUMBER).then_some(Self {
            number,
            position: Position::from_bits(bits as u32),
        })
    }
}

/// Value of a deleted key in the index.
pub const DELETED: u64 = (NO_NUMBER as u64) << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_were() {
        let value = Value {
            number: 0x0102_0304,
            position: Position::from_bits(0x8506_0708),
        };
        assert_eq!(value.encode(), 0x0102_0304_8506_0708);
        assert_eq!(Value::decode(value.encode()), Some(value));
        assert_eq!(Value::decode(DELETED), None);
    }
}
