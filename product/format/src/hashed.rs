//! Positions that are a function of the key: the index keeps the number of one of [`FUNCTIONS`] functions, and the hash of
//! the key gives the position (Flashield, NSDI 2019, sections 3.4 and 4.1).
//!
//! ```text
//!   function   gives
//!   0 to 3     the start of a page
//!   4 to 14    any unit
//!   15         the start of the segment
//! ```
//!
//! A position follows from the segment's sequence number, the hash of the key and the number of the function. It does not
//! depend on the item's length, which a reader finds in the page at the position. An item gets the first position that suits
//! it: an item that fits a page does not cross a page boundary, a longer one starts where [`may_start_large`] permits it.
//! For an item of half a page or more that is nearly always the start of a page. At the position of the last function any
//! item fits an empty segment.
//!
//! [`HashedSpace`] tracks the free units of a segment that is being filled. Items do not arrive in the order of their
//! offsets, and the summary grows towards them, so space for the expected summary entries is reserved from the beginning.
//! Nothing here fails: an item without a free position goes to the next segment, in which it has other positions.

use crate::segment::{
    PAGE_BYTES, SUMMARY_ENTRY_BYTES, UNIT_BYTES, may_start_large, summary_offset,
};

/// Number of functions: positions that an item can have in a segment.
pub const FUNCTIONS: u32 = 16;
/// One function in this many gives starts of pages.
const ONE_IN_PAGE_STARTS: u32 = 4;
/// Low bits of a hash that positions do not depend on: a table sorted by them has the same bits in all of its hashes.
const UNUSED_HASH_BITS: u32 = 4;
/// Separates the words of different functions: 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits set in every mark; no position has both.
const MARK: u32 = 3 << 30;

/// Returns the mark that stands for a lost entry of an index without keys, given the entry's slot, counted through all tables of
/// the image, and its function. Every item that may have had that entry has the mark, and one in 10^9 of the other items.
pub fn entry_mark(slot: u64, function: u8) -> u32 {
    (mix(slot << 8 | u64::from(function)) >> 34) as u32 | MARK
}

/// Returns whether `bits` are a mark rather than a position.
pub const fn is_entry_mark(bits: u32) -> bool {
    bits & MARK == MARK
}

/// The positions of one key in one generation of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedPositions {
    seed: u64,
    units: u32,
    functions: u32,
}

impl HashedPositions {
    /// Returns the positions of the key with this hash in a segment of `segment_bytes` bytes.
    pub fn new(segment_bytes: u32, sequence: u64, hash: u64) -> Self {
        Self::of_functions(segment_bytes, sequence, hash, FUNCTIONS)
    }

    /// Does the same with another number of functions, for experiments.
    pub fn of_functions(segment_bytes: u32, sequence: u64, hash: u64, functions: u32) -> Self {
        Self {
            seed: mix((hash >> UNUSED_HASH_BITS) ^ mix(sequence.wrapping_add(STEP))),
            units: segment_bytes / UNIT_BYTES,
            functions,
        }
    }

    /// Returns the offset in bytes that a function gives: the start of a unit.
    pub fn offset(&self, function: u32) -> u32 {
        if function + 1 == self.functions {
            return 0;
        }
        let word = mix(self
            .seed
            .wrapping_add(u64::from(function).wrapping_mul(STEP)));
        let unit = ((word >> 32) * u64::from(self.units)) >> 32;
        let offset = unit as u32 * UNIT_BYTES;
        if function < self.functions / ONE_IN_PAGE_STARTS {
            offset / PAGE_BYTES * PAGE_BYTES
        } else {
            offset
        }
    }

    /// Returns the first function that gives this offset.
    pub fn function_of(&self, offset: u32) -> Option<u32> {
        (0..self.functions).find(|&function| self.offset(function) == offset)
    }
}

/// Maps 64 bits to 64 bits one to one, and the result looks random: the finalizer of `SplitMix64`.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns whether an item of `bytes` bytes may start at `offset`.
fn may_start(offset: u32, bytes: u32) -> bool {
    if bytes > PAGE_BYTES {
        may_start_large(offset, bytes)
    } else {
        offset % PAGE_BYTES + bytes <= PAGE_BYTES
    }
}

