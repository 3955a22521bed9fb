//! Flashiness: whether an item will be read in the near future, and not updated (Flashield, sections 3.2 and 4.2).
//!
//! ```text
//!   window of sampling                          window of counting
//!   reads and updates of a key, one access      reads and updates again ──▶ label: at least n reads, no update
//!   chosen as its sample                                                     │
//!            └──────────────────────────────────▶ examples ◀────────────────┘ ──▶ svm::train ──▶ Flashiness
//! ```
//!
//! The features of a key are how often it has been read, how often it has been updated, and, if that is remembered, how
//! often it had been read before it was stored. One sample of each key counts, chosen evenly among its accesses: the
//! n-th access replaces the previous sample with probability 1/n. Sampling begins with the first read, since an item
//! that has not been read is not flashy.

use std::collections::BTreeMap;

use engine::admission::Features;

use super::svm::{self, Example, PARTS, Separator};

/// Highest count that is told apart: a thousand reads count like any higher number.
const MOST: u16 = 1000;
/// Cost of all examples together, relative to the norm. From some tens on, a higher cost hardly changes a decision.
const COST: f64 = 100.0;

/// Returns the parts of an example: counts on a logarithmic scale, and the constant.
fn parts(features: Features) -> [f64; PARTS] {
    let part = |count: u16| f64::from(1 + count.min(MOST)).log2();
    [
        part(features.reads),
        part(features.updates),
        part(features.reads_before),
        1.0,
    ]
}

fn capped(features: Features) -> Features {
    Features {
        reads: features.reads.min(MOST),
        updates: features.updates.min(MOST),
        reads_before: features.reads_before.min(MOST),
    }
}

/// Tally of a key in a window of sampling, and then in one of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    now: Features,
    accesses: u32,
    sample: Option<Features>,
    later: Later,
}

/// Tally of a key in a window of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Later {
    reads: u16,
    pub(super) updates: u16,
    reads_until_update: u16,
}

impl Later {
    /// Counts a read.
    pub fn read(&mut self) {
        self.reads = self.reads.saturating_add(1);
    }

    /// Counts an update.
    pub fn update(&mut self) {
        if self.updates == 0 {
            self.reads_until_update = self.reads;
        }
        self.updates = self.updates.saturating_add(1);
    }

    /// Returns whether the key was worth a place on flash: read `n` times or more, and not updated.
    pub fn is_flashy(&self, n: u32) -> bool {
        u32::from(self.reads) >= n && self.updates == 0
    }

    /// Returns how often the key would have been found on flash, up to its first update.
    pub fn reads_until_update(&self) -> u16 {
        match self.updates {
            0 => self.reads,
            _ => self.reads_until_update,
        }
    }
}

impl Tally {
    /// Counts a read in the sampling window. `draw` decides, with odds of one in its argument, whether it is the
    /// sample.
    pub fn read(&mut self, draw: impl FnOnce(u32) -> bool) {
        self.now.reads = self.now.reads.saturating_add(1);
        self.take(draw);
    }

    /// Counts an update in the sampling window.
    pub fn update(&mut self, draw: impl FnOnce(u32) -> bool) {
        self.now.updates = self.now.updates.saturating_add(1);
        if self.now.reads > 0 {
            self.take(draw);
        }
    }

    /// Notes a read or an update in the sampling window, of a key with these features.
    pub fn accessed_as(&mut self, known: Features, draw: impl FnOnce(u32) -> bool) {
        self.now = known;
        self.take(draw);
    }

    fn take(&mut self, draw: impl FnOnce(u32) -> bool) {
        self.accesses = self.accesses.saturating_add(1);
        if draw(self.accesses) {
            self.sample = Some(self.now);
        }
    }

    /// Counts a read in the counting window.
    pub fn read_later(&mut self) {
        self.later.read();
    }

    /// Counts an update in the counting window.
    pub fn update_later(&mut self) {
        self.later.update();
    }

    /// Returns the sample, if there is one.
    pub fn sample(&self) -> Option<Features> {
        self.sample
    }

    /// Returns whether the key was worth a place on flash: read `n` times or more in the counting window, and not
    /// updated.
    pub fn is_flashy(&self, n: u32) -> bool {
        self.later.is_flashy(n)
    }

