//! [`SlicedRibbon`]: the ribbon filters of all runs of a partition, side by side.

use std::ops::Range;

use super::columns::{Columns, MAX_COLUMNS, WORDS};
use super::shape::{MOST_ROW_WORDS, RibbonKey, RibbonShape, ShapeError};
use super::solver::Solution;

/// Bytes behind the last row, at least: rows are read by words.
const SPARE_BYTES: usize = size_of::<u128>();

/// The filters of up to as many runs of a partition as there are columns. A look-up asks all of them at once, by up to 32
/// neighbouring rows.
///
/// ```text
///   row of a slot:  bit 0 of columns 0, 1, … │ bit 1 of columns 0, 1, … │ …      a whole number of bytes
/// ```
///
/// Columns are a ring: runs come at one end and go at the other, the oldest first.
#[derive(Clone, Debug)]
pub struct SlicedRibbon {
    shape: RibbonShape,
    columns: u32,
    /// Row by row, and the words that the read of a row goes beyond the last.
    rows: Box<[u8]>,
    /// The columns of runs.
    valid: [u64; WORDS],
    /// The newest run's column.
    newest: u32,
    runs: u32,
}

impl SlicedRibbon {
    /// Creates filters for up to `columns` runs, 512 at most.
    ///
    /// # Errors
    /// A number of columns out of range.
    pub fn new(shape: RibbonShape, columns: u32) -> Result<Self, ShapeError> {
        const COLUMNS: Range<u32> = 1..MAX_COLUMNS + 1;
        if !COLUMNS.contains(&columns) {
            return Err(ShapeError {
                name: "columns",
                range: &COLUMNS,
                given: columns,
            });
        }
        let bytes = shape.row_bytes(columns) * shape.slots() as usize;
        Ok(Self {
            shape,
            columns,
            rows: vec![0; bytes + shape.words_read(columns) * 8].into(),
            valid: [0; WORDS],
            newest: columns - 1,
            runs: 0,
        })
    }

    /// Returns the shape of each filter.
    pub fn shape(&self) -> RibbonShape {
        self.shape
    }

    /// Returns the number of columns, taken or free.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// Returns the bytes of memory that the rows take.
    pub fn memory_bytes(&self) -> usize {
        self.rows.len()
    }

    /// Adds the newest run. Returns its column, or `None` if all are taken.
    ///
    /// # Panics
    /// If the solution is of another number of slots.
    pub fn publish(&mut self, solution: &Solution) -> Option<u32> {
        if self.runs == self.columns {
            return None;
        }
        let column = (self.newest + 1) % self.columns;
        self.write(column, solution);
        self.newest = column;
        self.valid[column as usize / 64] |= 1 << (column % 64);
        self.runs += 1;
        Some(column)
    }

    /// Adds a run that is older than all others. Returns its column, or `None` if all are taken.
    ///
    /// # Panics
    /// If the solution is of another number of slots.
    pub fn publish_oldest(&mut self, solution: &Solution) -> Option<u32> {
        if self.runs == self.columns {
            return None;
        }
        let column = (self.newest + self.columns - self.runs) % self.columns;
        self.write(column, solution);
        self.valid[column as usize / 64] |= 1 << (column % 64);
        self.runs += 1;
        Some(column)
    }

    fn write(&mut self, column: u32, solution: &Solution) {
        assert_eq!(
            solution.values.len(),
            self.shape.slots() as usize,
            "the solution has the shape of the filters"
        );
        let row_bytes = self.shape.row_bytes(self.columns);
        for (row, value) in self.rows.chunks_exact_mut(row_bytes).zip(&solution.values) {
            for bit in 0..self.shape.fingerprint_bits() {
                let at = bit * self.columns + column;
                let byte = &mut row[at as usize / 8];
                let own = (value >> bit & 1) as u8;
                *byte = *byte & !(1 << (at % 8)) | own << (at % 8);
            }
        }
    }

    /// Drops the oldest run. Returns the column that it had.
    pub fn retire(&mut self) -> Option<u32> {
        let oldest = self.oldest_first().next()?;
        self.valid[oldest as usize / 64] &= !(1 << (oldest % 64));
        self.runs -= 1;
        Some(oldest)
    }

    /// Returns the number of runs that are older than that of a column.
    pub fn age_of(&self, column: u32) -> u32 {
        let oldest = (self.newest + 1 + self.columns - self.runs) % self.columns;
        (column + self.columns - oldest) % self.columns
    }

    /// Returns the columns of all runs, the oldest first.
    fn oldest_first(&self) -> impl Iterator<Item = u32> + use<> {
        let (columns, first) = (self.columns, self.newest + 1 + self.columns - self.runs);
        (0..self.runs).map(move |run| (first + run) % columns)
    }