/// Function and offset of a placed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedPlace {
    /// The function that gives the offset.
    pub function: u32,
    /// Offset of the item in its segment, in bytes.
    pub offset: u32,
}

/// The space of a segment that is being filled.
#[derive(Clone, Debug)]
pub struct HashedSpace {
    units: Units,
    segment_bytes: u32,
    sequence: u64,
    functions: u32,
    reserved_items: u32,
    items: u32,
    data_bytes: u32,
    taken_bytes: u32,
}

impl HashedSpace {
    /// Returns an empty segment with space reserved for `reserved_items` summary entries. If it takes more items, placing stops
    /// once items lie where the summary has to grow; if fewer, the rest of the reserve stays empty.
    pub fn new(segment_bytes: u32, sequence: u64, reserved_items: u32) -> Self {
        Self::of_functions(segment_bytes, sequence, reserved_items, FUNCTIONS)
    }

    /// Does the same with another number of functions, for experiments.
    pub fn of_functions(
        segment_bytes: u32,
        sequence: u64,
        reserved_items: u32,
        functions: u32,
    ) -> Self {
        Self {
            units: Units::new(segment_bytes),
            segment_bytes,
            sequence,
            functions,
            reserved_items,
            items: 0,
            data_bytes: 0,
            taken_bytes: 0,
        }
    }

    /// Returns the first position of the key at which an item of `bytes` bytes may start and has free space, if there is one.
    pub fn find(&self, hash: u64, bytes: u32) -> Option<HashedPlace> {
        let at_most = summary_offset(self.segment_bytes, self.items + 1)?;
        if self.data_bytes > at_most {
            return None;
        }
        let reserved = summary_offset(self.segment_bytes, self.reserved_items).unwrap_or(0);
        let place = self.find_before(at_most.min(reserved), hash, bytes);
        if self.items == 0 {
            // The first item may be as long as the segment allows, into the reserve.
            return place.or_else(|| self.find_before(at_most, hash, bytes));
        }
        place
    }

    /// Returns the first position at which an item has free space that ends before `end`.
    fn find_before(&self, end: u32, hash: u64, bytes: u32) -> Option<HashedPlace> {
        let (segment_bytes, functions) = (self.segment_bytes, self.functions);
        let positions =
            HashedPositions::of_functions(segment_bytes, self.sequence, hash, functions);
        (0..functions)
            .map(|function| HashedPlace {
                function,
                offset: positions.offset(function),
            })
            .find(|place| {
                may_start(place.offset, bytes)
                    && end.saturating_sub(place.offset) >= bytes
                    && self.units.are_free(place.offset, bytes)
            })
    }

    /// Takes the position that [`find`](HashedSpace::find) returns.
    pub fn take(&mut self, hash: u64, bytes: u32) -> Option<HashedPlace> {
        let place = self.find(hash, bytes)?;
        self.units.take(place.offset, bytes);
        self.items += 1;
        self.data_bytes = self.data_bytes.max(place.offset + bytes);
        self.taken_bytes += bytes.next_multiple_of(UNIT_BYTES);
        Some(place)
    }

    /// Returns the number of items placed in the segment.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// Returns the highest end of an item, in bytes from the start of the segment.
    pub fn data_bytes(&self) -> u32 {
        self.data_bytes
    }

    /// Returns the bytes that items and their summary entries take, in whole units.
    pub fn taken_bytes(&self) -> u32 {
        self.taken_bytes + self.items * SUMMARY_ENTRY_BYTES
    }
}

/// Returns the number of items of `mean_item_bytes` that a segment without gaps holds, to reserve summary entries for.
pub fn expected_items(segment_bytes: u32, mean_item_bytes: u32) -> u32 {
    segment_bytes / (mean_item_bytes + UNIT_BYTES / 2 + SUMMARY_ENTRY_BYTES)
}

