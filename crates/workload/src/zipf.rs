//! Zipf-distributed ranks, as YCSB draws them.
//!
//! The method is that of Gray et al., "Quickly generating billion-record synthetic databases"
//! (SIGMOD 1994), section 3: ranks 0 and 1 exactly, the others by inverting a continuous
//! approximation. It needs one power per draw and no table, so a distribution over 10^10 ranks
//! costs no memory.

/// A Zipf distribution over `0..items`: rank `r` has probability `(r + 1)^-theta / zeta`.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: f64,
    /// The generalized harmonic number of `items` and `theta`.
    zeta: f64,
    /// `1 / (1 - theta)`.
    alpha: f64,
    eta: f64,
    /// The cumulated weight of ranks 0 and 1, not divided by zeta.
    first_two: f64,
}

/// Terms of the harmonic sum that are added one by one; the rest is integrated.
const EXACT_TERMS: u64 = 4096;

impl Zipf {
    /// A distribution over `items` ranks (at least 1) with skew `theta` in `(0, 1)`.
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0, "a Zipf distribution needs at least one rank");
        assert!(theta > 0.0 && theta < 1.0, "theta must lie between 0 and 1");
        let zeta = harmonic(items, theta);
        let n = items as f64;
        let first_two = 1.0 + 0.5f64.powf(theta);
        let eta = if items > 2 {
            (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - first_two / zeta)
        } else {
            1.0
        };
        Self {
            items: n,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta,
            first_two,
        }
    }

    /// The rank at quantile `unit`, a number in `[0, 1)`.
    #[inline]
    #[must_use]
    pub fn rank(&self, unit: f64) -> u64 {
        let weight = unit * self.zeta;
        if weight < 1.0 {
            return 0;
        }
        if weight < self.first_two {
            return 1;
        }
        let rank = self.items * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        rank.min(self.items - 1.0) as u64
    }
}

/// The generalized harmonic number: the sum of `i^-theta` for `i` in `1..=items`, to about 12
/// digits (Euler and Maclaurin's formula after the first [`EXACT_TERMS`] terms).
fn harmonic(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let head: f64 = (1..=exact).rev().map(|i| (i as f64).powf(-theta)).sum();
    if exact == items {
        return head;
    }
    let (from, to) = (exact as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = 0.5 * (to.powf(-theta) - from.powf(-theta));
    let slope = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    head + integral + ends + slope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    /// The constant that YCSB ships for its scrambled distribution.
    #[test]
    fn the_harmonic_number_of_ycsb_is_reproduced() {
        assert!((harmonic(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-8);
    }

    #[test]
    fn the_integrated_tail_agrees_with_the_plain_sum() {
        for theta in [0.3, 0.99] {
            let plain: f64 = (1..=100_000).rev().map(|i| f64::from(i).powf(-theta)).sum();
            assert!((harmonic(100_000, theta) / plain - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn ranks_follow_the_closed_form() {
        let (items, theta, draws) = (100_000u64, 0.99, 1_000_000);
        let zipf = Zipf::new(items, theta);
        let mut stream = Stream::new(11, 0);
        let mut counts = vec![0u32; items as usize];
        for _ in 0..draws {
            counts[zipf.rank(stream.unit()) as usize] += 1;
        }
        // The two ranks that the method draws exactly: within four standard deviations.
        for (rank, &count) in counts.iter().enumerate().take(2) {
            let p = ((rank + 1) as f64).powf(-theta) / harmonic(items, theta);
            let expected = p * f64::from(draws);
            let deviation = (expected * (1.0 - p)).sqrt();
            let seen = f64::from(count);
            assert!(
                (seen - expected).abs() < 4.0 * deviation,
                "rank {rank}: {seen} {expected}"
            );
        }
        // The approximated ones: the share of the first k ranks, within 2 % of all draws.
        for k in [10, 100, 1_000, 10_000, 50_000] {
            let expected = harmonic(k, theta) / harmonic(items, theta);
            let seen = counts[..k as usize]
                .iter()
                .map(|&c| f64::from(c))
                .sum::<f64>();
            let seen = seen / f64::from(draws);
            assert!(
                (seen - expected).abs() < 0.02,
                "first {k}: {seen} {expected}"
            );
        }
    }

    #[test]
    fn every_rank_is_in_range() {
        for items in [1, 2, 3, 10, 10_000_000_000] {
            let zipf = Zipf::new(items, 0.99);
            for step in 0..1000 {
                assert!(zipf.rank(f64::from(step) / 1000.0) < items);
            }
            assert!(zipf.rank(1.0 - f64::EPSILON / 2.0) < items);
        }
    }
}
