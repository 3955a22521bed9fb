//! The choice of functions: their number in a table, and the width of buckets.
//!
//! A function lets vectors at distance `d` collide with probability `p(d)`, a table of `m` functions with `p(d)^m`, and at least
//! one of `l` tables with `1 - (1 - p(d)^m)^l`. With more functions there are fewer far candidates, and fewer near ones.

use crate::error::SliceError;
use crate::lsh::family::{Family, Functions, MOST_FUNCTIONS, normal};

pub(crate) const MOST_PROBES: u32 = 1024;
pub(crate) const MOST_TABLES: u32 = 256;
/// Maximum pairs of a sample whose distance is measured.
const MOST_PAIRS: usize = 20_000;
/// Pairs that are drawn to estimate the recall with probes, and to estimate the share.
const RECALL_TRIALS: usize = 1_000;
const SHARE_TRIALS: usize = 3_000;
/// Widths that are tried, in units of the distance up to which vectors count as near.
const WIDTHS: [f64; 9] = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];

/// Requirements for an index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Distance up to which vectors count as near.
    pub near: f64,
    /// Probability that a vector at distance `near` is found: 0 to 1.
    pub recall: f64,
    /// LSH tables that the index is to have.
    pub tables: u32,
    /// Pages of tables that a query reads beyond one of each table. With more pages tables have more functions, and a query reads
    /// fewer vectors.
    pub probes: u32,
}

impl Target {
    /// Returns a target that finds vectors at distance `near` 19 times of 20, in 10 tables with 30 further pages.
    pub fn new(near: f64) -> Self {
        Self {
            near,
            recall: 0.95,
            tables: 10,
            probes: 30,
        }
    }
}

/// Functions that find near vectors like those of a sample, and their estimated effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The family, with its width.
    pub family: Family,
    /// Functions of each table. With more functions a query reads fewer vectors, and finds fewer.
    pub functions: u32,
    /// Tables of the target.
    pub tables: u32,
    /// Probes of the target.
    pub probes: u32,
    /// Probability that a vector at the distance that counts as near is found.
    pub recall: f64,
    /// Share of all vectors that a query reads, if all are like the sample.
    pub share: f64,
}

impl Choice {
    /// Returns the functions, and for Euclidean distance the width, that meet the target and read the fewest vectors, if vectors
    /// are like those of `sample`. Ignores the width of `family`. Takes about a second.
    ///
    /// # Errors
    /// [`SliceError::Setting`] if the sample has fewer than two vectors or has vectors that no index takes, or if no number of
    /// functions in so few tables finds vectors so far away.
    pub fn of(family: Family, sample: &[Vec<f32>], target: &Target) -> Result<Self, SliceError> {
        let refuse = |what: &str| Err(SliceError::Setting(what.to_owned()));
        let is_distance = target.near.is_finite() && target.near > 0.0;
        if sample.len() < 2 || !is_distance {
            return refuse("to choose functions give two vectors at least, and a distance above 0");
        }
        if target.tables == 0 || target.tables > MOST_TABLES || target.probes > MOST_PROBES {
            return refuse("to choose functions give 1 to 256 tables and 0 to 1024 probes");
        }
        let len = sample[0].len();
        let is_vector = |vector: &Vec<f32>| {
            vector.len() == len && vector.iter().all(|component| component.is_finite())
        };
        if len == 0 || !sample.iter().all(is_vector) {
            return refuse("to choose functions give vectors of equally many finite components");
        }
        let distances = distances(family, sample);
        if distances.is_empty() {
            return refuse(
                "to choose functions give two vectors that have a distance; those of zeros have no direction",
            );
        }
        let families: Vec<Family> = match family {
            Family::Cosine => vec![Family::Cosine],
            Family::Euclidean { .. } => WIDTHS
                .map(|width| Family::Euclidean {
                    width: (width * target.near) as f32,
                })
                .into(),
        };
        let choices = families
            .into_iter()
            .filter_map(|family| Self::by_distances(family, target, &distances));
        match choices.min_by(|one, other| one.share.total_cmp(&other.share)) {
            Some(choice) => Ok(choice),
            None => refuse(
                "no number of functions finds vectors that far apart that often; give more tables, a smaller distance or less recall",
            ),
        }
    }

