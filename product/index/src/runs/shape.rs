//! [`RibbonShape`]: the shape of the filters of a partition, and the bits of a key's hash that they use.

use std::ops::Range;

use thiserror::Error;

use super::columns::MAX_COLUMNS;

/// Number of slots that the coefficients of a key span.
const WIDTH: u32 = u32::BITS;
/// Most bits of a fingerprint.
const MAX_FINGERPRINT_BITS: u32 = u16::BITS;
/// Most words of a row.
pub(super) const MOST_ROW_WORDS: usize = (MAX_COLUMNS * MAX_FINGERPRINT_BITS / 64) as usize;

/// A key of a ribbon filter: independent bits of its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RibbonKey {
    /// Place in the order of hashes; the slot follows from it.
    pub order: u32,
    /// Slots that take part, from the key's slot on. The first one always does.
    pub coefficients: u32,
    /// Bits that the slots add up to.
    pub fingerprint: u16,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a ribbon has {name} from {} to {}, not {given}", range.start, range.end - 1)]
pub struct ShapeError {
    pub(super) name: &'static str,
    pub(super) range: &'static Range<u32>,
    pub(super) given: u32,
}

/// The shape of the filters of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RibbonShape {
    slots: u32,
    fingerprint_bits: u32,
}

impl RibbonShape {
    /// Creates the shape of filters with this number of slots, one at least for each key of a run, and this number of
    /// bits of a fingerprint: each halves the wrong answers of a run.
    ///
    /// # Errors
    /// Fewer slots than coefficients or more than 2^24, or bits outside of 1 to 16.
    pub fn new(slots: u32, fingerprint_bits: u32) -> Result<Self, ShapeError> {
        const SLOTS: Range<u32> = WIDTH..(1 << 24) + 1;
        const BITS: Range<u32> = 1..MAX_FINGERPRINT_BITS + 1;
        for (name, range, given) in [
            ("slots", &SLOTS, slots),
            ("bits of a fingerprint", &BITS, fingerprint_bits),
        ] {
            if !range.contains(&given) {
                return Err(ShapeError { name, range, given });
            }
        }
        Ok(Self {
            slots,
            fingerprint_bits,
        })
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of bits of a fingerprint.
    pub fn fingerprint_bits(&self) -> u32 {
        self.fingerprint_bits
    }

    /// Returns the first slot of a key. Slots are in the order of the keys.
    #[inline]
    pub(super) fn slot_of(&self, key: &RibbonKey) -> u32 {
        let starts = u64::from(self.slots - WIDTH + 1);
        ((u64::from(key.order) * starts) >> 32) as u32
    }

    pub(super) fn fingerprint_mask(&self) -> u16 {
        u16::MAX >> (MAX_FINGERPRINT_BITS - self.fingerprint_bits)
    }

    /// Returns the words in which a row is read: sums of a fixed number of words stay in registers.
    pub(super) fn words_read(&self, columns: u32) -> usize {
        let words = self.row_bytes(columns).div_ceil(8);
        let fixed = [2, 4, 8, 12, 16, 20, 24, 32, 48];
        fixed
            .into_iter()
            .find(|fixed| *fixed >= words)
            .unwrap_or(MOST_ROW_WORDS)
    }

    /// Returns the bytes of a row with this number of columns.
    pub(super) fn row_bytes(&self, columns: u32) -> usize {
        (columns * self.fingerprint_bits).div_ceil(8) as usize
    }
}
