//! Checks of every generator against its closed form: the measuring part of `flowstone experiment
//! workload-check`.
//!
//! A count, a share or a mean passes if it lies within four standard deviations of its formula's value. A
//! chi-square statistic passes if its deviation is no less likely than that. One correct generator in 16,000
//! fails by chance, for a given seed always or never.

use std::collections::HashSet;

use serde::Serialize;

use crate::arrivals::{Arrivals, Pace};
use crate::catalog::Workload;
use crate::error::WorkloadError;
use crate::key_id::KeyId;
use crate::mix::{Mix, Op};
use crate::popularity::{Picker, Popularity};
use crate::presets;
use crate::profile::Profile;
use crate::settings::Settings;
use crate::sizes::{
    DEFAULT_MAX_VALUE_BYTES, ValueSize, etc_key_len, etc_key_share, etc_value_share,
};
use crate::stream::Stream;
use crate::tenant::ttl_of;
use crate::weighted::Weighted;
use crate::zipf::Zipf;

/// One statistic of one generator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckRow {
    /// The generator.
    pub generator: String,
    /// The statistic that was measured.
    pub statistic: &'static str,
    /// Value of the closed form.
    pub expected: f64,
    /// Largest distance from it of a correct generator.
    pub tolerance: f64,
    /// Measured value.
    pub seen: f64,
    /// Whether the measured value is within the tolerance.
    pub pass: bool,
}

/// Standard deviations that chance may explain.
const DEVIATIONS: f64 = 4.0;

/// Minimum number of draws; fewer make the statistics meaningless.
const MIN_DRAWS: u64 = 100_000;

impl CheckRow {
    /// Returns the row of a value that should be `expected`, with the given standard deviation by chance.
    fn near(
        generator: &str,
        statistic: &'static str,
        expected: f64,
        deviation: f64,
        seen: f64,
    ) -> Self {
        let tolerance = DEVIATIONS * deviation;
        Self {
            generator: generator.to_owned(),
            statistic,
            expected,
            tolerance,
            seen,
            pass: (seen - expected).abs() <= tolerance + 1e-12,
        }
    }

    /// Returns the row of a share of `draws` independent draws.
    fn share(
        generator: &str,
        statistic: &'static str,
        expected: f64,
        draws: u64,
        hits: u64,
    ) -> Self {
        let deviation = (expected * (1.0 - expected) / draws as f64).sqrt();
        Self::near(
            generator,
            statistic,
            expected,
            deviation,
            hits as f64 / draws as f64,
        )
    }

    /// Returns the row of counts that should be in proportion to `shares`.
    fn chi_square(
        generator: &str,
        statistic: &'static str,
        counts: &[u64],
        shares: &[f64],
    ) -> Self {
        let draws: u64 = counts.iter().sum();
        let all: f64 = shares.iter().sum();
        let expected = shares.iter().map(|share| share / all * draws as f64);
        let (seen, freedom) = pearson(counts, expected);
        Self {
            generator: generator.to_owned(),
            statistic,
            expected: freedom,
            tolerance: DEVIATIONS * (2.0 * freedom).sqrt(),
            seen,
            pass: is_chance(seen, freedom),
        }
    }
}

/// Returns Pearson's chi-square statistic and its degrees of freedom. All cells that expect less than five
/// count as one cell.
fn pearson(counts: &[u64], expected: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut statistic, mut cells) = (0.0, 0u64);
    let (mut rare_count, mut rare_expected) = (0.0, 0.0);
    let mut add = |count: f64, expected: f64| {
        statistic += (count - expected) * (count - expected) / expected;
        cells += 1;
    };
    for (&count, expected) in counts.iter().zip(expected) {
        if expected < 5.0 {
            rare_count += count as f64;
            rare_expected += expected;
        } else {
            add(count as f64, expected);
        }
    }
    if rare_expected >= 5.0 || (rare_count > 0.0 && rare_expected == 0.0) {
        add(rare_count, rare_expected);
    }
    (statistic, cells.saturating_sub(1) as f64)
}

