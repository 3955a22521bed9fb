//! A linear support vector machine, trained exactly (Flashield, section 3.2).
//!
//! ```text
//!   minimize  1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i w.x_i)      c_i: share of example i among all; y_i: 1 or -1
//! ```
//!
//! The last part of every `x` is the constant 1. The dual is solved by coordinate descent (Hsieh et al., ICML 2008):
//! there is one multiplier for each example, and each in turn is set to its best value, until the gap between the two
//! objectives shows that no other `w` is better by more than [`GAP`] of the objective. Equal examples are merged into
//! one with a larger `c`, so that the work does not grow with their number.

/// Number of parts of an example, including the constant.
pub const PARTS: usize = 4;
/// Relative gap at which the solution is as good as exact.
const GAP: f64 = 1e-3;
/// Maximum number of rounds over all examples. A round over a few hundred examples takes microseconds.
const MOST_ROUNDS: usize = 20_000;
/// Number of rounds between two computations of the gap.
const LOOK_ROUNDS: usize = 8;

/// An example, with the number of times it occurred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Example {
    /// Features; the last part is 1.
    pub parts: [f64; PARTS],
    /// Whether the example is of the positive class.
    pub is_positive: bool,
    /// Number of times that the example occurred.
    pub count: f64,
}

/// A trained separator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Separator {
    /// Weight of each part of an example.
    pub weights: [f64; PARTS],
    /// The objective with these weights, and a lower bound of the objective with any weights.
    pub bounds: (f64, f64),
    /// Rounds over all examples that training took.
    pub rounds: usize,
}

impl Separator {
    /// Returns the side of the boundary, and the distance from it: positive for the positive class.
    pub fn score(&self, parts: &[f64; PARTS]) -> f64 {
        dot(&self.weights, parts)
    }
}

/// Trains the best separator of the examples. A mistake costs `cost` times as much as a margin that is smaller by one.
pub fn train(examples: &[Example], cost: f64) -> Separator {
    let all: f64 = examples.iter().map(|example| example.count).sum();
    let most = |example: &Example| cost * example.count / all.max(1.0);
    let sign = |example: &Example| if example.is_positive { 1.0 } else { -1.0 };
    let mut multipliers = vec![0.0; examples.len()];
    let mut weights = [0.0; PARTS];
    let bounds = |weights: &[f64; PARTS], multipliers: &[f64]| {
        let half_norm = dot(weights, weights) / 2.0;
        let loss = |example: &Example| {
            let margin = sign(example) * dot(weights, &example.parts);
            most(example) * (1.0 - margin).max(0.0)
        };
        let primal = half_norm + examples.iter().map(loss).sum::<f64>();
        let dual = multipliers.iter().sum::<f64>() - half_norm;
        (primal, dual)
    };
    let mut order: Vec<usize> = (0..examples.len()).collect();
    let mut drawn = 1;
    let mut rounds = 0usize;
    loop {
        if rounds.is_multiple_of(LOOK_ROUNDS) || rounds == MOST_ROUNDS {
            let (primal, dual) = bounds(&weights, &multipliers);
            if primal - dual <= GAP * primal || rounds == MOST_ROUNDS {
                return Separator {
                    weights,
                    bounds: (primal, dual),
                    rounds,
                };
            }
        }
        rounds += 1;
        shuffle(&mut order, &mut drawn);
        for &at in &order {
            let (example, multiplier) = (&examples[at], &mut multipliers[at]);
            let gradient = sign(example) * dot(&weights, &example.parts) - 1.0;
            let curvature = dot(&example.parts, &example.parts);
            let before = *multiplier;
            *multiplier = (before - gradient / curvature).clamp(0.0, most(example));
            let change = (*multiplier - before) * sign(example);
            for (weight, part) in weights.iter_mut().zip(&example.parts) {
                *weight += change * part;
            }
        }
    }
}

/// Shuffles the examples in the same way in every run. In a fixed order descent converges slowly.
fn shuffle(order: &mut [usize], drawn: &mut u64) {
    for at in (1..order.len()).rev() {
        *drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        order.swap(at, ((*drawn >> 33) % (at as u64 + 1)) as usize);
    }
}

