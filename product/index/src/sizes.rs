//! Number of buckets of a sub-table at each stage of its growth, and the conditions for a change of stage.
//!
//! A sub-table grows by 1/8 when more than 9/10 of its slots would be taken, and shrinks by one stage when less than
//! 37/50 are: 8.9 to 10.8 bytes per entry, whatever the history. All sub-tables fill at nearly the same pace. If all had
//! the same stages, they would all be rebuilt within a short time, and the table's bytes per entry would swing between
//! 8.9 and 10. So each sub-table has its own phase within the step, and the table as a whole stays near the mean.
//!
//! Invariant: the stages of one sub-table are strictly increasing, and a sub-table that has just grown, for whatever
//! reason, is not yet due to shrink (hysteresis).

use crate::sub_table::SLOTS;

/// A sub-table grows when `len / slots` would pass 9/10.
const GROW_NUMERATOR: usize = 9;
const GROW_DENOMINATOR: usize = 10;
/// A sub-table shrinks when `len / slots` is below 37/50.
const SHRINK_NUMERATOR: usize = 37;
const SHRINK_DENOMINATOR: usize = 50;
/// Each stage is 1/8 larger than the one before.
const STEP_DIVISOR: u64 = 8;
/// Fixed-point bits of a size, so that rounding does not align the phases.
const FRACTION_BITS: u32 = 20;
/// From this size on, sizes are multiples of [`ROUNDED_TO`], so that the last chunks of sub-tables come in few sizes, and
/// the allocator can reuse them.
const ROUNDED_FROM: u64 = 256;
const ROUNDED_TO: u64 = 16;

const _: () = {
    // After growth at the limit: 9/10 * 8/9 = 4/5 > 37/50.
    assert!(4 * SHRINK_DENOMINATOR > 5 * SHRINK_NUMERATOR);
    // After shrinking at the limit: 37/50 * 9/8 < 9/10.
    assert!(SHRINK_NUMERATOR * 9 * GROW_DENOMINATOR < GROW_NUMERATOR * SHRINK_DENOMINATOR * 8);
};

/// Whether `buckets` may hold `len` entries.
#[inline]
pub(crate) fn may_hold(buckets: usize, len: usize) -> bool {
    len * GROW_DENOMINATOR <= buckets * SLOTS * GROW_NUMERATOR
}

/// Whether `len` entries are too few for `buckets`.
#[inline]
pub(crate) fn is_sparse(buckets: usize, len: usize) -> bool {
    len * SHRINK_DENOMINATOR < buckets * SLOTS * SHRINK_NUMERATOR
}

/// The stages of one sub-table: `min_buckets`, then growth by 1/8 from a start that depends on
/// the sub-table's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    min_buckets: usize,
    /// Second stage, in fixed point.
    second: u64,
}

impl Stages {
    pub(crate) fn new(min_buckets: usize, sub_table: usize, sub_bits: u32) -> Self {
        let first = (min_buckets as u64) << FRACTION_BITS;
        // Bit reversal spreads the phases of neighbours, and of any power-of-two group of them.
        let reversed = (sub_table as u64).reverse_bits() >> (u64::BITS - FRACTION_BITS);
        let phase = if sub_bits == 0 { 0 } else { reversed };
        let step = first / STEP_DIVISOR;
        let part = ((u128::from(step) * u128::from(phase)) >> FRACTION_BITS) as u64;
        Stages {
            min_buckets,
            second: first + step - part,
        }
    }

    /// Returns the next larger stage.
    pub(crate) fn above(&self, buckets: usize) -> usize {
        self.iter()
            .find(|&stage| stage > buckets)
            .expect("invariant: stages increase for ever")
    }

    /// Returns the smallest stage that may hold `len` entries.
    pub(crate) fn holding(&self, len: usize) -> usize {
        self.iter()
            .find(|&stage| may_hold(stage, len))
            .expect("invariant: stages increase for ever")
    }

    /// Returns the next smaller stage, or `None` for the smallest.
    pub(crate) fn below(&self, buckets: usize) -> Option<usize> {
        self.iter().take_while(|&stage| stage < buckets).last()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let rest = std::iter::successors(Some(self.second), |stage| {
            stage.checked_add(stage / STEP_DIVISOR)
        });
        std::iter::once(self.min_buckets).chain(rest.map(|stage| round(stage >> FRACTION_BITS)))
    }
}

fn round(buckets: u64) -> usize {
    let rounded = if buckets < ROUNDED_FROM {
        buckets
    } else {
        (buckets + ROUNDED_TO / 2) / ROUNDED_TO * ROUNDED_TO
    };
    rounded as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_increase_by_an_eighth() {
        for sub_table in 0..64 {
            let stages = Stages::new(8, sub_table, 6);
            let mut buckets = 8;
            while buckets < 1 << 20 {
                let next = stages.above(buckets);
                assert!(next > buckets);
                let rounding = if next < ROUNDED_FROM as usize {
                    1
                } else {
                    ROUNDED_TO as usize
                };
                assert!(
                    next <= buckets + buckets / 8 + rounding,
                    "{buckets} to {next}"
                );
                assert!(stages.below(next) <= Some(buckets));
                buckets = next;
            }
        }
        assert_eq!(Stages::new(8, 0, 0).below(8), None);
    }

    #[test]
    fn phases_differ_between_sub_tables() {
        let at_1000: std::collections::BTreeSet<usize> = (0..64)
            .map(|sub_table| Stages::new(16, sub_table, 6).above(1000))
            .collect();
        assert!(
            at_1000.len() >= 7,
            "only {} sizes among 64 sub-tables",
            at_1000.len()
        );
    }

    #[test]
    fn a_size_that_has_just_changed_does_not_change_back() {
        for buckets in 8..3000 {
            let stages = Stages::new(8, 0, 0);
            let limit = (0..)
                .take_while(|&len| may_hold(buckets, len))
                .last()
                .unwrap();
            let grown = stages.above(buckets);
            if grown >= 32 {
                assert!(!is_sparse(grown, limit + 1), "{buckets} to {grown}");
            }
        }
    }
}
