//! How many functions a table should have, and how wide buckets should be.
//!
//! A function lets vectors at distance `d` collide with probability `p(d)`, a table of `m` functions with `p(d)^m`, and one of
//! `l` tables at least with `1 - (1 - p(d)^m)^l`. More functions mean fewer candidates that are far, and fewer that are near.

use crate::error::SliceError;
use crate::lsh::family::Family;
use crate::lsh::settings::MOST_FUNCTIONS;

/// Pairs of a sample whose distance is measured, at most.
const MOST_PAIRS: usize = 20_000;
/// Widths that are tried, in distances at which vectors count as near.
const WIDTHS: [f64; 9] = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];

/// What suits some vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The family, with its width.
    pub family: Family,
    /// Functions of each table.
    pub functions: u32,
    /// How likely a vector at the distance that counts as near is found.
    pub recall: f64,
    /// Share of all vectors that a query reads, if all are as the sample.
    pub share: f64,
}

impl Family {
    /// How likely one function lets two vectors collide that are `distance` apart.
    pub fn collision(&self, distance: f64) -> f64 {
        if distance <= 0.0 {
            return 1.0;
        }
        match *self {
            Self::Cosine => 1.0 - (1.0 - distance).clamp(-1.0, 1.0).acos() / std::f64::consts::PI,
            Self::Euclidean { width } => {
                let ratio = f64::from(width) / distance;
                let tail = (1.0 - (-ratio * ratio / 2.0).exp()) / ratio;
                let both = 1.0 - 2.0 * normal_cdf(-ratio);
                (both - (2.0 / std::f64::consts::PI).sqrt() * tail).clamp(0.0, 1.0)
            }
        }
    }

    /// How likely one of `tables` tables of `functions` functions lets two vectors collide that are `distance` apart.
    pub fn found(&self, distance: f64, tables: u32, functions: u32) -> f64 {
        let in_one = self.collision(distance).powf(functions.into());
        1.0 - (1.0 - in_one).powf(tables.into())
    }

    /// The most functions with which a vector `near` away is found with probability `recall` at least, in one of `tables`
    /// tables; `None` where one function is too many.
    pub fn functions_for(&self, near: f64, tables: u32, recall: f64) -> Option<u32> {
        (1..=MOST_FUNCTIONS)
            .rev()
            .find(|&functions| self.found(near, tables, functions) >= recall)
    }

    /// The functions, and of Euclidean distance the width, that find vectors `near` away with probability `recall` at least
    /// and read the fewest others, if those are as in `sample`. The width that the family has is not looked at.
    ///
    /// # Errors
    /// Where the sample has no two vectors, or so few `tables` cannot find what is so far away.
    pub fn chosen(
        &self,
        sample: &[Vec<f32>],
        near: f64,
        tables: u32,
        recall: f64,
    ) -> Result<Choice, SliceError> {
        let refuse = |what: &str| Err(SliceError::Setting(what.to_owned()));
        if sample.len() < 2 || near.is_nan() || near <= 0.0 {
            return refuse("to choose functions give two vectors at least, and a distance above 0");
        }
        let distances = distances(self, sample);
        let families: Vec<Self> = match self {
            Self::Cosine => vec![Self::Cosine],
            Self::Euclidean { .. } => WIDTHS
                .map(|width| Self::Euclidean {
                    width: (width * near) as f32,
                })
                .into(),
        };
        let choices = families.into_iter().filter_map(|family| {
            let functions = family.functions_for(near, tables, recall)?;
            let found = |&distance: &f64| family.found(distance, tables, functions);
            Some(Choice {
                family,
                functions,
                recall: found(&near),
                share: distances.iter().map(found).sum::<f64>() / distances.len() as f64,
            })
        });
        match choices.min_by(|one, other| one.share.total_cmp(&other.share)) {
            Some(choice) => Ok(choice),
            None => refuse(
                "no number of functions finds vectors that far apart that often; give more tables, a smaller distance or less recall",
            ),
        }
    }
}

/// Distances between vectors of a sample: pairs that lie evenly among all.
fn distances(family: &Family, sample: &[Vec<f32>]) -> Vec<f64> {
    let len = sample.len();
    let pairs = (len * (len - 1) / 2).min(MOST_PAIRS);
    let pair = |nth: usize| {
        let step = 1 + nth / len % (len - 1);
        (nth % len, (nth % len + step) % len)
    };
    (0..pairs)
        .map(pair)
        .map(|(one, other)| family.distance(&sample[one], &sample[other]))
        .filter(|distance| !distance.is_nan())
        .collect()
}

/// The normal distribution, to 1e-7: Abramowitz and Stegun, 26.2.17.
fn normal_cdf(x: f64) -> f64 {
    const FACTORS: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let sum = FACTORS
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsh::family::Functions;

    #[test]
    fn collisions_are_as_likely_as_computed() {
        let families = [
            (Family::Cosine, [0.05, 0.5, 1.0]),
            (Family::Euclidean { width: 4.0 }, [0.5, 2.0, 8.0]),
        ];
        for (family, distances) in families {
            let functions = Functions::new(family, (4_000, 1, 30), 11);
            for distance in distances {
                let one: Vec<f32> = (0..30).map(|at| (at % 7) as f32 - 2.0).collect();
                let norm = one.iter().map(|x| x * x).sum::<f32>().sqrt();
                let (mut a, mut b) = (vec![0.0; 30], vec![0.0; 30]);
                match family {
                    Family::Cosine => {
                        a[0] = 1.0;
                        b[0] = 1.0 - distance as f32;
                        b[1] = (1.0 - b[0] * b[0]).max(0.0).sqrt();
                    }
                    Family::Euclidean { .. } => {
                        for at in 0..30 {
                            a[at] = one[at];
                            b[at] = one[at] * (1.0 + distance as f32 / norm);
                        }
                    }
                }
                assert!((family.distance(&a, &b) - distance).abs() < 1e-4);
                let keys = functions.keys(&a).into_iter().zip(functions.keys(&b));
                let measured = keys.filter(|(a, b)| a == b).count() as f64 / 4_000.0;
                let computed = family.collision(distance);
                assert!(
                    (measured - computed).abs() < 0.03,
                    "{family:?} {distance}: {measured} {computed}"
                );
            }
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
            let choice = family
                .chosen(&sample, near, 10, 0.95)
                .expect("there is one");
            assert!(choice.recall >= 0.95 && choice.share < 0.2, "{choice:?}");
            let more = choice.family.found(near, 10, choice.functions + 1);
            assert!(more < 0.95, "{choice:?}");
        }
        let far = Family::Cosine
            .chosen(&sample, 1.9, 1, 0.99)
            .expect_err("refused");
        assert!(far.to_string().contains("more tables"), "{far}");
        assert!(Family::Cosine.chosen(&sample[..1], 0.1, 1, 0.9).is_err());
    }
}
