//! Bit-sliced Bloom filters of a sequence of blocks: a test of one key against all filters reads a word for each bit of
//! the key, not for each block.
//!
//! ```text
//!   row b   bit b of the filter in column 0 │ in column 1 │ …     a bit each, and rows follow each other without a gap
//!
//!   columns are a ring in order of age:      oldest ┐ free ┌ newest
//!                                         … │   7   │      │   0   │ 1 │ …
//! ```
//!
//! Dropping the oldest filter frees its column for the next one. If no column is free, one is added, so that there are as
//! many columns as there have been blocks at once. Adding a filter makes a copy, without the lock that readers take.
//!
//! Invariant: a key that was added to the filter of a block is never denied. A block whose filter is not made yet has
//! ones in its column.

use std::sync::Arc;

use crate::encoding::mapping::Entry;
use on_flash::bloom::{Bloom, KEY_BITS_HIGHEST};

/// Parameters of Bloom filters of pages or blocks, all of the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    bloom: Bloom,
    /// Bytes of each filter; 0 if filters are off.
    pub(super) bytes: usize,
}

/// The bits of a key in filters of one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyBits {
    bits: [u32; KEY_BITS_HIGHEST as usize],
    count: usize,
}

impl KeyBits {
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.bits[..self.count].iter().map(|&bit| bit as usize)
    }
}

impl Filter {
    /// Returns the parameters of filters for `entries` entries at `bits` bits each.
    pub(super) fn new(entries: usize, bits: u32) -> Self {
        let bytes = Bloom::bytes_for(entries, bits);
        Self {
            bloom: Bloom::new(bits),
            bytes: if bits == 0 { 0 } else { bytes },
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.bytes > 0
    }

    /// Appends the filter of `entries`.
    pub(super) fn append(&self, entries: &[Entry], filters: &mut Vec<u8>) {
        let at = filters.len();
        filters.resize(at + self.bytes, 0);
        let filter = &mut filters[at..];
        entries
            .iter()
            .for_each(|entry| self.bloom.insert(filter, entry.key()));
    }

    /// Returns the filter of `entries`.
    pub(super) fn of(&self, entries: &[Entry]) -> Vec<u8> {
        let mut filter = Vec::with_capacity(self.bytes);
        self.append(entries, &mut filter);
        filter
    }

    /// Returns the bits to test for a key.
    pub(super) fn key_bits(&self, key: u64) -> KeyBits {
        let mut key_bits = KeyBits {
            bits: [0; KEY_BITS_HIGHEST as usize],
            count: 0,
        };
        for (to, bit) in key_bits
            .bits
            .iter_mut()
            .zip(self.bloom.bits(self.bytes, key))
        {
            *to = bit as u32;
            key_bits.count += 1;
        }
        key_bits
    }

    /// Whether filter `number` of those stored in `filters` may have a key.
    pub(super) fn may_have(&self, filters: &[u8], number: usize, key: &KeyBits) -> bool {
        let filter = &filters[number * self.bytes..][..self.bytes];
        key.iter().all(|bit| filter[bit / 8] >> (bit % 8) & 1 == 1)
    }
}

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// The filters of a sequence of blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Slices {
    /// The rows, and a further word so that a word can be read from any bit on.
    words: Option<Arc<[u64]>>,
    columns: usize,
    /// Column of the newest block.
    newest: usize,
    /// Number of blocks, each with a column.
    len: usize,
}

impl Slices {
    /// Creates the slices of blocks whose filters are still to be made.
    pub(super) fn unknown(filter: &Filter, blocks: usize) -> Self {
        let bits = filter.bytes * 8 * blocks;
        Self {
            words: (bits > 0).then(|| vec![u64::MAX; words_for(bits)].into()),
            columns: blocks,
            newest: 0,
            len: blocks,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.words.as_ref().map_or(0, |words| size_of_val(&**words))
    }

    /// Returns a copy with the filter of a new, newest block.
    pub(super) fn with_newest(&self, filter: &[u8]) -> Self {
        let mut next = self.clone();
        if self.len == self.columns {
            next.widen(filter.len() * 8);
        }
        next.newest = (next.newest + next.columns - 1) % next.columns;
        next.len += 1;
        next.set(next.newest, filter);
        next
    }

    /// Sets the filter of a block, counted from the newest.
    pub(super) fn fill(&mut self, block: usize, filter: &[u8]) {
        debug_assert!(block < self.len);
        self.set((self.newest + block) % self.columns, filter);
    }

    /// Keeps the newest `blocks` blocks.
    pub(super) fn truncate(&mut self, blocks: usize) {
        self.len = self.len.min(blocks);
        if self.len == 0 {
            *self = Self::default();
        }
    }

    /// Adds a free column in front of the newest block. The columns are in order of age then.
    fn widen(&mut self, rows: usize) {
        let before = std::mem::take(self);
        *self = Self {
            columns: before.columns + 1,
            newest: 1,
            len: before.len,
            words: None,
        };
        if rows == 0 {
            return;
        }
        let mut bits = BitWriter::new(rows * self.columns);
        for row in 0..rows {
            bits.push(0, 1);
            for (column, count, _) in before.runs() {
                bits.push(before.word(row * before.columns + column), count);
            }
        }
        self.words = Some(bits.end());
    }

    fn set(&mut self, column: usize, filter: &[u8]) {
        let Some(words) = &mut self.words else { return };
        let words = Arc::make_mut(words);
        let mut at = column;
        for byte in filter {
            for bit in 0..8 {
                let word = &mut words[at / WORD];
                let mask = 1u64 << (at % WORD);
                *word = *word & !mask | u64::from(byte >> bit & 1) << (at % WORD);
                at += self.columns;
            }
        }
    }

    /// Returns 64 bits from bit `at` on. Callers ignore the bits behind the last row.
    fn word(&self, at: usize) -> u64 {
        let Some(words) = &self.words else {
            return u64::MAX;
        };
        let (word, shift) = (at / WORD, at % WORD);
        words[word] >> shift | words[word + 1] << 1 << (WORD - 1 - shift)
    }

    /// Returns the columns of all blocks, newest first, in runs that fit a word, as (first column, number of columns,
    /// first block).
    fn runs(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let newer = self.len.min(self.columns - self.newest);
        let parts = [(self.newest, newer, 0), (0, self.len - newer, newer)];
        parts.into_iter().flat_map(|(column, count, block)| {
            let starts = (0..count).step_by(WORD);
            starts.map(move |at| (column + at, (count - at).min(WORD), block + at))
        })
    }

    /// Returns the blocks that may have a key, counted from the newest.
    pub(super) fn may_have(&self, key: KeyBits) -> impl Iterator<Item = usize> {
        self.runs().flat_map(move |(column, count, block)| {
            let all = u64::MAX >> (WORD - count);
            let mut left = key.iter().fold(all, |left, row| match left {
                0 => 0,
                _ => left & self.word(row * self.columns + column),
            });
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(block + bit)
            })
        })
    }
}

