//! Functions under which near vectors collide, and the distances that they stand for.
//!
//! The direction of a function follows from the seed by integer arithmetic and one scaling, so that it is the same on every
//! machine and with every version of this program.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of sums that are formed side by side, so that the order of additions is the same on every machine.
const LANES: usize = 8;

/// Maximum functions of a table.
pub(crate) const MOST_FUNCTIONS: u32 = 128;

/// A distance, with its functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    /// 1 minus the cosine of the angle, 0 to 2. A function says on which side of a random hyperplane a vector lies.
    Cosine,
    /// The length of the straight line. A function projects onto a random line, and divides the line into buckets.
    Euclidean {
        /// Width of a bucket, in the unit of the vectors.
        width: f32,
    },
}

impl Family {
    /// Returns the distance of two vectors, over the components of the shorter one. Returns NaN if a vector has no direction and
    /// the distance needs one.
    pub fn distance(&self, one: &[f32], other: &[f32]) -> f64 {
        self.distance_of(one, other.iter().map(|&component| f64::from(component)))
    }

    pub(crate) fn distance_of(&self, one: &[f32], other: impl Iterator<Item = f64>) -> f64 {
        let pairs = one.iter().map(|&component| f64::from(component)).zip(other);
        match self {
            Self::Cosine => {
                let (mut dot, mut of_one, mut of_other) = (0.0, 0.0, 0.0);
                for (a, b) in pairs {
                    dot += a * b;
                    of_one += a * a;
                    of_other += b * b;
                }
                let distance = 1.0 - dot / (of_one.sqrt() * of_other.sqrt());
                // Rounding may take the cosine of equal directions past 1.
                if distance < 0.0 { 0.0 } else { distance }
            }
            Self::Euclidean { .. } => pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt(),
        }
    }

    /// Returns the probability that one function lets two vectors at this distance collide.
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

    /// Returns the probability that two vectors at this distance collide in at least one of `tables` tables of `functions`
    /// functions.
    pub fn found(&self, distance: f64, tables: u32, functions: u32) -> f64 {
        let in_one = self.collision(distance).powf(functions.into());
        1.0 - (1.0 - in_one).powf(tables.into())
    }

    /// Returns the most functions with which a vector at distance `near` is found with probability `recall` or more, in `tables`
    /// tables; `None` if one function is too many.
    pub fn functions_for(&self, near: f64, tables: u32, recall: f64) -> Option<u32> {
        (1..=MOST_FUNCTIONS)
            .rev()
            .find(|&functions| self.found(near, tables, functions) >= recall)
    }
}

/// Returns the normal distribution, to 1e-7: Abramowitz and Stegun, 26.2.17.
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

/// Number of functions of a table, the nearest to their next value, that are changed together with another function.
const PAIRED: usize = 4;

/// The value of a function for a vector.
#[derive(Clone, Copy, Debug)]
struct Value {
    value: i32,
    /// Value for vectors a little further away, and how much further, in a unit that all functions share.
    next: i32,
    to_next: f32,
}

/// The functions of all tables. May be used from all threads at once.
pub(crate) struct Functions {
    family: Family,
    seed: u64,
    dimensions: usize,
    /// Functions of each table.
    count: usize,
    /// A direction for each function, table by table.
    directions: Box<[f32]>,
    /// Start of each function's buckets, in widths: 0 to 1.
    offsets: Box<[f32]>,
}

/// Returns bits that follow from the seed and their purpose.
fn bits(seed: u64, function: usize, dimension: usize, part: u64) -> u64 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&(function as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&(dimension as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&part.to_le_bytes());
    xxh3_64_with_seed(&bytes, seed)
}

/// Returns a number of mean 0 and variance 1, nearly normal: the scaled sum of 16 uniform numbers.
pub(crate) fn normal(seed: u64, function: usize, dimension: usize) -> f32 {
    const PARTS: u64 = 4;
    let sum: u64 = (0..PARTS)
        .map(|part| bits(seed, function, dimension, part))
        .flat_map(|word| (0..4).map(move |nth| word >> (16 * nth) & 0xffff))
        .sum();
    // Each uniform number has mean 0x7fff.8 and variance 2^32 / 12.
    let centred = 2 * sum as i64 - 16 * 0xffff;
    const HALF_DEVIATION: f64 = 0.5 / (65536.0 * 1.154_700_538_379_251_7);
    (centred as f64 * HALF_DEVIATION) as f32
}