/// Returns whether chance explains a chi-square statistic (by Wilson and Hilferty's approximation: its cube
/// root is nearly normally distributed).
fn is_chance(statistic: f64, freedom: f64) -> bool {
    if freedom < 1.0 {
        return statistic == 0.0;
    }
    let spread = 2.0 / (9.0 * freedom);
    let deviations = (libm::cbrt(statistic / freedom) - (1.0 - spread)) / spread.sqrt();
    deviations.abs() < DEVIATIONS
}

/// Counts the numbers below `cells` that `draw(n)` gives for draw number `n`.
pub(crate) fn tally(cells: usize, draws: u64, mut draw: impl FnMut(u64) -> usize) -> Vec<u64> {
    let mut counts = vec![0; cells];
    for number in 0..draws {
        counts[draw(number)] += 1;
    }
    counts
}

/// Panics unless `seen` is within `tolerance` of `expected`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_near(seen: f64, expected: f64, tolerance: f64) {
    let distance = (seen - expected).abs();
    assert!(
        distance < tolerance,
        "{seen} for {expected}, more than {tolerance} away"
    );
}

/// Panics unless chance explains the deviation of `counts` from the proportions of `shares`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_fits(counts: &[u64], shares: &[f64]) {
    let row = CheckRow::chi_square("counts", "chi-square", counts, shares);
    assert!(row.pass, "{row:?}");
}

/// Measures every generator with `draws` draws each (at least 100,000), all from `seed`.
pub fn check(seed: u64, draws: u64) -> Result<Vec<CheckRow>, WorkloadError> {
    let draws = draws.max(MIN_DRAWS);
    let mut rows = popularity(seed, draws);
    rows.extend(exponents(seed, draws));
    rows.extend(sizes(seed, draws));
    rows.push(operations(seed, draws)?);
    rows.extend(arrivals(seed, draws));
    rows.extend(churn(seed, draws)?);
    rows.extend(memcachier(seed, draws)?);
    rows.extend(twitter(seed, draws)?);
    Ok(rows)
}

/// Keys over which popularity is measured. The number is prime, because YCSB's hash (FNV-1a) spreads the
/// ranks a little unevenly over some other numbers of keys, such as 1,000.
const KEYS: u64 = 997;

fn popularity(seed: u64, draws: u64) -> Vec<CheckRow> {
    let (data, operations) = (0.2, 0.8);
    let (deviation, theta) = (0.1, 0.99);
    let hot = (data * KEYS as f64) as usize;
    let mut hotspot = vec![(1.0 - operations) / (KEYS as f64 - hot as f64); KEYS as usize];
    hotspot[..hot].fill(operations / hot as f64);
    let zipf = Zipf::new(KEYS, theta);
    let latest = zipf.probabilities().into_iter().rev().collect();
    let hotspot_popularity = Popularity::Hotspot { data, operations };
    let normal = Popularity::Normal {
        deviation,
        drift: 0.0,
    };
    let cases = [
        ("uniform", Popularity::Uniform, vec![1.0; KEYS as usize]),
        (
            "zipfian",
            Popularity::Zipfian { theta },
            scrambled_shares(theta),
        ),
        ("hotspot", hotspot_popularity, hotspot),
        ("normal", normal, normal_shares(deviation)),
        ("latest", Popularity::Latest { theta }, latest),
    ];
    let mut rows: Vec<CheckRow> = cases
        .iter()
        .map(|(name, popularity, shares)| {
            let counts = histogram(popularity, seed, draws);
            CheckRow::chi_square(name, "chi-square of keys", &counts, shares)
        })
        .collect();
    rows.push(drift(seed, draws));
    rows
}

fn histogram(popularity: &Popularity, seed: u64, draws: u64) -> Vec<u64> {
    let mut picker = Picker::new(popularity, KEYS, 1);
    let mut stream = Stream::new(seed, 0);
    tally(KEYS as usize, draws, |_| {
        picker.pick(Op::Get, &mut stream) as usize
    })
}