    /// Returns the most functions that meet the target, and the share of vectors at these distances that they read.
    fn by_distances(family: Family, target: &Target, distances: &[f64]) -> Option<Self> {
        let recall_of =
            |functions| likely_found(family, &[target.near], target, functions, RECALL_TRIALS);
        let mut functions = family.functions_for(target.near, target.tables, target.recall)?;
        let mut recall = family.found(target.near, target.tables, functions);
        while target.probes > 0 && functions < MOST_FUNCTIONS {
            let with_more = recall_of(functions + 1);
            if with_more < target.recall {
                break;
            }
            (functions, recall) = (functions + 1, with_more);
        }
        let share = match target.probes {
            0 => {
                let found = |&distance: &f64| family.found(distance, target.tables, functions);
                distances.iter().map(found).sum::<f64>() / distances.len() as f64
            }
            _ => {
                let step = distances.len().div_ceil(SHARE_TRIALS);
                let some: Vec<f64> = distances
                    .iter()
                    .skip(step / 2)
                    .step_by(step)
                    .copied()
                    .collect();
                likely_found(family, &some, target, functions, SHARE_TRIALS)
            }
        };
        Some(Self {
            family,
            functions,
            tables: target.tables,
            probes: target.probes,
            recall,
            share,
        })
    }
}

/// Returns how often vectors at these distances are found, by trial. Collisions depend on distances alone, so vectors of a
/// few dimensions stand for all.
fn likely_found(
    family: Family,
    distances: &[f64],
    target: &Target,
    functions: u32,
    trials: usize,
) -> f64 {
    const DIMENSIONS: usize = 16;
    let (tables, functions) = (target.tables as usize, functions as usize);
    let drawn = Functions::new(family, tables, functions, DIMENSIONS, 0x7e57);
    let trials = trials.max(distances.len());
    let found = (0..trials).filter(|&trial| {
        let distance = distances[trial % distances.len()];
        let (one, other) = apart::<DIMENSIONS>(family, distance, trial);
        let likely = drawn.likely_keys(&one, target.probes as usize);
        let keys = drawn.keys(&other);
        likely.into_iter().any(|(table, key)| keys[table] == key)
    });
    found.count() as f64 / trials as f64
}

/// Returns two vectors at this distance, different ones in each trial.
fn apart<const N: usize>(family: Family, distance: f64, trial: usize) -> ([f32; N], [f32; N]) {
    let draw = |part: usize| {
        let direction: [f64; N] =
            std::array::from_fn(|at| normal(0xd4a3, 2 * trial + part, at).into());
        let length = direction.iter().map(|at| at * at).sum::<f64>().sqrt();
        direction.map(|at| at / length)
    };
    let (one, mut aside) = (draw(0), draw(1));
    match family {
        Family::Cosine => {
            let along: f64 = one.iter().zip(&aside).map(|(a, b)| a * b).sum();
            for (at, one) in aside.iter_mut().zip(&one) {
                *at -= along * one;
            }
            let length = aside.iter().map(|at| at * at).sum::<f64>().sqrt();
            let cosine = (1.0 - distance).clamp(-1.0, 1.0);
            let sine = (1.0 - cosine * cosine).sqrt() / length;
            let other = std::array::from_fn(|at| (cosine * one[at] + sine * aside[at]) as f32);
            (one.map(|at| at as f32), other)
        }
        Family::Euclidean { width } => {
            // Many widths from the origin, so that each trial meets other buckets.
            let far = one.map(|at| (100.0 * f64::from(width) * at) as f32);
            (
                far,
                std::array::from_fn(|at| far[at] + (distance * aside[at]) as f32),
            )
        }
    }
}

