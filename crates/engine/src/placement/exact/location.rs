//! Locations in as few bits as the flash needs.

use std::ops::Range;

use crate::format::segment::{Position, UNIT_BYTES};
use crate::store::SegmentId;

/// Where an item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: SegmentId,
    pub(crate) position: Position,
}

/// Packs a [`Location`]: a bit that tells a large item, above the unit's number on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocationCodec {
    units_per_segment: u64,
    unit_bits: u32,
}

/// The bit of [`Position`] that tells a large item.
const POSITION_LARGE: u32 = 1 << 31;

impl LocationCodec {
    pub(crate) fn new(segments: u32, segment_bytes: u32) -> Self {
        let units_per_segment = u64::from(segment_bytes / UNIT_BYTES);
        let units = u64::from(segments) * units_per_segment;
        Self {
            units_per_segment,
            unit_bits: 64 - units.saturating_sub(1).leading_zeros(),
        }
    }

    /// Bits a packed location takes.
    pub(crate) fn bits(&self) -> u32 {
        self.unit_bits + 1
    }

    pub(crate) fn units_per_segment(&self) -> u64 {
        self.units_per_segment
    }

    /// What the packed locations of a segment's small and large items are between.
    pub(crate) fn locations_of(&self, segment: SegmentId) -> [Range<u64>; 2] {
        let small = u64::from(segment.0) * self.units_per_segment;
        let large = small | 1 << self.unit_bits;
        [small, large].map(|start| start..start + self.units_per_segment)
    }

    pub(crate) fn encode(&self, location: Location) -> u64 {
        let bits = location.position.bits();
        let unit = u64::from(location.segment.0) * self.units_per_segment
            + u64::from(bits & !POSITION_LARGE);
        unit | u64::from(bits >> 31) << self.unit_bits
    }

    pub(crate) fn decode(&self, value: u64) -> Location {
        let unit = value & ((1 << self.unit_bits) - 1);
        let segment = SegmentId((unit / self.units_per_segment) as u32);
        let within = (unit % self.units_per_segment) as u32;
        let large = if value >> self.unit_bits == 0 {
            0
        } else {
            POSITION_LARGE
        };
        Location {
            segment,
            position: Position::from_bits(within | large),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::align;
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
            let location = Location { segment, position };
            let value = codec.encode(location);
            prop_assert_eq!(codec.decode(value), location);
        }
    }
}