    /// Returns the tally of the counting window.
    pub fn later(&self) -> Later {
        self.later
    }
}

/// Numbers of flashy and of other keys, for each combination of features.
#[derive(Clone, Debug, Default)]
pub struct Samples(BTreeMap<Features, Outcomes>);

/// Outcomes of the keys with the same features.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    /// Number of keys that were not flashy, and number of keys that were.
    counts: [u64; 2],
    /// Cost of admitting the keys that were not worth it, and cost of refusing the keys that were.
    costs: [f64; 2],
}

impl Samples {
    /// Collects the keys that have a sample, labelled with `n`.
    pub fn of<'a>(tallies: impl IntoIterator<Item = &'a Tally>, n: u32) -> Self {
        let mut samples = Self::default();
        for tally in tallies {
            if let Some(sample) = tally.sample() {
                samples.add(sample, tally.is_flashy(n));
            }
        }
        samples
    }

    /// Adds a key with these features when it was sampled, and its outcome. Refusing a flashy key costs as much as
    /// admitting another key.
    pub fn add(&mut self, sample: Features, is_flashy: bool) {
        self.add_worth(sample, is_flashy, if is_flashy { 1.0 } else { -1.0 });
    }

    /// Adds a key with these features when it was sampled, its outcome, and the worth of a place on flash, which is
    /// negative if the place was not worth its write.
    pub fn add_worth(&mut self, sample: Features, is_flashy: bool, worth: f64) {
        let outcomes = self.0.entry(capped(sample)).or_default();
        outcomes.counts[usize::from(is_flashy)] += 1;
        outcomes.costs[usize::from(worth > 0.0)] += worth.abs();
    }

    /// Returns the number of keys added.
    pub fn len(&self) -> u64 {
        self.0.values().flat_map(|outcomes| outcomes.counts).sum()
    }

    /// Returns whether no key has been added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the share of flashy keys.
    pub fn flashy_share(&self) -> f64 {
        let flashy: u64 = self.0.values().map(|outcomes| outcomes.counts[1]).sum();
        flashy as f64 / self.len().max(1) as f64
    }

    /// Returns the share of keys that `judge` judges right.
    pub fn accuracy(&self, judge: impl Fn(Features) -> bool) -> f64 {
        let right = |(&features, outcomes): (&Features, &Outcomes)| {
            outcomes.counts[usize::from(judge(features))]
        };
        self.0.iter().map(right).sum::<u64>() as f64 / self.len().max(1) as f64
    }

    /// Returns the best number of reads from which on to expect a key to be flashy, if reads are all that is known: a
    /// decision tree of depth 1 (table 4).
    pub fn best_threshold(&self) -> u16 {
        let thresholds = self.0.keys().map(|features| features.reads);
        let all = thresholds.chain([0, MOST + 1]);
        let accuracy = |reads: u16| self.accuracy(|features| features.reads >= reads);
        // Takes the lowest of equally good thresholds.
        let mut best = (0, f64::MIN);
        for threshold in std::collections::BTreeSet::from_iter(all) {
            let reached = accuracy(threshold);
            if reached > best.1 {
                best = (threshold, reached);
            }
        }
        best.0
    }
}

/// A classifier of one application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flashiness(Separator);

impl Flashiness {
    /// Trains the classifier that fits these samples best.
    pub fn train(samples: &Samples) -> Self {
        let examples: Vec<Example> = samples
            .0
            .iter()
            .flat_map(|(features, outcomes)| {
                [false, true].map(|is_positive| Example {
                    parts: parts(*features),
                    is_positive,
                    count: outcomes.costs[usize::from(is_positive)],
                })
            })
            .filter(|example| example.count > 0.0)
            .collect();
        Self(svm::train(&examples, COST))
    }

    /// Returns the score: an item above zero is worth a place on flash, and a higher score is better. It is zero for an
    /// item that has never been read.
    pub fn score(&self, features: Features) -> f64 {
        if !features.is_read() {
            return 0.0;
        }
        self.0.score(&parts(features))
    }