    /// Returns filters of the same runs with another number of columns: the runs have the first columns, in the order of
    /// their age.
    ///
    /// # Errors
    /// A number of columns out of range, or below the number of runs.
    pub fn resized(&self, columns: u32) -> Result<Self, ShapeError> {
        let mut other = Self::new(self.shape, columns.max(self.runs))?;
        let oldest = (self.newest + 1 + self.columns - self.runs) % self.columns;
        let before_end = self.runs.min(self.columns - oldest);
        // First column and number of columns, from the oldest run on.
        let parts = [(oldest, before_end), (0, self.runs - before_end)];
        let free = other.columns - self.runs;
        let (row_bytes, other_bytes) = (
            self.shape.row_bytes(self.columns),
            self.shape.row_bytes(other.columns),
        );
        for slot in 0..self.shape.slots() as usize {
            let row = &self.rows[slot * row_bytes..];
            let mut out = BitWriter::new(&mut other.rows[slot * other_bytes..]);
            for bit in 0..self.shape.fingerprint_bits() {
                for (first, count) in parts {
                    out.copy(row, bit * self.columns + first, count);
                }
                out.skip(free);
            }
            out.end();
        }
        other.valid = std::array::from_fn(|word| first_bits(self.runs, word as u32 * 64));
        other.newest = (self.runs + other.columns - 1) % other.columns;
        other.runs = self.runs;
        Ok(other)
    }

    /// Returns the columns of the runs that may hold a key: that which holds it, unless the key was left behind, and each
    /// other one with a probability of one in two to the power of the bits of a fingerprint.
    #[inline]
    pub fn candidates(&self, key: &RibbonKey) -> Columns {
        let found = match self.shape.words_read(self.columns) {
            2 => self.ask::<2>(key),
            4 => self.ask::<4>(key),
            8 => self.ask::<8>(key),
            12 => self.ask::<12>(key),
            16 => self.ask::<16>(key),
            20 => self.ask::<20>(key),
            24 => self.ask::<24>(key),
            32 => self.ask::<32>(key),
            48 => self.ask::<48>(key),
            _ => self.ask::<MOST_ROW_WORDS>(key),
        };
        Columns::new(found, self.newest)
    }

    /// Returns the columns whose filters say of a key that their runs may hold it, by rows of up to `W` words.
    #[inline]
    fn ask<const W: usize>(&self, key: &RibbonKey) -> [u64; WORDS] {
        let row_bytes = self.shape.row_bytes(self.columns);
        let first = self.shape.slot_of(key) as usize * row_bytes;
        let mut sums = [0u64; W];
        let mut coefficients = key.coefficients | 1;
        while coefficients != 0 {
            let at = first + coefficients.trailing_zeros() as usize * row_bytes;
            let (row, _) = self.rows[at..at + W * 8].as_chunks::<8>();
            for (sum, word) in sums.iter_mut().zip(row) {
                *sum ^= u64::from_le_bytes(*word);
            }
            coefficients &= coefficients - 1;
        }
        let mut found = self.valid;
        let found_words = self.columns.div_ceil(64) as usize;
        for bit in 0..self.shape.fingerprint_bits() {
            let own = u64::from(key.fingerprint >> bit & 1).wrapping_neg();
            let at = (bit * self.columns) as usize;
            for (number, word) in found[..found_words].iter_mut().enumerate() {
                let at = at + number * 64;
                let next = sums.get(at / 64 + 1).copied().unwrap_or(0);
                let pair = u128::from(sums[at / 64]) | u128::from(next) << 64;
                *word &= !((pair >> (at % 64)) as u64 ^ own);
            }
        }
        found
    }
}

/// Returns the bits of a word that belong to the first `count` ones, where the word begins with number `start`.
fn first_bits(count: u32, start: u32) -> u64 {
    match count.saturating_sub(start) {
        0 => 0,
        ones => u64::MAX >> (64 - ones.min(64)),
    }
}

/// Writes bits one behind the other, and up to eight bytes of zeros behind the last.
struct BitWriter<'a> {
    out: &'a mut [u8],
    /// Bits that are not written yet: fewer than 64.
    bits: u64,
    count: u32,
    written: usize,
}

impl<'a> BitWriter<'a> {
    fn new(out: &'a mut [u8]) -> Self {
        Self {
            out,
            bits: 0,
            count: 0,
            written: 0,
        }
    }

    /// Appends up to 64 bits; those above are zeros.
    #[inline]
    fn push(&mut self, bits: u64, count: u32) {
        let all = u128::from(self.bits) | u128::from(bits) << self.count;
        self.count += count;
        self.bits = all as u64;
        if self.count >= 64 {
            self.write();
            self.bits = (all >> 64) as u64;
            self.count -= 64;
        }
    }

    fn write(&mut self) {
        self.out[self.written..][..8].copy_from_slice(&self.bits.to_le_bytes());
        self.written += 8;
    }

    /// Appends `count` bits, from bit `first` of `from` on, which goes on for [`SPARE_BYTES`] behind the last.
    #[inline]
    fn copy(&mut self, from: &[u8], first: u32, count: u32) {
        for start in (0..count).step_by(64) {
            let at = (first + start) as usize;
            let word: [u8; SPARE_BYTES] = from[at / 8..][..SPARE_BYTES]
                .try_into()
                .expect("as long as asked for");
            let word = (u128::from_le_bytes(word) >> (at % 8)) as u64;
            let some = (count - start).min(64);
            self.push(word & first_bits(some, 0), some);
        }
    }

    /// Appends zeros.
    fn skip(&mut self, count: u32) {
        for start in (0..count).step_by(64) {
            self.push(0, (count - start).min(64));
        }
    }

    fn end(mut self) {
        self.write();
    }
}
