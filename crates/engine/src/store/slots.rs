//! Slab classes: how long the slots of a segment are.

use crate::format::segment::{UNIT_BYTES, largest_item, summary_offset};

/// How items lie in the segments that are filled from now on. What is on flash tells its own layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One after the other, in one segment at a time.
    #[default]
    Packed,
    /// In slots of one length a segment; a segment at a time for each length in use.
    Slotted,
}

/// Length of the shortest slots, in bytes.
const SHORTEST: u32 = 64;
/// Each slab class has slots longer by a fraction of this denominator than the one before: the
/// factor 1.25 of memcached and Fatcache.
const GROWTH: u32 = 4;

/// The slot lengths of a layout, shortest first; one of 0 where items are packed.
#[derive(Debug)]
pub(super) struct SlabClasses(Box<[u32]>);

impl SlabClasses {
    pub(super) fn new(layout: Layout, segment_bytes: u32) -> Self {
        if layout == Layout::Packed {
            return Self(Box::new([0]));
        }
        // The longest has its segment to itself, the one before shares it with another.
        let longest = largest_item(segment_bytes);
        let half = summary_offset(segment_bytes, 2).unwrap_or(0) / 2 / UNIT_BYTES * UNIT_BYTES;
        let mut slots = Vec::new();
        let mut slot = SHORTEST;
        while slot < half {
            slots.push(slot);
            slot = (slot + slot / GROWTH).next_multiple_of(UNIT_BYTES);
        }
        slots.push(half);
        slots.push(longest);
        Self(slots.into())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The class of an item of `bytes` bytes that a segment can hold: the shortest slots it fits.
    pub(super) fn of_item(&self, bytes: u32) -> usize {
        self.0
            .partition_point(|&slot| slot < bytes)
            .min(self.0.len() - 1)
    }

    /// Bytes of a slot of a class; 0 where items are packed.
    pub(super) fn slot_bytes(&self, class: usize) -> u32 {
        self.0[class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_grow_by_a_quarter_and_hold_every_item() {
        for segment_bytes in [64 << 10, 1 << 20, 8 << 20, 12 << 20] {
            let classes = SlabClasses::new(Layout::Slotted, segment_bytes);
            let slots = &classes.0;
            assert!(slots.is_sorted_by(|a, b| a < b), "{slots:?}");
            for pair in slots.windows(2) {
                let is_last = pair[1] == slots[slots.len() - 1];
                let most = pair[0] + pair[0] / 4 + UNIT_BYTES;
                assert!(pair[1] <= most || is_last, "{pair:?}");
            }
            let halves = slots[slots.len() - 2];
            assert!(2 * halves <= summary_offset(segment_bytes, 2).unwrap());
            for bytes in (40..=largest_item(segment_bytes)).step_by(97) {
                let class = classes.of_item(bytes);
                assert!(classes.slot_bytes(class) >= bytes);
                assert!(class == 0 || classes.slot_bytes(class - 1) < bytes);
            }
        }
        let packed = SlabClasses::new(Layout::Packed, 1 << 20);
        assert_eq!((packed.len(), packed.of_item(5000)), (1, 0));
    }
}