fn dot(one: &[f64; PARTS], other: &[f64; PARTS]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn example(one: f64, other: f64, is_positive: bool, count: f64) -> Example {
        Example {
            // The third part depends on the first two, but not linearly.
            parts: [one, other, (one * other).sqrt(), 1.0],
            is_positive,
            count,
        }
    }

    #[test]
    fn two_points_are_separated_in_the_middle() {
        let examples = [example(0.0, 0.0, false, 1.0), example(2.0, 0.0, true, 1.0)];
        let learned = train(&examples, 1e6);
        // w = (1, 0), and -1 at the origin: the margins are 1. The constant is a part like any other, so that the norm
        // counts it.
        for (weight, right) in learned.weights.iter().zip([1.0, 0.0, 0.0, -1.0]) {
            assert!((weight - right).abs() < 1e-2, "{learned:?}");
        }
        let score = |one| learned.score(&[one, 0.0, 0.0, 1.0]);
        assert!(score(1.5) > 0.0 && score(0.5) < 0.0);
    }

    /// For any examples, none of the weights that a search tries is better than the trained ones by more than the gap,
    /// and the dual confirms that none can be.
    #[test]
    fn no_other_separator_is_better() {
        for seed in 1..=30 {
            let random = &mut SmallRng::seed_from_u64(seed);
            let examples: Vec<Example> = (0..random.random_range(2..60))
                .map(|_| {
                    let (reads, updates) =
                        (random.random_range(0.0..6.0), random.random_range(0.0..4.0));
                    let is_positive =
                        random.random_bool(if reads > updates + 2.0 { 0.9 } else { 0.2 });
                    example(
                        reads,
                        updates,
                        is_positive,
                        random.random_range(1..100).into(),
                    )
                })
                .collect();
            let cost = 10f64.powi(random.random_range(-1..4));
            let learned = train(&examples, cost);
            let (primal, dual) = learned.bounds;
            assert!(primal - dual <= GAP * primal, "seed {seed}: {learned:?}");
            assert!(dual <= primal + 1e-9);
            let all: f64 = examples.iter().map(|example| example.count).sum();
            let objective = |weights: &[f64; PARTS]| {
                let loss = |example: &Example| {
                    let sign = if example.is_positive { 1.0 } else { -1.0 };
                    let margin = sign * dot(weights, &example.parts);
                    cost * example.count / all * (1.0 - margin).max(0.0)
                };
                dot(weights, weights) / 2.0 + examples.iter().map(loss).sum::<f64>()
            };
            assert!((objective(&learned.weights) - primal).abs() <= 1e-9 * primal.max(1.0));
            for _ in 0..2000 {
                let scale = 10f64.powi(random.random_range(-4..1));
                let other = learned
                    .weights
                    .map(|weight| weight + scale * random.random_range(-1.0..1.0));
                let is_no_better = objective(&other) >= dual - 1e-9;
                assert!(is_no_better, "seed {seed}: {other:?} beside {learned:?}");
            }
        }
    }

    #[test]
    fn what_comes_often_is_the_same_as_as_many_examples() {
        let often = [
            example(1.0, 0.0, false, 3.0),
            example(4.0, 1.0, true, 2.0),
            example(2.0, 2.0, false, 1.0),
        ];
        let single: Vec<Example> = often
            .iter()
            .flat_map(|example| {
                let one = Example {
                    count: 1.0,
                    ..*example
                };
                std::iter::repeat_n(one, example.count as usize)
            })
            .collect();
        let (one, other) = (train(&often, 100.0), train(&single, 100.0));
        for (weight, same) in one.weights.iter().zip(other.weights) {
            assert!((weight - same).abs() < 0.05, "{one:?} {other:?}");
        }
    }

    #[test]
    fn nothing_and_one_class_alone_are_learned_too() {
        assert_eq!(train(&[], 1.0).weights, [0.0; PARTS]);
        let learned = train(&[example(3.0, 0.0, true, 5.0)], 1000.0);
        assert!(learned.score(&[3.0, 0.0, 0.0, 1.0]) > 0.9);
    }
}
