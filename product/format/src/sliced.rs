//! The section of a checkpoint of the placement `sliced`: where memory's part of the index has been saved.
//!
//! ```text
//!  section:  Header
//!  what it names, in one of the areas of the index region, whole pages:
//!    for each partition: tables u32 │ each: generation u32, changes u32 │ key u64, Value │ …
//!    segments with numbers u32 │ NumberedSegment │ … │ the next number u32
//! ```

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::segment::Position;

/// Version of the section.
pub const VERSION: u32 = 1;
/// Number of no segment: what stands for a delete.
pub const NO_NUMBER: u32 = u32::MAX;

/// The section of a checkpoint: where the index has been saved.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Tells the index from those that the region had before.
    pub instance: U64,
    /// Incarnations of a slicetable.
    pub incarnations: U32,
    /// Bytes of a table in memory.
    pub table_bytes: U32,
    /// Partitions of the index.
    pub partitions: U32,
    /// The area in which it has been saved.
    pub area: U32,
    /// Bytes that have been saved.
    pub bytes: U64,
    /// CRC-32C of the bytes that have been saved.
    pub checksum: U32,
}

const _: () = assert!(size_of::<Header>() == 36);

/// What the index says of a key: where its item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Number of the segment's generation.
    pub number: u32,
    /// Where the item lies in the segment.
    pub position: Position,
}

impl Value {
    /// The 8 bytes that the index keeps.
    pub fn encode(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.position.bits())
    }

    /// What 8 bytes say; nothing where they stand for a delete.
    pub fn decode(bits: u64) -> Option<Self> {
        let number = (bits >> 32) as u32;
        (number != NO_NUMBER).then_some(Self {
            number,
            position: Position::from_bits(bits as u32),
        })
    }
}

/// What the index says of a key that has been deleted.
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
