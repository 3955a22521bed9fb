//! [`Columns`]: a set of columns of a sliced ribbon.

/// Most columns of a sliced ribbon.
pub const MAX_COLUMNS: u32 = 512;
pub(super) const WORDS: usize = MAX_COLUMNS.div_ceil(64) as usize;

/// A set of columns, the newest run's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    words: [u64; WORDS],
    /// The column of the newest run. Columns below it are older, then those from the highest one down.
    newest: u32,
}

impl Columns {
    pub(super) fn new(words: [u64; WORDS], newest: u32) -> Self {
        Self { words, newest }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// Returns the number of columns.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Takes the column of the highest number that is at most `limit`.
    fn take_below(&mut self, limit: u32) -> Option<u32> {
        let last = limit as usize / 64;
        let mut mask = u64::MAX >> (63 - limit % 64);
        for number in (0..=last).rev() {
            let word = self.words[number] & mask;
            if word != 0 {
                let bit = word.ilog2();
                self.words[number] &= !(1 << bit);
                return Some(number as u32 * 64 + bit);
            }
            mask = u64::MAX;
        }
        None
    }
}

impl Iterator for Columns {
    type Item = u32;

    /// Returns the column of the newest run left.
    fn next(&mut self) -> Option<u32> {
        self.take_below(self.newest)
            .or_else(|| self.take_below(MAX_COLUMNS - 1))
    }
}
