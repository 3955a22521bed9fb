//! The random bits of one client.
//!
//! xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2019), seeded through
//! SplitMix64. It is written out here and not taken from a library, because a run recorded today must be
//! repeatable with future versions. It must not be used for secrets.
//!
//! Logarithms, powers and cosines in this crate are its own or those of `libm`. The platform's functions are
//! never used, because their last bit differs between machines: the same seed gives the same bytes
//! everywhere.

use crate::math;

/// A deterministic stream of random numbers, one for each client. Not shared between threads.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    state: [u64; 4],
}

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of SplitMix64: a bijection of 64-bit words in which every input bit reaches every
/// output bit.
#[inline]
pub(crate) const fn mix64(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Hashes a pair of words; `salt` keeps different uses of the same pair independent.
#[inline]
pub(crate) const fn mix_pair(salt: u64, left: u64, right: u64) -> u64 {
    mix64(mix64(left.wrapping_add(salt)).wrapping_add(right.wrapping_mul(GOLDEN)))
}

/// Returns a word as a fraction in `[0, 1)` with 53 significant bits.
#[inline]
pub(crate) fn unit_of(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Returns a share as a fraction of 2^64; 1 becomes the largest word.
#[inline]
pub(crate) fn word_of(share: f64) -> u64 {
    (share * 2f64.powi(64)) as u64
}

impl Stream {
    /// Returns the stream of client `client` under `seed`. Different pairs give unrelated streams.
    pub(crate) fn new(seed: u64, client: u64) -> Self {
        let mut word = mix_pair(0x5EED, seed, client);
        let state = std::array::from_fn(|_| {
            word = word.wrapping_add(GOLDEN);
            mix64(word)
        });
        Self { state }
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub(crate) fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns a uniformly distributed integer in `[0, bound)`, without bias (Lemire, "Fast random integer
    /// generation in an interval", 2019). `bound` must not be 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "an empty range has no member");
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// Returns a uniformly distributed fraction in `[0, 1)`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        unit_of(self.next_u64())
    }

    /// Returns a draw of the standard normal distribution (Box and Muller; the second value is not kept, so
    /// that every draw uses the same number of random words).
    #[inline]
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * math::ln(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Returns a draw of the exponential distribution with mean 1.
    #[inline]
    pub(crate) fn exponential(&mut self) -> f64 {
        -math::ln(1.0 - self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::assert_near;

    #[test]
    fn a_stream_repeats_from_its_seed_and_differs_from_its_neighbours() {
        let draw = |seed, client| {
            let mut stream = Stream::new(seed, client);
            [(); 8].map(|()| stream.next_u64())
        };
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
        assert_ne!(draw(3, 7), draw(7, 3));
    }

    /// The first words are pinned: a change would silently make recorded runs unrepeatable.
    #[test]
    fn the_first_words_never_change() {
        let mut stream = Stream::new(1, 0);
        let pinned = [
            5_684_233_354_254_092_556,
            11_226_896_663_949_567_589,
            9_333_336_849_435_127_753,
        ];
        assert_eq!(pinned.map(|_| stream.next_u64()), pinned);
    }

    /// The first outputs of the published reference implementation from state 1, 2, 3, 4.
    #[test]
    fn the_generator_is_xoshiro256_plus_plus() {
        let mut stream = Stream {
            state: [1, 2, 3, 4],
        };
        let words = [(); 3].map(|()| stream.next_u64());
        assert_eq!(words, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn streams_of_neighbouring_clients_are_uncorrelated() {
        let draws = 100_000;
        for client in 0..4 {
            let mut left = Stream::new(42, client);
            let mut right = Stream::new(42, client + 1);
            let covariance: f64 = (0..draws)
                .map(|_| (left.unit() - 0.5) * (right.unit() - 0.5))
                .sum::<f64>()
                / f64::from(draws);
            let deviation = (1.0 / 12.0) / f64::from(draws).sqrt();
            assert_near(covariance, 0.0, 4.0 * deviation);
        }
    }

    #[test]
    fn moments_of_the_continuous_draws_match_their_closed_forms() {
        let mut stream = Stream::new(1, 1);
        let draws = 400_000;
        let moments = |mut draw: Box<dyn FnMut() -> f64>| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..draws {
                let value = draw();
                sum += value;
                squares += value * value;
            }
            let mean = sum / f64::from(draws);
            (mean, squares / f64::from(draws) - mean * mean)
        };
        let mut copy = stream.clone();
        let (mean, variance) = moments(Box::new(move || copy.normal()));
        assert_near(mean, 0.0, 0.01);
        assert_near(variance, 1.0, 0.01);
        let (mean, variance) = moments(Box::new(move || stream.exponential()));
        assert_near(mean, 1.0, 0.01);
        assert_near(variance, 1.0, 0.02);
    }

    #[test]
    fn below_is_uniform_even_when_the_bound_divides_the_word_badly() {
        // With 3/4 of 2^64 as the bound, multiplication without rejection would favour some thirds.
        let bound = 3u64 << 62;
        let mut stream = Stream::new(9, 0);
        let draws = 300_000;
        let odd_multiples = (0..draws)
            .filter(|_| stream.below(bound).is_multiple_of(3))
            .count();
        let expected = f64::from(draws) / 3.0;
        let deviation = (expected * 2.0 / 3.0).sqrt();
        assert_near(odd_multiples as f64, expected, 4.0 * deviation);
    }
}
