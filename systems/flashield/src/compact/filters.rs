//! Filters of segments: a Bloom filter of all keys of a segment, built once, and then immutable.
//!
//! The filter is not blocked: the bits of a key lie anywhere, because memory matters most here. With all bits of a key in
//! one cache line, most absent keys would cost one memory access instead of two, at 1.15 times the false positives. Such
//! a filter does not stay below 1 % within the 9.66 bits a key that 6 TB in 512 MiB segments leave of 4 bytes; one of two
//! lines narrowly fails, too. `docs/internals/indexes.md` has the measurements of each.

use format::segment::SegmentId;
use on_flash::bloom::mix;

use super::probes::{known_bits, scaled};

/// Bits of a filter for 100 keys.
pub const FILTER_BITS_PER_100_KEYS: usize = 965;
/// Number of bits that a key sets in a filter: 6 give 0.985 % of false positives. The minimum is 0.972 % with 7, but such
/// a filter has more bits set, and takes longer to refuse most absent keys.
pub const FILTER_KEY_BITS: usize = 6;

const WORD_BITS: usize = u64::BITS as usize;
/// Separates the hash of a filter from that of a table, whose keys collide if their first bits agree.
const FILTER: u64 = 0x5851_f42d_4c95_7f2d;
const G: u64 = 0x9e37_79b9_7f4a_7c15;

/// Set of the keys that a segment may hold. Immutable; `Send` and `Sync`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFilter {
    words: Box<[u64]>,
}

impl SegmentFilter {
    /// Builds the filter of a segment with these keys, of [`bytes_for`](Self::bytes_for) their number.
    pub fn build(hashes: &[u64]) -> Self {
        let mut words = vec![0; Self::words_for(hashes.len())].into_boxed_slice();
        let bits = words.len() * WORD_BITS;
        for bit in hashes.iter().flat_map(|&hash| bits_of(hash, bits)) {
            words[bit / WORD_BITS] |= 1 << (bit % WORD_BITS);
        }
        Self { words }
    }

    /// Whether the segment may hold a key; false only if it does not.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let mut bits = bits_of(hash, self.words.len() * WORD_BITS);
        bits.all(|bit| self.words[bit / WORD_BITS] >> (bit % WORD_BITS) & 1 == 1)
    }

    /// Returns the bytes asked of the allocator for a filter of `keys` keys.
    pub const fn bytes_for(keys: usize) -> u64 {
        (Self::words_for(keys) * size_of::<u64>()) as u64
    }

    /// Returns the bytes asked of the allocator.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    const fn words_for(keys: usize) -> usize {
        let words = (keys * FILTER_BITS_PER_100_KEYS).div_ceil(100 * WORD_BITS);
        // A look-up of an empty segment needs bits, too.
        if words == 0 { 1 } else { words }
    }
}

/// Filters of all segments, by segment number.
#[derive(Debug)]
pub struct SegmentFilters {
    filters: Box<[Option<SegmentFilter>]>,
    /// Bytes of all filters.
    filter_bytes: u64,
}

impl SegmentFilters {
    /// Creates the set for `segments` segments, without filters.
    pub fn new(segments: usize) -> Self {
        Self {
            filters: vec![None; segments].into_boxed_slice(),
            filter_bytes: 0,
        }
    }

    /// Returns the filter of a segment, if it has one.
    #[inline]
    pub fn get(&self, segment: SegmentId) -> Option<&SegmentFilter> {
        self.filters.get(segment.0 as usize)?.as_ref()
    }

    /// Sets or removes the filter of a segment. Returns the previous one.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn set(
        &mut self,
        segment: SegmentId,
        filter: Option<SegmentFilter>,
    ) -> Option<SegmentFilter> {
        let bytes = |filter: &Option<SegmentFilter>| {
            let filter = filter.as_ref();
            filter.map_or(0, SegmentFilter::memory_bytes)
        };
        let after = bytes(&filter);
        let before = std::mem::replace(&mut self.filters[segment.0 as usize], filter);
        self.filter_bytes = self.filter_bytes + after - bytes(&before);
        before
    }

    /// Returns the bytes asked of the allocator: a header for each segment, and all filters.
    pub fn memory_bytes(&self) -> u64 {
        Self::header_bytes(self.filters.len()) + self.filter_bytes
    }

    /// Returns the bytes for `segments` filters of `keys` keys each.
    pub const fn bytes_for(segments: usize, keys: usize) -> u64 {
        Self::header_bytes(segments) + segments as u64 * SegmentFilter::bytes_for(keys)
    }

    const fn header_bytes(segments: usize) -> u64 {
        (segments * size_of::<Option<SegmentFilter>>()) as u64
    }
}

/// Returns the bits of a key in a filter of `bits` bits.
#[inline]
fn bits_of(hash: u64, bits: usize) -> impl Iterator<Item = usize> {
    let mixed = mix(known_bits(hash) ^ FILTER);
    let products = std::iter::successors(Some(mixed), |product| Some(product.wrapping_mul(G)));
    let products = products.take(FILTER_KEY_BITS);
    products.map(move |product| scaled(product, bits))
}