/// Returns the share of each key in YCSB's scrambled distribution: exact for the popular ranks, and even for
/// the many other ranks.
fn scrambled_shares(theta: f64) -> Vec<f64> {
    const SINGLE_RANKS: u64 = 1 << 22;
    let zipf = Zipf::new(crate::popularity::SCRAMBLED_RANKS, theta);
    let rest = 1.0 - zipf.share_of_first(SINGLE_RANKS);
    let mut shares = vec![rest / KEYS as f64; KEYS as usize];
    let first = zipf.probability(0);
    for rank in 0..SINGLE_RANKS {
        let key = crate::popularity::fnv1a(rank) % KEYS;
        shares[key as usize] += first * libm::pow(rank as f64 + 1.0, -theta);
    }
    shares
}

fn normal_shares(deviation: f64) -> Vec<f64> {
    let below = |key: f64| {
        let distance = (key / KEYS as f64 - 0.5) / deviation;
        0.5 * (1.0 + libm::erf(distance / std::f64::consts::SQRT_2))
    };
    let round = KEYS as f64;
    let share = |key: u64| -> f64 {
        let wrapped = [-round, 0.0, round].map(|turn| key as f64 + turn);
        wrapped
            .iter()
            .map(|key| below(key + 1.0) - below(*key))
            .sum()
    };
    (0..KEYS).map(share).collect()
}

/// Checks a drifting mean: the mean of the last tenth of the draws.
fn drift(seed: u64, draws: u64) -> CheckRow {
    let keys = draws;
    let (deviation, drift) = (0.001, 0.25);
    let mut picker = Picker::new(&Popularity::Normal { deviation, drift }, keys, 1);
    let mut stream = Stream::new(seed, 1);
    let ids: Vec<u64> = (0..draws)
        .map(|_| picker.pick(Op::Get, &mut stream))
        .collect();
    let last = &ids[(draws - draws / 10) as usize..];
    let mean = last.iter().sum::<u64>() as f64 / last.len() as f64;
    // The middle of the last tenth, relative to the middle of the keys, where the mean started.
    let expected = keys as f64 * 0.5 + drift * (draws as f64 * 0.95 - 0.5) - 0.5;
    let spread = deviation * keys as f64 / (last.len() as f64).sqrt();
    CheckRow::near("normal", "mean after drift", expected, spread, mean)
}

/// Checks exponents of production caches (Twitter's clusters), each as its own distribution.
fn exponents(seed: u64, draws: u64) -> Vec<CheckRow> {
    let row = |theta: f64| {
        let zipf = Zipf::new(KEYS, theta);
        let mut stream = Stream::new(seed, 2);
        let counts = tally(KEYS as usize, draws, |_| zipf.rank(&mut stream) as usize);
        let shares = zipf.probabilities();
        let name = format!("zipf {theta}");
        CheckRow::chi_square(&name, "chi-square of ranks", &counts, &shares)
    };
    [0.0, 0.5, 0.99, 1.0, 1.21, 2.68].map(row).into()
}

fn sizes(seed: u64, draws: u64) -> Vec<CheckRow> {
    let etc = ValueSize::Etc {
        max_bytes: DEFAULT_MAX_VALUE_BYTES,
    };
    let value = |id| etc.of(seed, KeyId(id));
    let key = |id| etc_key_len(seed, KeyId(id)) as u32;
    let values = by_length("etc values", draws, value, etc_value_share);
    let keys = by_length("etc keys", draws, key, etc_key_share);
    let mut rows = vec![values, keys];
    for mean in [4.0, 273.0, 9_213.0] {
        let size = ValueSize::Geometric(crate::sizes::Geometric::new(mean));
        let sum: u64 = (0..draws)
            .map(|id| u64::from(size.of(seed, KeyId(id))))
            .sum();
        let deviation = (mean * (mean - 1.0) / draws as f64).sqrt();
        let seen = sum as f64 / draws as f64;
        rows.push(CheckRow::near("geometric", "mean", mean, deviation, seen));
    }
    rows
}

