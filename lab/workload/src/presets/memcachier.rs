//! `memcachier`: the twenty largest applications of a commercial memcached service, a week of 2014.
//!
//! For each application: its number of distinct keys, its mean object size and its operations, as measured on
//! the trace by the authors of lsm-sim. All twenty together have objects of 257 bytes on average, 90.0 %
//! reads, 9.5 % writes and 0.5 % updates, and 60.6 % of the writes are never read (Flashield, NSDI 2019,
//! table 2 and section 2.2).
//!
//! Shares by the number of requests do not give these averages (they give 82 % reads and objects of 986
//! bytes), so the applications are weighted. The weights are the shares of requests times `exp(a r + b s)`,
//! with `a` and `b` chosen so that reads and object size come out as stated. Among all weights that do so,
//! these are the closest to the shares of requests.
//!
//! Assumptions: popularity is Zipf's with exponent 0.99; value sizes are geometric; the split of writes (new
//! keys that are read, new keys that are not, updates) is the same in all applications. An object's size
//! counts key and value.

use crate::error::WorkloadError;
use crate::keys::KeySize;
use crate::mix::Mix;
use crate::popularity::Popularity;
use crate::settings::Settings;
use crate::sizes::{Geometric, ValueSize};
use crate::tenant::{Churn, Preset, Share};
use crate::zipf::Zipf;

struct Application {
    number: u16,
    unique_keys: u64,
    object_bytes: f64,
    /// Gets, in percent of the requests.
    gets: f64,
    /// Puts with increments, in percent of the requests.
    puts: f64,
    deletes: f64,
    /// Its share of the mixed workload.
    weight: f64,
}

const fn application(
    number: u16,
    unique_keys: u64,
    object_bytes: f64,
    [gets, puts, deletes]: [f64; 3],
    weight: f64,
) -> Application {
    Application {
        number,
        unique_keys,
        object_bytes,
        gets,
        puts,
        deletes,
        weight,
    }
}

#[rustfmt::skip]
const APPLICATIONS: [Application; 20] = [
    application(1, 83_169_881, 47.684_8, [75.046_5, 24.931_2, 0.000_3], 0.199_026),
    application(2, 19_930, 141_133.0, [94.880_2, 5.077_5, 0.0], 5.1488e-14),
    application(3, 1_382_957, 14.197_1, [75.473_5, 24.523_5, 0.0], 0.104_634_2),
    application(5, 23_443_162, 31.968, [58.313_7, 41.681_5, 0.003_6], 0.012_676_4),
    application(6, 1_540, 586.667, [99.757_6, 0.178_1, 0.0], 0.126_556_9),
    application(7, 304_585, 6_571.37, [81.613_4, 1.822_3, 16.526_8], 0.015_900_1),
    application(8, 4_615, 618.43, [99.989_2, 0.009_3, 0.0], 0.095_772_7),
    application(10, 2_159_725, 489.402, [94.115_4, 5.051_9, 0.0], 0.030_334_5),
    application(11, 301_004, 19_580.6, [86.586_1, 0.101, 13.292_9], 0.011_148_2),
    application(13, 65_618, 661.076, [55.887_6, 15.347_9, 28.734_7], 0.009_833_8),
    application(18, 5_178_640, 15.801_1, [95.350_9, 4.639_4, 0.0], 0.118_430_5),
    application(19, 413_144, 3_468.34, [79.041_6, 20.709_6, 0.176_7], 0.005_596_8),
    application(20, 126_751, 1_026.23, [98.198_8, 1.792_1, 0.000_3], 0.111_679_7),
    application(23, 1_197_245, 6_012.21, [89.872, 6.892_1, 0.074_2], 0.004_105_2),
    application(29, 1_363_873, 1_791.38, [92.195, 7.290_7, 0.0], 0.018_499_9),
    application(31, 317_971, 4_709.02, [96.552_2, 2.767_3, 0.027_1], 0.010_126_1),
    application(53, 25_095, 139.121, [99.871_9, 0.115_2, 0.000_8], 0.020_988_3),
    application(59, 127_678, 4_619.46, [93.739_8, 5.517_9, 0.732_8], 0.024_692_9),
    application(94, 1_434_787, 186.895, [88.599_1, 8.734_5, 2.277_2], 0.018_623_7),
    application(227, 35_492, 261.097, [97.233_9, 2.308_5, 0.005_7], 0.061_374_1),
];

/// Share of the puts of all applications that are not updates of an object in use: 9.5 of 9.5 + 0.5.
const WRITES_OF_PUTS: f64 = 0.95;

/// Among the writes that are not updates, the share whose object is never read.
const UNREAD_OF_WRITES: f64 = 0.606;

/// Default exponent of the popularity within an application.
const THETA: f64 = 0.99;

/// Length of names: `227:` and eight digits. The smallest mean object has 14 bytes.
pub(crate) const KEY_BYTES: usize = 12;

