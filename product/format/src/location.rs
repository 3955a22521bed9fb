//! Places of items, and locations packed in as few bits as the flash needs.
//!
//! ```text
//!  bit unit_bits        unit_bits - 1 … 0
//!   │ a large item │ segment × units per segment + the unit of the position │
//! ```

use std::ops::Range;

use crate::segment::{LARGE, Position, SegmentId, UNIT_BYTES};

/// Place of an item: a position in one generation of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment.
    pub segment: SegmentId,
    /// The sequence number that the segment had when the item was appended.
    pub generation: u64,
    /// Position of the item in the segment.
    pub position: Position,
}

/// Packs a segment and a position: a bit that is set for a large item, above the number of the unit on the flash.
#[derive(Clone, Copy, Debug)]
pub struct LocationCodec {
    /// Units of 16 bytes in a segment.
    pub units_per_segment: u64,
    unit_bits: u32,
}

impl LocationCodec {
    /// Returns the codec for a flash of `segments` segments of `segment_bytes` bytes.
    pub fn new(segments: u32, segment_bytes: u32) -> Self {
        let units_per_segment = u64::from(segment_bytes / UNIT_BYTES);
        let units = u64::from(segments) * units_per_segment;
        Self {
            units_per_segment,
            unit_bits: 64 - units.saturating_sub(1).leading_zeros(),
        }
    }

    /// Returns the bits of a packed location.
    pub fn bits(&self) -> u32 {
        self.unit_bits + 1
    }

    /// Returns two ranges of packed locations: those of a segment's small items and those of its large items.
    pub fn locations_of(&self, segment: SegmentId) -> [Range<u64>; 2] {
        let small = u64::from(segment.0) * self.units_per_segment;
        let large = small | 1 << self.unit_bits;
        [small, large].map(|start| start..start + self.units_per_segment)
    }

    /// Packs a segment and a position in it.
    pub fn encode(&self, segment: SegmentId, position: Position) -> u64 {
        let bits = position.bits();
        let unit = u64::from(segment.0) * self.units_per_segment + u64::from(bits & !LARGE);
        unit | u64::from(bits >> 31) << self.unit_bits
    }

    /// Unpacks a location packed by [`encode`](Self::encode).
    pub fn decode(&self, value: u64) -> (SegmentId, Position) {
        let unit = value & ((1 << self.unit_bits) - 1);
        let segment = SegmentId((unit / self.units_per_segment) as u32);
        let within = (unit % self.units_per_segment) as u32;
        let is_large = value >> self.unit_bits != 0;
        let large = u32::from(is_large) * LARGE;
        (segment, Position::from_bits(within | large))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::align;
    use proptest::prelude::*;

    #[test]
    fn bits_follow_the_capacity() {
        assert_eq!(LocationCodec::new(512, 8 << 20).bits(), 29, "4 GiB");
        assert_eq!(LocationCodec::new(1 << 21, 8 << 20).bits(), 41, "16 TiB");
    }

    proptest! {
        #[test]
        fn what_is_packed_unpacks(
            segments in 1u32..5000,
            segment in 0u32..5000,
            cursor in 0u32..900_000,
            bytes in 40u32..100_000,
        ) {
            let codec = LocationCodec::new(segments, 1 << 20);
            let segment = SegmentId(segment % segments);
            let position = Position::new(align(cursor, bytes), bytes);
            let value = codec.encode(segment, position);
            prop_assert_eq!(codec.decode(value), (segment, position));
        }
    }
}