/// Checks lengths in cells of about two percent each, against the share of lengths up to each edge.
fn by_length(
    name: &str,
    draws: u64,
    length: impl Fn(u64) -> u32,
    share_up_to: impl Fn(f64) -> f64,
) -> CheckRow {
    let (mut edges, mut shares) = (Vec::new(), Vec::new());
    let mut last = 0.0;
    for bytes in 1..100_000 {
        let share = share_up_to(f64::from(bytes));
        if share - last >= 0.02 {
            edges.push(bytes);
            shares.push(share - last);
            last = share;
        }
    }
    shares.push(1.0 - last);
    let counts = tally(shares.len(), draws, |id| {
        let length = length(id);
        edges.partition_point(|&edge| edge < length)
    });
    CheckRow::chi_square(name, "chi-square of lengths", &counts, &shares)
}

fn operations(seed: u64, draws: u64) -> Result<CheckRow, WorkloadError> {
    let mix = Mix::new(70.0, 25.0, 5.0)?;
    let mut stream = Stream::new(seed, 3);
    let counts = tally(3, draws, |_| mix.pick(&mut stream) as usize);
    let (statistic, shares) = ("chi-square of operations", [70.0, 25.0, 5.0]);
    let row = CheckRow::chi_square("mix 70:25:5", statistic, &counts, &shares);
    Ok(row)
}

fn arrivals(seed: u64, draws: u64) -> Vec<CheckRow> {
    let rate = 1_000.0;
    let mut arrivals = Arrivals::new(Pace::Poisson, rate, 0, 1, seed);
    let (mut squares, mut last) = (0.0, arrivals.peek_ns());
    let first = last;
    for _ in 0..draws {
        arrivals.advance();
        let gap = (arrivals.peek_ns() - last) as f64 * rate / 1e9;
        squares += gap * gap;
        last = arrivals.peek_ns();
    }
    let count = draws as f64;
    let mean = (last - first) as f64 * rate / 1e9 / count;
    // Gaps in units of their mean have the moments 1 and 2, whose own variances are 1 and 20.
    let (first, second) = ((1.0 / count).sqrt(), (20.0 / count).sqrt());
    let squared = squares / count;
    vec![
        CheckRow::near("poisson", "mean gap", 1.0, first, mean),
        CheckRow::near("poisson", "mean squared gap", 2.0, second, squared),
    ]
}

/// Checks the shares of keys that come and go.
fn churn(seed: u64, draws: u64) -> Result<Vec<CheckRow>, WorkloadError> {
    let (unread, renewing) = (0.3, 0.2);
    let settings = Settings {
        keys: KEYS,
        seed,
        mix: Some(Mix::new(1.0, 1.0, 0.0)?),
        unread: Some(unread),
        renewing: Some(renewing),
        ..Settings::default()
    };
    let mut stream = Workload::parse("uniform", settings)?.clients()?.client(0);
    let (mut sets, mut passing, mut new) = (0, 0, 0);
    let mut written = HashSet::new();
    for _ in 0..draws {
        let Some(request) = stream.next_request()? else {
            break;
        };
        if request.op == Op::Set {
            sets += 1;
            let beyond = request.key.0 >= KEYS;
            let is_passing = beyond && (request.key.0 - KEYS) % 2 == 1;
            passing += u64::from(is_passing);
            new += u64::from(beyond && !is_passing && written.insert(request.key));
        }
    }
    Ok(vec![
        CheckRow::share("churn", "writes never read", unread, sets, passing),
        CheckRow::share("churn", "writes of new keys", renewing, sets, new),
    ])
}

/// Returns a workload of `keys` keys, and the counts over `draws` requests of one client.
fn profile(
    name: &str,
    keys: u64,
    seed: u64,
    draws: u64,
) -> Result<(Workload, Profile), WorkloadError> {
    let settings = Settings {
        keys,
        seed,
        ..Settings::default()
    };
    let workload = Workload::parse(name, settings)?;
    let profile = Profile::of(&mut workload.clients()?.client(0), draws)?;
    Ok((workload, profile))
}