    /// Returns the number of rounds over the samples that training took.
    pub fn rounds(&self) -> usize {
        self.0.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const fn features(reads: u16, updates: u16) -> Features {
        Features {
            reads,
            updates,
            reads_before: 0,
        }
    }

    /// The paper's example: the first read gives a sample; a later update replaces it in one case of two.
    #[test]
    fn every_access_is_as_likely_to_be_the_sample() {
        let random = &mut SmallRng::seed_from_u64(1);
        let mut seen = BTreeMap::new();
        const TIMES: u32 = 60_000;
        for _ in 0..TIMES {
            let mut tally = Tally::default();
            let mut draw = |n: u32| random.random_ratio(1, n);
            tally.update(&mut draw);
            assert_eq!(tally.sample(), None, "never read");
            tally.read(&mut draw);
            assert_eq!(tally.sample(), Some(features(1, 1)));
            tally.update(&mut draw);
            tally.read(&mut draw);
            *seen.entry(tally.sample().unwrap()).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
        for (sample, times) in seen {
            let share = f64::from(times) / f64::from(TIMES);
            assert!((share - 1.0 / 3.0).abs() < 0.01, "{sample:?}: {share}");
        }
    }

    #[test]
    fn what_is_read_enough_and_not_updated_is_flashy() {
        let mut tally = Tally::default();
        assert!(!tally.is_flashy(1));
        tally.read_later();
        tally.read_later();
        assert!(tally.is_flashy(1) && tally.is_flashy(2) && !tally.is_flashy(3));
        tally.update_later();
        assert!(!tally.is_flashy(1));
    }

    #[test]
    fn what_is_worth_it_is_expected_to_be_flashy_though_most_of_its_kind_are_not() {
        for (worth, is_expected) in [(1.0, false), (2.0, false), (4.0, true), (16.0, true)] {
            let mut samples = Samples::default();
            for number in 0..400 {
                let is_flashy = number % 4 == 0;
                let worth = if is_flashy { worth } else { -1.0 };
                samples.add_worth(features(1 + number % 3, 0), is_flashy, worth);
            }
            assert_eq!(samples.len(), 400);
            assert!((samples.flashy_share() - 0.25).abs() < 1e-9);
            let learned = Flashiness::train(&samples);
            let score = learned.score(features(2, 0));
            assert_eq!(score > 0.0, is_expected, "worth {worth}: {score}");
        }
    }

    #[test]
    fn what_decides_is_learned_and_what_was_never_read_scores_zero() {
        let mut samples = Samples::default();
        for reads in 1..40 {
            for updates in 0..6 {
                for _ in 0..10 {
                    samples.add(features(reads, updates), reads >= 8 && updates <= 1);
                }
            }
        }
        let learned = Flashiness::train(&samples);
        let accuracy = samples.accuracy(|features| learned.score(features) > 0.0);
        assert!(accuracy > 0.85, "{accuracy} {learned:?}");
        assert!(learned.score(features(30, 0)) > learned.score(features(9, 0)));
        assert!(learned.score(features(30, 0)) > 0.0 && learned.score(features(2, 5)) < 0.0);
        assert_eq!(learned.score(features(0, 3)), 0.0);
        let by_reads = samples.best_threshold();
        assert_eq!(
            by_reads,
            MOST + 1,
            "two of six are flashy at best: none is expected to be"
        );
    }

    #[test]
    fn the_best_threshold_is_the_one_that_is_right_most_often() {
        let mut samples = Samples::default();
        for reads in 1..20 {
            samples.add(features(reads, 0), reads >= 5);
        }
        assert_eq!(samples.best_threshold(), 5);
        assert_eq!(samples.accuracy(|features| features.reads >= 5), 1.0);
        assert!((samples.flashy_share() - 15.0 / 19.0).abs() < 1e-12);
    }

    #[test]
    fn of_samples_of_one_kind_or_none_nothing_is_wrong() {
        let none = Flashiness::train(&Samples::default());
        assert_eq!(none.score(features(5, 0)), 0.0);
        let mut samples = Samples::default();
        samples.add(features(1, 0), false);
        assert!(Flashiness::train(&samples).score(features(1, 0)) < 0.0);
    }
}