/// Returns the mix of all applications, or the application with number `only`.
pub(super) fn preset(only: Option<u16>, settings: &Settings) -> Result<Preset, WorkloadError> {
    let chosen: Vec<&Application> = APPLICATIONS
        .iter()
        .filter(|application| only.is_none_or(|number| application.number == number))
        .collect();
    if chosen.is_empty() {
        let known: Vec<String> = APPLICATIONS
            .iter()
            .map(|app| app.number.to_string())
            .collect();
        return Err(WorkloadError::NotOneOf {
            what: "application of memcachier",
            given: only.unwrap_or_default().to_string(),
            known: known.join(", "),
        });
    }
    let theta = settings.theta.unwrap_or(THETA);
    let keys = divide(settings.keys, &chosen)?;
    let key_bytes = match settings.key_size.unwrap_or(KeySize::Fixed(KEY_BYTES)) {
        KeySize::Fixed(bytes) => bytes as f64,
        KeySize::Etc => ETC_KEY_BYTES,
    };
    let passing = passing_share(&chosen, &keys, theta);
    let shares = chosen.iter().zip(&keys).map(|(application, &keys)| {
        let value_bytes = application.object_bytes - key_bytes;
        let value_size = ValueSize::Geometric(Geometric::new(value_bytes));
        Ok(Share {
            application: application.number,
            weight: application.weight,
            mix: Mix::new(application.gets, application.puts, application.deletes)?,
            churn: Churn {
                unread_sets: WRITES_OF_PUTS * passing,
                once_gets: 0.0,
                renewing_sets: WRITES_OF_PUTS * (1.0 - passing),
            },
            ..Share::reading(keys, Popularity::Ranked { theta }, value_size)
        })
    });
    Ok(Preset {
        shares: shares.collect::<Result<_, WorkloadError>>()?,
        key_size: KeySize::Fixed(KEY_BYTES),
        set_on_miss: true,
    })
}

/// The mean length of ETC keys.
const ETC_KEY_BYTES: f64 = 36.0;

/// Divides `keys` in proportion to the distinct keys of each application, at least one for each.
fn divide(keys: u64, chosen: &[&Application]) -> Result<Vec<u64>, WorkloadError> {
    let count = chosen.len() as u64;
    if keys < count {
        return Err(WorkloadError::OutOfRange {
            name: "keys",
            value: keys.to_string(),
            allowed: format!("at least {count}, one for each application"),
        });
    }
    let all: u64 = chosen
        .iter()
        .map(|application| application.unique_keys)
        .sum();
    let spare = u128::from(keys - count);
    let part = |application: &&Application| {
        1 + (spare * u128::from(application.unique_keys) / u128::from(all)) as u64
    };
    let mut parts: Vec<u64> = chosen.iter().map(part).collect();
    let rest = keys - parts.iter().sum::<u64>();
    parts[0] += rest;
    Ok(parts)
}

/// Returns the share of the writes that must go to passing keys, so that [`UNREAD_OF_WRITES`] stay unread
/// together with new keys that are replaced before any read.
fn passing_share(chosen: &[&Application], keys: &[u64], theta: f64) -> f64 {
    let puts = |application: &Application| application.weight * application.puts;
    let all: f64 = chosen.iter().map(|application| puts(application)).sum();
    let unread = |passing: f64| {
        let each = chosen.iter().zip(keys).map(|(application, &keys)| {
            let renewals = application.puts * WRITES_OF_PUTS * (1.0 - passing);
            let reads_per_life = application.gets / renewals;
            puts(application) / all * unread_lives(keys, theta, reads_per_life)
        });
        passing + (1.0 - passing) * each.sum::<f64>()
    };
    let (mut low, mut high) = (0.0, UNREAD_OF_WRITES);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if unread(middle) < UNREAD_OF_WRITES {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the share of keys in `keys` slots that no request reads, given that each lives for
/// `reads_per_life` reads per slot: the mean of `exp(-reads_per_life x keys x p)` over the slots'
/// probabilities `p`.
fn unread_lives(keys: u64, theta: f64, reads_per_life: f64) -> f64 {
    let first = Zipf::new(keys, theta).probability(0);
    let reads = reads_per_life * keys as f64 * first;
    // Ranks in runs that grow by a sixteenth; the middle of a run stands for its ranks.
    let (mut sum, mut from) = (0.0, 0u64);
    while from < keys {
        let to = (from + 1 + from / 16).min(keys);
        let middle = (from + to + 1) as f64 / 2.0;
        sum += (to - from) as f64 * libm::exp(-reads * libm::pow(middle, -theta));
        from = to;
    }
    sum / keys as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::assert_near;

    #[test]
    fn the_weights_give_the_stated_reads_and_object_size() {
        let mean = |value: fn(&Application) -> f64| {
            let weighted = APPLICATIONS.iter().map(|app| app.weight * value(app));
            weighted.sum::<f64>()
        };
        assert_near(mean(|_| 1.0), 1.0, 1e-5);
        let puts = mean(|application| application.puts);
        let reads = mean(|application| application.gets);
        assert_near(reads / (reads + puts), 0.9, 1e-5);
        let bytes = mean(|application| application.puts * application.object_bytes) / puts;
        assert_near(bytes, 257.0, 0.05);
    }

    #[test]
    fn keys_are_divided_without_a_remainder() {
        let all: Vec<&Application> = APPLICATIONS.iter().collect();
        for keys in [20, 21, 1_000, 1_000_000, 1 << 40] {
            let parts = divide(keys, &all).unwrap();
            assert_eq!(parts.iter().sum::<u64>(), keys);
            assert!(parts.iter().all(|&part| part > 0));
        }
        assert!(divide(19, &all).is_err());
    }

    #[test]
    fn lives_are_unread_as_often_as_a_plain_sum_says() {
        let shares = Zipf::new(5_000, 0.99).probabilities();
        let plain: f64 = shares.iter().map(|p| (-3.0 * 5_000.0 * p).exp()).sum();
        assert_near(unread_lives(5_000, 0.99, 3.0), plain / 5_000.0, 1e-3);
    }
}