/// Returns distances between vectors of a sample, in ascending order, for pairs that lie evenly among all pairs.
fn distances(family: Family, sample: &[Vec<f32>]) -> Vec<f64> {
    let len = sample.len();
    let pairs = (len * (len - 1) / 2).min(MOST_PAIRS);
    let pair = |nth: usize| {
        let step = 1 + nth / len % (len - 1);
        (nth % len, (nth % len + step) % len)
    };
    let mut distances: Vec<f64> = (0..pairs)
        .map(pair)
        .map(|(one, other)| family.distance(&sample[one], &sample[other]))
        .filter(|distance| !distance.is_nan())
        .collect();
    distances.sort_by(f64::total_cmp);
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_without_distances_is_refused() {
        let euclidean = Family::Euclidean { width: 1.0 };
        let refusal = |family: Family, sample: &[[f32; 2]]| {
            let sample: Vec<Vec<f32>> = sample.iter().map(|vector| vector.to_vec()).collect();
            for probes in [0, 30] {
                let target = Target {
                    probes,
                    ..Target::new(0.5)
                };
                let refused = Choice::of(family, &sample, &target).expect_err("refused");
                assert!(matches!(refused, SliceError::Setting(_)), "{refused}");
            }
        };
        refusal(euclidean, &[]);
        refusal(euclidean, &[[1.0, 2.0]]);
        refusal(euclidean, &[[f32::NAN, 1.0]; 3]);
        refusal(euclidean, &[[1.0, 2.0], [f32::INFINITY, 1.0]]);
        refusal(Family::Cosine, &[[f32::NAN, f32::NAN]; 3]);
        refusal(Family::Cosine, &[[0.0, 0.0]; 3]);
        for sample in [[vec![1.0], vec![1.0, 2.0]], [vec![], vec![]]] {
            let refused = Choice::of(euclidean, &sample, &Target::new(0.5));
            assert!(matches!(refused, Err(SliceError::Setting(_))));
        }
    }

    #[test]
    fn a_choice_finds_what_is_near_and_little_else() {
        let vector = |of: usize| -> Vec<f32> {
            (0..40)
                .map(|at| ((of * 31 + at * at * (of + 3)) % 97) as f32 - 48.0)
                .collect()
        };
        let sample: Vec<Vec<f32>> = (0..100).map(vector).collect();
        for (family, near) in [
            (Family::Cosine, 0.02),
            (Family::Euclidean { width: 0.0 }, 30.0),
        ] {
            let target = |probes| Target {
                probes,
                ..Target::new(near)
            };
            let choice = Choice::of(family, &sample, &target(0)).expect("there is one");
            assert!(choice.recall >= 0.95 && choice.share < 0.2, "{choice:?}");
            let more = choice.family.found(near, 10, choice.functions + 1);
            assert!(more < 0.95, "{choice:?}");
            let with_probes = Choice::of(family, &sample, &target(20)).expect("there is one");
            assert!(
                with_probes.share < choice.share + 0.005,
                "{with_probes:?} {choice:?}"
            );
            assert!(with_probes.recall >= 0.95, "{with_probes:?}");
        }
        let far = Target {
            recall: 0.99,
            tables: 1,
            ..Target::new(1.9)
        };
        let refused = Choice::of(Family::Cosine, &sample, &far).expect_err("refused");
        assert!(refused.to_string().contains("more tables"), "{refused}");
        let near = Target::new(0.1);
        assert!(Choice::of(Family::Cosine, &sample[..1], &near).is_err());
        let none = Target { tables: 0, ..near };
        assert!(Choice::of(Family::Cosine, &sample, &none).is_err());
        assert!(Choice::of(Family::Cosine, &sample, &Target::new(f64::NAN)).is_err());
    }

    #[test]
    fn trials_agree_with_what_is_computed() {
        for (family, distance) in [
            (Family::Cosine, 0.1),
            (Family::Euclidean { width: 3.0 }, 1.5),
        ] {
            let target = Target {
                probes: 0,
                ..Target::new(distance)
            };
            let by_trial = likely_found(family, &[distance], &target, 8, 2_000);
            let computed = family.found(distance, 10, 8);
            assert!((by_trial - computed).abs() < 0.05, "{by_trial} {computed}");
            let (one, other) = apart::<16>(family, distance, 5);
            assert!((family.distance(&one, &other) - distance).abs() < 1e-3);
        }
    }
}
