//! Lengths drawn from a table of the distribution's quantiles, without its formula.
//!
//! A random word gives length `n` if it lies between the share of lengths below `n` and the share of lengths
//! up to `n`, both as fractions of 2^64. A guide gives, for the word's first bits, the length at which the
//! search starts, so that most draws need one comparison.

use crate::stream::word_of;

/// Lengths from 1 on: the words below each bound give at most the length of its index plus 1.
#[derive(Debug)]
pub(crate) struct Lengths {
    up_to: Box<[u64]>,
    /// For each value of the first bits, the number of lengths whose words lie below it.
    guide: Box<[u16]>,
}

/// Bits of the guide's index.
const GUIDE_BITS: u32 = 12;

impl Lengths {
    /// Returns a table of the lengths `1..=longest`, given that `share_up_to(n)` of all draws have a length
    /// of at most `n`. With `whole`, longer lengths become `longest`.
    pub(crate) fn new(longest: u16, whole: bool, share_up_to: impl Fn(f64) -> f64) -> Self {
        let word = |length| word_of(share_up_to(f64::from(length)));
        let mut up_to: Box<[u64]> = (1..=longest).map(word).collect();
        if let (true, Some(last)) = (whole, up_to.last_mut()) {
            *last = u64::MAX;
        }
        let first = |bits: u64| {
            let smallest = bits << (64 - GUIDE_BITS);
            up_to.partition_point(|&end| end <= smallest) as u16
        };
        let guide = (0..1 << GUIDE_BITS).map(first).collect();
        Self { up_to, guide }
    }

    /// Returns the length for `word`, or `None` if it is beyond the table.
    #[inline]
    pub(crate) fn length(&self, word: u64) -> Option<u32> {
        let start = usize::from(self.guide[(word >> (64 - GUIDE_BITS)) as usize]);
        let beyond = self.up_to[start..]
            .iter()
            .position(|&end| word < end || end == u64::MAX)?;
        Some((start + beyond + 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_the_lengths_between_their_shares() {
        // Lengths 1 to 4 are equally likely.
        let quarter = 1u64 << 62;
        let lengths = Lengths::new(3, false, |bytes| bytes / 4.0);
        for (word, length) in [
            (0, Some(1)),
            (quarter - 1, Some(1)),
            (quarter, Some(2)),
            (3 * quarter - 1, Some(3)),
            (3 * quarter, None),
            (u64::MAX, None),
        ] {
            assert_eq!(lengths.length(word), length, "{word:x}");
        }
        let whole = Lengths::new(3, true, |bytes| bytes / 4.0);
        assert_eq!(
            [3 * quarter, u64::MAX].map(|word| whole.length(word)),
            [Some(3); 2]
        );
    }

    #[test]
    fn lengths_that_never_happen_are_passed_over() {
        let lengths = Lengths::new(100, true, |bytes| if bytes < 40.0 { 0.0 } else { 1.0 });
        assert_eq!(
            [0, 1, u64::MAX].map(|word| lengths.length(word)),
            [Some(40); 3]
        );
    }
}
