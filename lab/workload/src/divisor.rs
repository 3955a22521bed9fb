//! Division by a fixed number as a multiplication: several times as fast as the machine's division.

/// A divisor, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    /// `(2^64 - 1) / divisor`, rounded down.
    inverse: u64,
}

impl Divisor {
    pub(crate) fn new(divisor: u64) -> Self {
        Self {
            divisor,
            inverse: u64::MAX / divisor,
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.divisor
    }

    /// Returns quotient and remainder of `number`.
    #[inline]
    pub(crate) fn divide(&self, number: u64) -> (u64, u64) {
        // The inverse is too small by less than 1 + 1/divisor parts of 2^64 / divisor, so the
        // product falls short of the quotient by at most 1.
        let quotient = ((u128::from(number) * u128::from(self.inverse)) >> 64) as u64;
        let remainder = number - quotient * self.divisor;
        if remainder >= self.divisor {
            (quotient + 1, remainder - self.divisor)
        } else {
            (quotient, remainder)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quotients_are_those_of_the_machine(
            number in prop_oneof![any::<u64>(), 0u64..1000, u64::MAX - 1000..],
            divisor in prop_oneof![(0u32..64).prop_map(|b| 1 << b), 1u64.., 1u64..1000, u64::MAX - 1000..],
        ) {
            for number in [number, number / divisor * divisor, (number / divisor * divisor).wrapping_sub(1)] {
                let expected = (number / divisor, number % divisor);
                prop_assert_eq!(Divisor::new(divisor).divide(number), expected);
            }
        }
    }
}
