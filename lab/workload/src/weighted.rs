//! A choice between weighted values with one random word and one table look-up (Walker's alias method, built
//! as Vose describes it, 1991).

use crate::stream::word_of;

/// Values with weights. Immutable; callers supply the random words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weighted<T> {
    values: Box<[T]>,
    /// For each value, the part of its column that is its own, and the value that has the rest.
    columns: Box<[Column]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Column {
    /// A fraction of 2^64; the largest word stands for the whole column.
    own_below: u64,
    other: u32,
}

impl<T> Weighted<T> {
    /// Returns values with shares in proportion to their weights. Returns `None` if no weight is above 0, or
    /// if a weight is negative or not finite.
    pub(crate) fn new(weighted: impl IntoIterator<Item = (T, f64)>) -> Option<Self> {
        let (values, weights): (Vec<T>, Vec<f64>) = weighted.into_iter().unzip();
        let all: f64 = weights.iter().sum();
        let valid = weights.iter().all(|weight| *weight >= 0.0);
        if !valid || !all.is_finite() || all <= 0.0 || u32::try_from(weights.len()).is_err() {
            return None;
        }
        let scale = weights.len() as f64 / all;
        let mut heights: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&number| heights[number] < 1.0);
        let whole = |number: usize| Column {
            own_below: u64::MAX,
            other: number as u32,
        };
        let mut columns: Box<[Column]> = (0..weights.len()).map(whole).collect();
        while let (Some(&small), Some(&large)) = (low.last(), high.last()) {
            low.pop();
            columns[small] = Column {
                own_below: word_of(heights[small]),
                other: large as u32,
            };
            heights[large] -= 1.0 - heights[small];
            if heights[large] < 1.0 {
                high.pop();
                low.push(large);
            }
        }
        // Rounding may leave a few columns without a partner. They are whole except for a rounding error,
        // unless their value must never be chosen.
        let heaviest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]))?;
        for number in low.into_iter().filter(|&number| weights[number] == 0.0) {
            columns[number] = Column {
                own_below: 0,
                other: heaviest as u32,
            };
        }
        Some(Self {
            values: values.into(),
            columns,
        })
    }

    /// Returns the value that the random `word` chooses.
    #[inline]
    pub(crate) fn choose(&self, word: u64) -> &T {
        let product = u128::from(word) * self.columns.len() as u128;
        let number = (product >> 64) as usize;
        let column = self.columns[number];
        let own = (product as u64) < column.own_below || column.own_below == u64::MAX;
        &self.values[if own { number } else { column.other as usize }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_fits, tally};
    use crate::stream::Stream;

    #[test]
    fn values_are_chosen_in_proportion_to_their_weights() {
        let weights: Vec<f64> = (0..100).map(|i| f64::from(i * i)).collect();
        let weighted = Weighted::new(weights.iter().copied().enumerate()).unwrap();
        let mut stream = Stream::new(4, 0);
        let counts = tally(100, 1_000_000, |_| *weighted.choose(stream.next_u64()));
        assert_eq!(counts[0], 0, "a weight of 0 never happens");
        assert_fits(&counts, &weights);
    }

    #[test]
    fn one_possibility_is_always_chosen() {
        let only = Weighted::new([(7, 3.0)]).unwrap();
        assert_eq!(
            [0, 1 << 63, u64::MAX].map(|word| only.choose(word)),
            [&7; 3]
        );
    }

    #[test]
    fn weights_that_give_no_choice_are_refused() {
        for weights in [
            &[][..],
            &[0.0, 0.0],
            &[1.0, -1.0],
            &[f64::NAN],
            &[f64::INFINITY],
        ] {
            let refused = Weighted::new(weights.iter().copied().enumerate());
            assert_eq!(refused, None, "{weights:?}");
        }
    }
}
