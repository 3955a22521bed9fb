//! A permutation of the numbers below a bound that spreads neighbours apart.
//!
//! Without it, the most popular keys would have the lowest ids, and a store that keeps keys in the order of
//! their ids would have the popular ones side by side.

use crate::divisor::Divisor;

/// The permutation `number x multiplier mod bound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scatter {
    bound: Divisor,
    multiplier: u64,
}

impl Scatter {
    /// Returns a permutation of `0..bound` (at least 1).
    pub(crate) fn over(bound: u64) -> Self {
        // Near the golden ratio, so that runs of neighbours stay evenly spread.
        let start = (bound as f64 * 0.618_033_988_749_894_9) as u64;
        let multiplier = (start.max(1)..)
            .find(|&candidate| greatest_common_divisor(candidate, bound) == 1)
            .unwrap_or(1);
        Self {
            bound: Divisor::new(bound),
            multiplier,
        }
    }

    /// Returns the place of `number`, which must be below the bound.
    #[inline]
    pub(crate) fn place(&self, number: u64) -> u64 {
        let bound = self.bound.get();
        debug_assert!(number < bound, "{number} is outside the permutation");
        match number.checked_mul(self.multiplier) {
            Some(product) => self.bound.divide(product).1,
            None => {
                let product = u128::from(number) * u128::from(self.multiplier);
                (product % u128::from(bound)) as u64
            }
        }
    }
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    let (mut left, mut right) = (left, right);
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        for bound in [1, 2, 3, 10, 1000, 4096, 9973] {
            let scatter = Scatter::over(bound);
            let mut taken = vec![false; bound as usize];
            for number in 0..bound {
                let place = &mut taken[scatter.place(number) as usize];
                assert!(!*place, "{bound}: two numbers share a place");
                *place = true;
            }
        }
    }

    #[test]
    fn large_bounds_do_not_overflow() {
        let bound = u64::MAX;
        let scatter = Scatter::over(bound);
        let exact = u128::from(bound - 1) * u128::from(scatter.multiplier) % u128::from(bound);
        assert_eq!(u128::from(scatter.place(bound - 1)), exact);
    }

    #[test]
    fn neighbours_are_far_apart() {
        let scatter = Scatter::over(1_000_000);
        for number in 0..100 {
            let (one, next) = (scatter.place(number), scatter.place(number + 1));
            assert!(one.abs_diff(next) > 100_000, "{one} {next}");
        }
    }
}