impl Functions {
    /// Draws `functions` functions for each of `tables` tables.
    pub(crate) fn new(
        family: Family,
        tables: usize,
        functions: usize,
        dimensions: usize,
        seed: u64,
    ) -> Self {
        let all = tables * functions;
        let directions = (0..all).flat_map(|function| {
            (0..dimensions).map(move |dimension| normal(seed, function, dimension))
        });
        // No direction has this dimension.
        let offset =
            |function| (bits(seed, function, usize::MAX, 0) >> 40) as f32 / (1 << 24) as f32;
        Self {
            family,
            seed,
            dimensions,
            count: functions,
            directions: directions.collect(),
            offsets: (0..all).map(offset).collect(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(&*self.directions) + size_of_val(&*self.offsets)) as u64
    }

    fn value(&self, function: usize, vector: &[f32]) -> Value {
        let start = function * self.dimensions;
        let along = dot(&self.directions[start..start + self.dimensions], vector);
        match self.family {
            Family::Cosine => Value {
                value: i32::from(along >= 0.0),
                next: i32::from(along < 0.0),
                to_next: along.abs(),
            },
            Family::Euclidean { width } => {
                let at = along / width + self.offsets[function];
                let (value, within) = (at.floor() as i32, at - at.floor());
                Value {
                    value,
                    next: value.saturating_add(if within < 0.5 { -1 } else { 1 }),
                    to_next: within.min(1.0 - within),
                }
            }
        }
    }

    /// Returns the key of a table whose functions have these values. Functions in `other` have their next value instead.
    fn key(&self, table: usize, values: &[Value], other: &[usize]) -> u64 {
        let value = |(function, value): (usize, &Value)| match other.contains(&function) {
            true => value.next.to_le_bytes(),
            false => value.value.to_le_bytes(),
        };
        let bytes: Vec<u8> = values.iter().enumerate().flat_map(value).collect();
        xxh3_64_with_seed(&bytes, self.seed.wrapping_add(table as u64))
    }

    fn values(&self, table: usize, vector: &[f32]) -> Vec<Value> {
        let functions = table * self.count..(table + 1) * self.count;
        functions
            .map(|function| self.value(function, vector))
            .collect()
    }

    /// Returns the key of a vector in each table.
    pub(crate) fn keys(&self, vector: &[f32]) -> Vec<u64> {
        let key = |table| self.key(table, &self.values(table, vector), &[]);
        (0..self.offsets.len() / self.count).map(key).collect()
    }

    /// Returns the tables and keys that a vector's neighbours are most likely to have: first its own key in each table, then
    /// `others` keys in which one or two functions have their next value. The nearer the next value, the likelier the key.
    pub(crate) fn likely_keys(&self, vector: &[f32], others: usize) -> Vec<(usize, u64)> {
        let tables = self.offsets.len() / self.count;
        let values: Vec<Vec<Value>> = (0..tables)
            .map(|table| self.values(table, vector))
            .collect();
        let own = values.iter().enumerate();
        let mut keys: Vec<(usize, u64)> = own
            .map(|(table, values)| (table, self.key(table, values, &[])))
            .collect();
        if others > 0 {
            let changes = values
                .iter()
                .enumerate()
                .flat_map(|(table, values)| changes(table, values));
            let mut changes: Vec<Change> = changes.collect();
            let by_cost = |one: &Change, other: &Change| one.cost.total_cmp(&other.cost);
            if others < changes.len() {
                changes.select_nth_unstable_by(others, by_cost);
                changes.truncate(others);
            }
            changes.sort_by(by_cost);
            keys.extend(changes.iter().map(
                |&Change {
                     table, functions, ..
                 }| { (table, self.key(table, &values[table], &functions)) },
            ));
        }
        keys
    }
}

/// A key other than the vector's own: one or two functions have their next value.
struct Change {
    /// Squared distance to the next values.
    cost: f32,
    table: usize,
    /// The functions that change; the same one twice if only one does.
    functions: [usize; 2],
}

/// Returns the changes of a table: each function alone, and each with the functions whose next value is nearest.
fn changes(table: usize, values: &[Value]) -> Vec<Change> {
    let square = |function: usize| values[function].to_next.powi(2);
    let mut nearest: Vec<usize> = (0..values.len()).collect();
    nearest.sort_by(|&one, &other| square(one).total_cmp(&square(other)));
    let mut changes = Vec::with_capacity((1 + PAIRED) * values.len());
    for (nth, &function) in nearest.iter().enumerate() {
        changes.push(Change {
            cost: square(function),
            table,
            functions: [function; 2],
        });
        changes.extend(nearest[..nth.min(PAIRED)].iter().map(|&other| Change {
            cost: square(function) + square(other),
            table,
            functions: [function, other],
        }));
    }
    changes
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (ones, others) = (one.chunks_exact(LANES), other.chunks_exact(LANES));
    let rest = ones.remainder().iter().zip(others.remainder());
    let rest: f32 = rest.map(|(a, b)| a * b).sum();
    for (a, b) in ones.zip(others) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_normal_and_stay_the_same() {
        let numbers: Vec<f64> = (0..40_000)
            .map(|at| f64::from(normal(7, at / 200, at % 200)))
            .collect();
        let mean_of = |power: i32| {
            numbers.iter().map(|number| number.powi(power)).sum::<f64>() / numbers.len() as f64
        };
        assert!(mean_of(1).abs() < 0.02, "{}", mean_of(1));
        assert!((mean_of(2) - 1.0).abs() < 0.03, "{}", mean_of(2));
        assert!((mean_of(4) - 3.0).abs() < 0.25, "{}", mean_of(4));
        // Indexes on drives rely on these values.
        let stay = [normal(1, 2, 3), normal(u64::MAX, 0, 783)];
        assert_eq!(stay, [-0.138_487_95, -0.048_906_86]);
    }

    #[test]
    fn likely_keys_are_those_of_the_vectors_beside() {
        for (family, aside_by) in [
            (Family::Cosine, 3.0),
            (Family::Euclidean { width: 6.0 }, 0.7),
        ] {
            let functions = Functions::new(family, 10, 12, 30, 9);
            let vector: Vec<f32> = (0..30).map(|at| 10.0 * normal(3, 0, at)).collect();
            let keys = functions.keys(&vector);
            let likely = functions.likely_keys(&vector, 25);
            let own: Vec<(usize, u64)> = keys.iter().copied().enumerate().collect();
            assert_eq!((&likely[..10], likely.len()), (&own[..], 35));
            let all: std::collections::HashSet<_> = likely.iter().collect();
            assert_eq!(all.len(), 35);
            let (mut with, mut without) = (0, 0);
            for seed in 0..300 {
                let aside = |at: usize| vector[at] + aside_by * normal(seed, 1, at);
                let beside: Vec<f32> = (0..30).map(aside).collect();
                let beside = functions.keys(&beside);
                with += likely
                    .iter()
                    .filter(|&&(table, key)| beside[table] == key)
                    .count();
                without += own
                    .iter()
                    .filter(|&&(table, key)| beside[table] == key)
                    .count();
            }
            assert!(with > without * 3 / 2, "{family:?}: {with} {without}");
        }
    }

    #[test]
    fn distances_are_what_they_are_called() {
        let euclidean = Family::Euclidean { width: 1.0 };
        assert_eq!(euclidean.distance(&[0.0, 3.0], &[4.0, 0.0]), 5.0);
        assert_eq!(Family::Cosine.distance(&[2.0, 0.0], &[0.0, 7.0]), 1.0);
        assert_eq!(Family::Cosine.distance(&[2.0, 0.0], &[-3.0, 0.0]), 2.0);
        assert_eq!(Family::Cosine.distance(&[0.1, 0.7], &[0.1, 0.7]), 0.0);
    }

    #[test]
    fn near_vectors_collide_and_far_ones_do_not() {
        for family in [Family::Cosine, Family::Euclidean { width: 8.0 }] {
            let functions = Functions::new(family, 200, 6, 50, 5);
            let vector: Vec<f32> = (0..50).map(|at| normal(3, 0, at)).collect();
            let near: Vec<f32> = (0..50)
                .map(|at| vector[at] + 0.05 * normal(4, 0, at))
                .collect();
            let far: Vec<f32> = (0..50).map(|at| normal(6, 0, at)).collect();
            let keys = functions.keys(&vector);
            let same = |other: &[f32]| {
                let others = functions.keys(other);
                keys.iter().zip(others).filter(|(a, b)| *a == b).count()
            };
            assert_eq!(same(&vector), 200);
            assert!(
                same(&near) > 150 && same(&far) < 30,
                "{family:?}: {} {}",
                same(&near),
                same(&far)
            );
        }
    }

    #[test]
    fn collisions_are_as_likely_as_computed() {
        let families = [
            (Family::Cosine, [0.05, 0.5, 1.0]),
            (Family::Euclidean { width: 4.0 }, [0.5, 2.0, 8.0]),
        ];
        for (family, distances) in families {
            let functions = Functions::new(family, 4_000, 1, 30, 11);
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
}
