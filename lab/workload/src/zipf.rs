//! Zipf-distributed ranks, exactly, for any exponent.
//!
//! The method is rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", 1996): it inverts a continuous density that lies above the weights, and
//! draws again for the few points that fall between both. A draw needs about one power and no table, so a
//! distribution over 10^10 ranks takes no memory.
//!
//! YCSB draws from the same distribution with an approximation (Gray et al., SIGMOD 1994) that gives single
//! ranks a few percent more or less than their weight, and fails for exponents from 1. Production caches have
//! exponents up to 2.7, and a draw that follows its formula can be tested.

use crate::math;
use crate::stream::Stream;

/// Largest exponent accepted. Beyond it, almost every draw is rank 0.
pub(crate) const MAX_THETA: f64 = 10.0;

/// A Zipf distribution over `0..items`: rank `r` has probability `(r + 1)^-theta / zeta`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zipf {
    theta: f64,
    /// `1 / (1 - theta)`; infinite for an exponent of 1.
    inverse: f64,
    items: f64,
    /// The integral of the density at the lower end of rank 0, which is cut so that rank 0 is
    /// never rejected, and at the upper end of the last rank.
    lowest: f64,
    highest: f64,
    /// A point this close below its rank is accepted without computing a power.
    shortcut: f64,
}

/// Exponents this close to 1 are taken as 1, where the integral is a logarithm.
const NEARLY_ONE: f64 = 1e-9;

/// Terms of the harmonic sum that are added one by one; the rest is integrated.
const EXACT_TERMS: u64 = 4096;

impl Zipf {
    /// Returns a distribution over `items` ranks (at least 1) with skew `theta` in `0.0..=MAX_THETA`.
    pub(crate) fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0, "a Zipf distribution needs at least one rank");
        assert!(
            (0.0..=MAX_THETA).contains(&theta),
            "theta must lie between 0 and {MAX_THETA}"
        );
        let nearly_one = (theta - 1.0).abs() < NEARLY_ONE;
        let mut zipf = Self {
            theta,
            inverse: if nearly_one {
                f64::INFINITY
            } else {
                1.0 / (1.0 - theta)
            },
            items: items as f64,
            lowest: 0.0,
            highest: 0.0,
            shortcut: 0.0,
        };
        zipf.lowest = zipf.integral(1.5) - 1.0;
        zipf.highest = zipf.integral(items as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.point_at(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Returns a random rank.
    #[inline]
    pub(crate) fn rank(&self, stream: &mut Stream) -> u64 {
        loop {
            let area = self.highest + stream.unit() * (self.lowest - self.highest);
            let point = self.point_at(area);
            // Ranks count from 1 here.
            let rank = ((point + 0.5) as i64 as f64).clamp(1.0, self.items);
            if rank - point <= self.shortcut
                || area >= self.integral(rank + 0.5) - self.weight(rank)
            {
                return rank as u64 - 1;
            }
        }
    }

    /// Returns the probability of `rank`, a number below the number of ranks.
    pub(crate) fn probability(&self, rank: u64) -> f64 {
        self.weight(rank as f64 + 1.0) / harmonic(self.items as u64, self.theta)
    }

    /// Returns the probabilities of all ranks.
    pub(crate) fn probabilities(&self) -> Vec<f64> {
        let all = harmonic(self.items as u64, self.theta);
        let weight = |rank| self.weight(rank as f64) / all;
        (1..=self.items as u64).map(weight).collect()
    }

    /// Returns the share of the draws that go to the first `ranks` ranks.
    pub(crate) fn share_of_first(&self, ranks: u64) -> f64 {
        let ranks = ranks.min(self.items as u64);
        if ranks == 0 {
            return 0.0;
        }
        harmonic(ranks, self.theta) / harmonic(self.items as u64, self.theta)
    }

    #[inline]
    fn weight(&self, x: f64) -> f64 {
        math::pow(x, -self.theta)
    }

    /// Returns the integral of the weight, up to a constant.
    #[inline]
    fn integral(&self, x: f64) -> f64 {
        if self.inverse.is_infinite() {
            math::ln(x)
        } else {
            (math::pow(x, 1.0 - self.theta) - 1.0) * self.inverse
        }
    }

    /// Returns the inverse of [`Zipf::integral`].
    #[inline]
    fn point_at(&self, area: f64) -> f64 {
        if self.inverse.is_infinite() {
            math::exp(area)
        } else {
            math::pow(1.0 + area * (1.0 - self.theta), self.inverse)
        }
    }
}

/// Returns the generalized harmonic number: the sum of `i^-theta` for `i` in `1..=items`, to about 12 digits
/// (Euler and Maclaurin's formula after the first [`EXACT_TERMS`] terms).
pub(crate) fn harmonic(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let head: f64 = (1..=exact).rev().map(|i| libm::pow(i as f64, -theta)).sum();
    if exact == items {
        return head;
    }
    let (from, to) = (exact as f64, items as f64);
    let integral = if (theta - 1.0).abs() < NEARLY_ONE {
        libm::log(to / from)
    } else {
        (libm::pow(to, 1.0 - theta) - libm::pow(from, 1.0 - theta)) / (1.0 - theta)
    };
    let ends = 0.5 * (libm::pow(to, -theta) - libm::pow(from, -theta));
    let slope = theta / 12.0 * (libm::pow(from, -theta - 1.0) - libm::pow(to, -theta - 1.0));
    head + integral + ends + slope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_fits, assert_near, tally};

    /// The constant that YCSB ships for its scrambled distribution.
    #[test]
    fn the_harmonic_number_of_ycsb_is_reproduced() {
        assert_near(harmonic(10_000_000_000, 0.99), 26.469_028_201_783_02, 1e-8);
    }

    #[test]
    fn the_integrated_tail_agrees_with_the_plain_sum() {
        for theta in [0.3, 0.99, 1.0, 2.5] {
            let plain: f64 = (1..=100_000).rev().map(|i| f64::from(i).powf(-theta)).sum();
            assert_near(harmonic(100_000, theta) / plain, 1.0, 1e-12);
        }
    }

    #[test]
    fn ranks_follow_the_closed_form_for_every_exponent() {
        for theta in [0.0, 0.02, 0.5, 0.99, 1.0, 1.2, 2.7] {
            let zipf = Zipf::new(5_000, theta);
            let mut stream = Stream::new(11, 0);
            let counts = tally(5_000, 1_000_000, |_| zipf.rank(&mut stream) as usize);
            assert_fits(&counts, &zipf.probabilities());
        }
    }

    #[test]
    fn shares_of_the_first_ranks_hold_over_ten_billion() {
        let zipf = Zipf::new(10_000_000_000, 0.99);
        let (mut stream, draws) = (Stream::new(3, 0), 400_000u32);
        let ranks: Vec<u64> = (0..draws).map(|_| zipf.rank(&mut stream)).collect();
        for first in [1, 10, 1_000, 1_000_000, 1_000_000_000] {
            let seen = ranks.iter().filter(|&&rank| rank < first).count() as f64;
            let share = zipf.share_of_first(first);
            let deviation = (share * (1.0 - share) * f64::from(draws)).sqrt();
            assert_near(seen, share * f64::from(draws), 4.0 * deviation);
        }
    }

    #[test]
    fn every_rank_is_in_range() {
        for items in [1, 2, 3, 10, 10_000_000_000] {
            for theta in [0.0, 0.99, 1.0, MAX_THETA] {
                let zipf = Zipf::new(items, theta);
                let mut stream = Stream::new(1, items);
                assert!((0..2000).all(|_| zipf.rank(&mut stream) < items));
            }
        }
    }
}
