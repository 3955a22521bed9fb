//! Lengths of values and names: pure functions of the seed and the key id.
//!
//! A key's sizes never change, whichever client writes it and however often.

use std::sync::{Arc, LazyLock};

use crate::histogram::SizeHistogram;
use crate::key_id::{KeyId, MAX_KEY_BYTES};
use crate::lengths::Lengths;
use crate::math;
use crate::stream::{mix_pair, mix64, unit_of};

/// Default of the longest value of the ETC distribution, in bytes: memcached's default bound, less space for
/// key and header.
pub const DEFAULT_MAX_VALUE_BYTES: u32 = 1_000_000;

/// Lengths of values.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueSize {
    /// All values have this many bytes.
    Fixed(u32),
    /// Lengths follow the value sizes of Facebook's ETC pool: a generalized Pareto distribution
    /// with location 0, scale 214.476 and shape 0.348238, rounded up and truncated to
    /// `1..=max_bytes` (Atikoglu et al., SIGMETRICS 2012, section 5).
    Etc {
        /// The longest value, in bytes.
        max_bytes: u32,
    },
    /// Lengths are geometrically distributed: among all distributions with the same mean, this one assumes
    /// least.
    Geometric(Geometric),
    /// Lengths follow a measured histogram.
    Measured(Arc<SizeHistogram>),
}

/// The geometric distribution over `1, 2, 3, ...`, truncated at [`DEFAULT_MAX_VALUE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometric {
    mean: f64,
    /// `1 / ln(1 - 1 / mean)`.
    scale: f64,
}

impl Geometric {
    /// Returns the distribution with mean `mean`, in bytes. Means below 1 are taken as 1.
    pub fn new(mean: f64) -> Self {
        let mean = mean.max(1.0);
        Self {
            mean,
            scale: 1.0 / libm::log1p(-1.0 / mean),
        }
    }

    #[inline]
    fn quantile(&self, unit: f64) -> u32 {
        let bytes = 1.0 + math::ln(1.0 - unit) * self.scale;
        (bytes as u32).min(DEFAULT_MAX_VALUE_BYTES)
    }
}

/// The generalized Pareto distribution of ETC values; its location is 0.
const VALUE_SCALE: f64 = 214.476;
const VALUE_SHAPE: f64 = 0.348_238;

/// The generalized extreme value distribution of ETC keys.
const KEY_LOCATION: f64 = 30.7984;
const KEY_SCALE: f64 = 8.20449;
const KEY_SHAPE: f64 = 0.078_688;

/// Keeps the sizes of a key's name and value independent of each other.
const VALUE_SALT: u64 = 0x7661_6C75;
const KEY_SALT: u64 = 0x6B65_7900;

impl ValueSize {
    /// Returns the length of the value of `id`, in bytes.
    #[inline]
    pub fn of(&self, seed: u64, id: KeyId) -> u32 {
        let word = || mix_pair(VALUE_SALT, seed, id.0);
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Etc { max_bytes } => {
                let word = word();
                let bytes = ETC_VALUES.length(word).unwrap_or_else(|| {
                    // The next whole number: exactly whole ones have no probability.
                    (pareto_quantile(unit_of(word), VALUE_SCALE, VALUE_SHAPE) as u32)
                        .saturating_add(1)
                });
                bytes.clamp(1, *max_bytes)
            }
            Self::Geometric(geometric) => geometric.quantile(unit_of(word())),
            Self::Measured(histogram) => {
                let word = word();
                histogram.size(word, mix64(word))
            }
        }
    }

    /// Returns the longest possible value, in bytes.
    pub fn longest(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Etc { max_bytes } => *max_bytes,
            Self::Geometric(geometric) if geometric.mean == 1.0 => 1,
            Self::Geometric(_) => DEFAULT_MAX_VALUE_BYTES,
            Self::Measured(histogram) => histogram.longest,
        }
    }
}

/// Returns the length of an ETC key's name, in bytes.
#[inline]
pub(crate) fn etc_key_len(seed: u64, id: KeyId) -> usize {
    let length = ETC_KEYS.length(mix_pair(KEY_SALT, seed, id.0));
    length.map_or(MAX_KEY_BYTES, |bytes| bytes as usize)
}

/// Table of ETC key lengths; longer keys have the longest length.
static ETC_KEYS: LazyLock<Lengths> =
    LazyLock::new(|| Lengths::new(MAX_KEY_BYTES as u16, true, etc_key_share));

/// Table of the lengths of nineteen of twenty ETC values.
static ETC_VALUES: LazyLock<Lengths> =
    LazyLock::new(|| Lengths::new(1_024, false, etc_value_share));

/// Returns the share of ETC values of at most `bytes`, a whole number.
pub(crate) fn etc_value_share(bytes: f64) -> f64 {
    1.0 - libm::pow(1.0 + VALUE_SHAPE * bytes / VALUE_SCALE, -1.0 / VALUE_SHAPE)
}

/// Returns the share of ETC keys whose names have at most `bytes`, a whole number.
pub(crate) fn etc_key_share(bytes: f64) -> f64 {
    // Lengths are rounded, so that "at most x" means below x and a half.
    let reduced = 1.0 + KEY_SHAPE * (bytes + 0.5 - KEY_LOCATION) / KEY_SCALE;
    libm::exp(-libm::pow(reduced.max(0.0), -1.0 / KEY_SHAPE))
}

/// Returns a quantile of the generalized Pareto distribution with location 0.
fn pareto_quantile(unit: f64, scale: f64, shape: f64) -> f64 {
    scale / shape * (math::pow(1.0 - unit, -shape) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::assert_near;

    const ETC: ValueSize = ValueSize::Etc {
        max_bytes: DEFAULT_MAX_VALUE_BYTES,
    };

    #[test]
    fn sizes_depend_on_seed_and_key_alone_and_stay_in_range() {
        let short = ValueSize::Etc { max_bytes: 100 };
        for id in 0..10_000 {
            assert_eq!(ETC.of(5, KeyId(id)), ETC.of(5, KeyId(id)));
            assert!((1..=100).contains(&short.of(5, KeyId(id))));
        }
        assert!((0..100).any(|id| ETC.of(5, KeyId(id)) != ETC.of(6, KeyId(id))));
    }

    #[test]
    fn a_keys_name_and_value_sizes_are_independent() {
        let count = 50_000;
        let pairs: Vec<(f64, f64)> = (0..count)
            .map(|id| {
                let value = f64::from(ETC.of(1, KeyId(id)) > 150);
                let key = f64::from(u8::from(etc_key_len(1, KeyId(id)) > 33));
                (value, key)
            })
            .collect();
        let mean =
            |part: fn(&(f64, f64)) -> f64| pairs.iter().map(part).sum::<f64>() / count as f64;
        let covariance = mean(|pair| pair.0 * pair.1) - mean(|pair| pair.0) * mean(|pair| pair.1);
        assert_near(covariance, 0.0, 4.0 * 0.25 / (count as f64).sqrt());
    }
}