/// Bitmap of the units of a segment that are taken.
#[derive(Clone, Debug)]
pub struct Units(Box<[u64]>);

impl Units {
    /// Returns the units of an empty segment, all free.
    pub fn new(segment_bytes: u32) -> Self {
        let units = segment_bytes.div_ceil(UNIT_BYTES);
        Self(vec![0; units.div_ceil(u64::BITS) as usize].into())
    }

    /// Returns whether all units of the `bytes` bytes from `offset` on are free. They must lie in the segment.
    pub fn are_free(&self, offset: u32, bytes: u32) -> bool {
        words(offset, bytes).all(|(word, mask)| self.0[word] & mask == 0)
    }

    /// Takes all units of the `bytes` bytes from `offset` on.
    pub fn take(&mut self, offset: u32, bytes: u32) {
        for (word, mask) in words(offset, bytes) {
            self.0[word] |= mask;
        }
    }
}

/// Returns the words of the bitmap that cover an item, each with a mask of the item's units.
fn words(offset: u32, bytes: u32) -> impl Iterator<Item = (usize, u64)> {
    let first = offset / UNIT_BYTES;
    let end = first + bytes.div_ceil(UNIT_BYTES);
    (first / u64::BITS..end.div_ceil(u64::BITS)).map(move |word| {
        let start = word * u64::BITS;
        let below = |unit: u32| {
            u64::MAX
                .checked_shl(unit.saturating_sub(start))
                .unwrap_or(0)
        };
        (word as usize, below(first) & !below(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{FOOTER_BYTES, largest_item};
    use proptest::prelude::*;

    const SEGMENT: u32 = 64 << 10;

    fn items() -> impl Strategy<Value = Vec<(u64, u32)>> {
        let bytes = prop_oneof![8 => 1u32..900, 2 => 900u32..4_200, 1 => 4_097u32..40_000];
        prop::collection::vec((any::<u64>(), bytes), 1..600)
    }

    proptest! {
        #[test]
        fn what_is_placed_lies_apart_and_is_found_by_its_function(
            items in items(),
            sequence in any::<u64>(),
            reserved in 0u32..400,
        ) {
            let mut space = HashedSpace::new(SEGMENT, sequence, reserved);
            let mut placed: Vec<(u64, u32, HashedPlace)> = Vec::new();
            for (hash, bytes) in items {
                let found = space.find(hash, bytes);
                let taken = space.take(hash, bytes);
                prop_assert_eq!(found, taken);
                let Some(place) = taken else { continue };
                prop_assert!(may_start(place.offset, bytes));
                placed.push((hash, bytes, place));
                // One more summary entry never lies on an item, and neither does the reserve.
                let items = if placed.len() == 1 { 1 } else { space.items().max(reserved) };
                let summary = summary_offset(SEGMENT, items).unwrap_or(0);
                prop_assert!(place.offset + bytes <= summary);
                prop_assert!(space.data_bytes() <= summary_offset(SEGMENT, space.items()).unwrap());
            }
            for &(hash, _, place) in &placed {
                let positions = HashedPositions::new(SEGMENT, sequence, hash);
                prop_assert_eq!(positions.offset(place.function), place.offset);
                prop_assert_eq!(positions.function_of(place.offset), Some(place.function));
            }
            let ends = placed.iter().map(|(_, bytes, place)| place.offset + bytes);
            prop_assert_eq!(space.data_bytes(), ends.max().unwrap_or(0));
            placed.sort_by_key(|(_, _, place)| place.offset);
            for pair in placed.windows(2) {
                let (_, bytes, place) = pair[0];
                prop_assert!(place.offset + bytes <= pair[1].2.offset);
            }
            let units: u32 = placed.iter().map(|(_, bytes, _)| bytes.div_ceil(UNIT_BYTES)).sum();
            let count = placed.len() as u32;
            prop_assert_eq!(space.items(), count);
            prop_assert_eq!(space.taken_bytes(), units * UNIT_BYTES + count * SUMMARY_ENTRY_BYTES);
            let set: u32 = space.units.0.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(set, units);
        }

        #[test]
        fn what_is_refused_has_no_position_left(items in items(), sequence in any::<u64>()) {
            let mut space = HashedSpace::new(SEGMENT, sequence, 0);
            let mut taken = vec![false; (SEGMENT / UNIT_BYTES) as usize];
            for (hash, bytes) in items {
                let units = |offset: u32| {
                    let first = (offset / UNIT_BYTES) as usize;
                    first..first + bytes.div_ceil(UNIT_BYTES) as usize
                };
                let summary = summary_offset(SEGMENT, space.items() + 1).unwrap();
                let positions = HashedPositions::new(SEGMENT, sequence, hash);
                let first = (0..FUNCTIONS).map(|function| positions.offset(function)).find(|&offset| {
                    may_start(offset, bytes)
                        && offset + bytes <= summary
                        && space.data_bytes() <= summary
                        && !taken[units(offset)].contains(&true)
                });
                let place = space.take(hash, bytes);
                prop_assert_eq!(place.map(|place| place.offset), first);
                if let Some(offset) = first {
                    taken[units(offset)].fill(true);
                }
            }
        }

        #[test]
        fn an_empty_segment_takes_every_item(hash in any::<u64>(), sequence in any::<u64>(), less in 0u32..SEGMENT - 88) {
            let bytes = largest_item(SEGMENT) - less;
            let mut space = HashedSpace::new(SEGMENT, sequence, 1_000);
            prop_assert!(space.take(hash, bytes).is_some());
        }

        #[test]
        fn the_lowest_bits_of_a_hash_change_nothing(hash in any::<u64>(), low in 0u64..16, sequence in any::<u64>()) {
            let positions = HashedPositions::new(SEGMENT, sequence, hash);
            prop_assert_eq!(HashedPositions::new(SEGMENT, sequence, hash & !15 | low), positions);
        }
    }

    #[test]
    fn positions_are_spread_and_differ_in_the_next_segment() {
        const PAGES: usize = (SEGMENT / PAGE_BYTES) as usize;
        const KEYS: u64 = 4_000;
        for function in [0, 3, 4, 14] {
            let mut in_page = [0u64; PAGES];
            let mut same = 0;
            for key in 0..KEYS {
                let offset =
                    |sequence| HashedPositions::new(SEGMENT, sequence, key << 4).offset(function);
                in_page[(offset(7) / PAGE_BYTES) as usize] += 1;
                same += u64::from(offset(7) == offset(8));
                assert!(function > 3 || offset(7).is_multiple_of(PAGE_BYTES));
            }
            let mean = KEYS / PAGES as u64;
            assert!(
                in_page.iter().all(|&keys| keys.abs_diff(mean) < mean / 2),
                "{in_page:?}"
            );
            assert!(same < KEYS / 8, "{same}");
        }
    }

    #[test]
    fn the_positions_of_a_key_never_change() {
        let positions = HashedPositions::new(8 << 20, 5, 0x0123_4567_89ab_cdef);
        let offsets: Vec<u32> = (0..FUNCTIONS)
            .map(|function| positions.offset(function))
            .collect();
        let first = [
            2_596_864, 2_433_024, 6_000_640, 1_400_832, 1_322_816, 3_714_480, 3_937_200, 5_836_208,
        ];
        let last = [
            1_331_584, 5_611_200, 2_804_928, 5_762_016, 3_674_992, 6_258_720, 3_243_152, 0,
        ];
        assert_eq!(offsets, [first, last].concat());
    }

    #[test]
    fn the_summary_of_small_items_finds_room() {
        for sequence in 0..200 {
            let mut space = HashedSpace::new(SEGMENT, sequence, expected_items(SEGMENT, 100));
            for key in 0..5_000u64 {
                space.take(key << 4, 100);
            }
            let taken_bytes = space.taken_bytes();
            assert!(taken_bytes > SEGMENT / 3 * 2, "{sequence} {taken_bytes}");
            assert!(taken_bytes + FOOTER_BYTES <= SEGMENT);
        }
    }
}