/// Checks the totals of all twenty applications.
fn memcachier(seed: u64, draws: u64) -> Result<Vec<CheckRow>, WorkloadError> {
    // Few keys and many requests: every slot changes its key many times.
    let draws = draws.max(2_000_000);
    let name = "memcachier";
    let (_, profile) = profile(name, 2_000, seed, draws)?;
    let asked = profile.gets + profile.sets;
    let (sets, writes) = (profile.sets as f64, profile.sets - profile.rewrites);
    let bytes = profile.set_bytes as f64 / sets + presets::MEMCACHIER_KEY_BYTES as f64;
    let unread = profile.unread_keys as f64 / writes as f64;
    Ok(vec![
        CheckRow::share(name, "reads", 0.90, asked, profile.gets),
        CheckRow::share(name, "updates", 0.005, asked, profile.rewrites),
        CheckRow::near(name, "bytes of an object written", 257.0, 1.5, bytes),
        CheckRow::near(name, "writes never read", 0.606, 0.0025, unread),
    ])
}

/// Checks every cluster: operations, sizes and times to live.
fn twitter(seed: u64, draws: u64) -> Result<Vec<CheckRow>, WorkloadError> {
    let mut rows = Vec::new();
    for cluster in &presets::TWITTER_CLUSTERS {
        let name = format!("twitter:{}", cluster.number);
        let draws = (draws / 10).max(MIN_DRAWS);
        let (workload, profile) = profile(&name, KEYS, seed, draws)?;
        let [gets, sets, deletes] = cluster.percents;
        let all = gets + sets + deletes;
        let reads = CheckRow::share(&name, "reads", gets / all, draws, profile.gets);
        let mean = cluster.value_bytes;
        let lengths = (0..draws).filter_map(|id| workload.value_len(KeyId(id)));
        let bytes: u64 = lengths.map(u64::from).sum();
        let deviation = (mean * (mean - 1.0) / draws as f64).sqrt();
        let seen = bytes as f64 / draws as f64;
        let sizes = CheckRow::near(&name, "mean value bytes", mean, deviation, seen);
        rows.extend([reads, sizes, ttls(&name, cluster.ttls, seed, draws)]);
    }
    Ok(rows)
}

fn ttls(name: &str, stated: &[(u32, f64)], seed: u64, draws: u64) -> CheckRow {
    let shares: Vec<f64> = stated.iter().map(|&(_, share)| share).collect();
    let ttls = Weighted::new(stated.iter().copied());
    let counts = tally(stated.len(), draws, |id| {
        let seconds = ttl_of(ttls.as_ref(), seed, KeyId(id));
        let known = stated.iter().position(|&(known, _)| known == seconds);
        known.unwrap_or(0)
    });
    CheckRow::chi_square(name, "chi-square of times to live", &counts, &shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generator_fits_its_closed_form() {
        let rows = check(1, 200_000).unwrap();
        let failed: Vec<&CheckRow> = rows.iter().filter(|row| !row.pass).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert!(rows.len() > 150, "{}", rows.len());
    }

    #[test]
    fn a_wrong_law_is_noticed() {
        let counts = histogram(&Popularity::Uniform, 1, 100_000);
        let shares = Zipf::new(KEYS, 0.1).probabilities();
        assert!(!CheckRow::chi_square("", "", &counts, &shares).pass);
        assert!(!CheckRow::share("", "", 0.5, 10_000, 5_300).pass);
        let impossible = CheckRow::chi_square("", "", &[1, 10], &[0.0, 11.0]);
        assert!(!impossible.pass, "what cannot happen");
        let too_even = CheckRow::chi_square("", "", &[10; 100], &[10.0; 100]);
        assert!(!too_even.pass, "too good to be true");
    }
}