fn words_for(bits: usize) -> usize {
    bits.div_ceil(WORD) + 1
}

/// Writer of a sequence of bits.
struct BitWriter {
    words: Vec<u64>,
    /// Bits that do not fill a word yet, and their number.
    rest: u64,
    len: usize,
}

impl BitWriter {
    fn new(bits: usize) -> Self {
        Self {
            words: Vec::with_capacity(words_for(bits)),
            rest: 0,
            len: 0,
        }
    }

    /// Appends the lowest `count` bits, 1 to 64.
    fn push(&mut self, bits: u64, count: usize) {
        let bits = bits & u64::MAX >> (WORD - count);
        self.rest |= bits << self.len;
        self.len += count;
        if self.len >= WORD {
            self.words.push(self.rest);
            self.len -= WORD;
            // Two shifts: a shift by 64 would not be zero.
            self.rest = bits >> 1 >> (count - 1 - self.len);
        }
    }

    fn end(mut self) -> Arc<[u64]> {
        if self.len > 0 {
            self.words.push(self.rest);
        }
        self.words.push(0);
        self.words.into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use format::segment::Position;
    use proptest::prelude::*;

    use super::*;

    fn filter_of(filter: &Filter, keys: &[u64]) -> Vec<u8> {
        let entry = |&key| Entry::new(key, 1, Position::from_bits(0));
        filter.of(&keys.iter().map(entry).collect::<Vec<_>>())
    }

    fn asked(filter: &Filter, slices: &Slices, key: u64) -> Vec<usize> {
        slices.may_have(filter.key_bits(key)).collect()
    }

    proptest! {
        /// Compares with a separate filter for each block.
        #[test]
        fn all_at_once_say_what_each_says(
            bits in prop_oneof![Just(0u32), 1..20u32],
            begin in 0..70usize,
            steps in proptest::collection::vec((0..10u8, any::<u64>(), any::<prop::sample::Index>()), 0..150),
        ) {
            let filter = Filter::new(40, bits);
            let mut slices = Slices::unknown(&filter, begin);
            let mut model: VecDeque<Option<Vec<u8>>> = vec![None; begin].into();
            for (step, seed, of) in steps {
                let keys: Vec<u64> = (0..40).map(|n| seed.wrapping_mul(2 * n + 1)).collect();
                let made = filter_of(&filter, &keys);
                match step {
                    0 => slices.truncate(model.len().saturating_sub(1)),
                    1 if !model.is_empty() => slices.truncate(of.index(model.len())),
                    2 | 3 if !model.is_empty() => {
                        let block = of.index(model.len());
                        slices.fill(block, &made);
                        model[block] = Some(made);
                    }
                    1..=3 => {}
                    _ => {
                        slices = slices.with_newest(&made);
                        model.push_front(Some(made));
                    }
                }
                model.truncate(slices.len());
                for key in keys.into_iter().take(3).chain([seed.rotate_left(9)]) {
                    let key_bits = filter.key_bits(key);
                    let says = |made: &Option<Vec<u8>>| {
                        made.as_ref().is_none_or(|made| filter.may_have(made, 0, &key_bits))
                    };
                    let expected: Vec<usize> =
                        (0..model.len()).filter(|&block| says(&model[block])).collect();
                    prop_assert_eq!(asked(&filter, &slices, key), expected);
                }
            }
        }
    }

    #[test]
    fn a_full_ring_takes_a_bit_a_filter_and_row() {
        let filter = Filter::new(1016, 8);
        let mut slices = Slices::default();
        for block in 0..300u64 {
            slices = slices.with_newest(&filter_of(&filter, &[block]));
            if slices.len() == 65 {
                slices.truncate(64);
            }
        }
        assert_eq!(slices.heap_bytes(), filter.bytes * 65 + 8);
        assert!(asked(&filter, &slices, 299).contains(&0));
        assert!(asked(&filter, &slices, 236).contains(&63));
        assert!(!asked(&filter, &slices, 235).contains(&64));
        slices.truncate(0);
        assert_eq!(slices.heap_bytes(), 0);
    }
}
