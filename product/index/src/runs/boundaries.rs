//! [`PageBoundaries`]: the page of a key in a run.

use std::ops::RangeInclusive;

/// Steps of the order of hashes for each item of a run: boundaries are cut to a whole number of steps.
const STEPS: u64 = 4;

/// The boundaries between the pages of a run whose items lie in the order of their hashes, and may cross pages.
///
/// The boundary of a page is the place, in the order of hashes, of the item that crosses into the page, else of its first
/// item. A key between two boundaries is on the page of the lower one alone. A key at a boundary may begin on the page before.
///
/// Boundaries are coded by Elias and Fano: the low bits of each as they are, and the high bits in unary, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageBoundaries {
    /// Steps of the whole order.
    steps: u64,
    /// Number of boundaries: those of all pages but the first.
    len: u32,
    low_bits: u32,
    /// Low bits of the boundaries, then the high ones: for each value of them as many ones as boundaries, and a zero.
    words: Box<[u64]>,
}

impl PageBoundaries {
    /// Encodes the boundaries of all pages but the first: places in the order of hashes, in rising order, of a run of
    /// `items`.
    pub fn new(items: u32, boundaries: &[u32]) -> Self {
        let mut this = Self::empty(items, boundaries.len() as u32);
        let high_at = u64::from(this.len * this.low_bits);
        for (number, &boundary) in boundaries.iter().enumerate() {
            let step = this.step_of(boundary);
            let low = step & this.low_mask();
            this.set(number as u64 * u64::from(this.low_bits), low);
            this.set(high_at + (step >> this.low_bits) + number as u64, 1);
        }
        this
    }

    /// Returns `len` boundaries of a run of `items`, without their bits.
    fn empty(items: u32, len: u32) -> Self {
        let steps = STEPS * u64::from(items.max(1));
        let low_bits = (steps / u64::from(len.max(1))).max(1).ilog2();
        let high_at = u64::from(len * low_bits);
        let bits = high_at + u64::from(len) + (steps >> low_bits) + 1;
        Self {
            steps,
            len,
            low_bits,
            words: vec![0; bits.div_ceil(64) as usize + 1].into(),
        }
    }

    /// Returns `len` encoded boundaries of a run of `items`; `None` if they have another number of words.
    pub fn of_words(items: u32, len: u32, words: &[u64]) -> Option<Self> {
        let mut this = Self::empty(items, len);
        (this.words.len() == words.len()).then(|| this.words.copy_from_slice(words))?;
        Some(this)
    }

    /// Returns the encoded boundaries.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    fn step_of(&self, order: u32) -> u64 {
        (u64::from(order) * self.steps) >> 32
    }

    fn low_mask(&self) -> u64 {
        (1 << self.low_bits) - 1
    }

    /// Sets bits that are still clear.
    fn set(&mut self, at: u64, bits: u64) {
        let shifted = u128::from(bits) << (at % 64);
        self.words[at as usize / 64] |= shifted as u64;
        self.words[at as usize / 64 + 1] |= (shifted >> 64) as u64;
    }

    fn word_at(&self, at: u64) -> u64 {
        let word = |number: usize| self.words.get(number).copied().map_or(0, u128::from);
        let pair = word(at as usize / 64) | word(at as usize / 64 + 1) << 64;
        (pair >> (at % 64)) as u64
    }

    /// Returns the pages on which a key may be: one, or from the first to the last on which the items at its place lie.
    pub fn pages_of(&self, order: u32) -> RangeInclusive<u32> {
        let step = self.step_of(order);
        let (high, low) = (step >> self.low_bits, step & self.low_mask());
        let at = u64::from(self.len * self.low_bits);
        let mut number = self.ones_before_zero(at, high);
        let (mut below, mut up_to) = (number, number);
        while self.word_at(at + high + u64::from(number)) & 1 == 1 {
            let own = self.word_at(u64::from(number * self.low_bits)) & self.low_mask();
            below += u32::from(own < low);
            up_to += u32::from(own <= low);
            number += 1;
        }
        // The first page has no boundary. Its number is that of the boundaries below.
        match below == up_to {
            true => below..=below,
            false => below..=up_to,
        }
    }

    /// Returns the number of ones before the zero with this number, counted from 1; 0 before the zero with the number 0.
    fn ones_before_zero(&self, mut at: u64, mut zeros: u64) -> u32 {
        let mut ones = 0;
        while zeros > 0 {
            let word = self.word_at(at);
            let in_word = u64::from(word.count_zeros());
            if in_word < zeros {
                zeros -= in_word;
                ones += word.count_ones();
                at += 64;
                continue;
            }
            let mut word = word;
            loop {
                let run = word.trailing_ones();
                ones += run;
                zeros -= 1;
                if zeros == 0 {
                    break;
                }
                word >>= run + 1;
            }
        }
        ones
    }

    /// Returns the bytes of memory that the boundaries take.
    pub fn memory_bytes(&self) -> usize {
        self.words.len() * 8
    }
}
