//! Compares measured and predicted rates: whether they rank the presets alike, and how far their ratios differ.

/// Rates of one preset over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// # Panics
    /// If `rates` is empty.
    pub(super) fn of(mut rates: Vec<f64>) -> Self {
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        let median = if rates.len().is_multiple_of(2) {
            f64::midpoint(rates[middle - 1], rates[middle])
        } else {
            rates[middle]
        };
        Self {
            median,
            least: rates[0],
            most: rates[rates.len() - 1],
        }
    }

    /// Returns whether every round was faster than every round of `other`.
    fn is_above(&self, other: &Self) -> bool {
        self.least > other.most
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    /// For each preset, its rate over the first preset's: the predicted ratio over the measured one.
    pub(super) quotients: Vec<f64>,
    /// The quotient of a pair of presets that is furthest from 1.
    pub(super) worst: f64,
    /// Pairs (faster, slower) whose predicted order is reversed or equal. A pair counts only if all rounds of one preset were
    /// faster than all rounds of the other. If the rounds overlap, another measurement may reverse the order, and only the
    /// quotient matters.
    pub(super) misordered: Vec<(usize, usize)>,
}

impl Judged {
    /// Returns whether every quotient lies between `1 / factor` and `factor`.
    pub(super) fn is_within(&self, factor: f64) -> bool {
        let allowed = factor.recip()..=factor;
        self.quotients
            .iter()
            .all(|quotient| allowed.contains(quotient))
    }
}

pub(super) fn judge(measured: &[Spread], foretold: &[f64]) -> Judged {
    let speedup = |at: usize| foretold[at] / measured[at].median;
    let presets = 0..measured.len();
    let (mut worst, mut misordered) = (1.0_f64, Vec::new());
    for one in presets.clone() {
        for other in presets.clone() {
            let quotient = speedup(other) / speedup(one);
            let is_further = quotient.ln().abs() > worst.ln().abs();
            // Each pair has two quotients. Takes that of the later preset over the earlier one.
            if one < other && (is_further || !quotient.is_finite()) {
                worst = quotient;
            }
            if measured[one].is_above(&measured[other]) && foretold[one] <= foretold[other] {
                misordered.push((one, other));
            }
        }
    }
    Judged {
        quotients: presets.map(|at| speedup(at) / speedup(0)).collect(),
        worst,
        misordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64, noise: f64) -> Spread {
        Spread::of(vec![median, median - noise, median + noise])
    }

    #[test]
    fn a_spread_is_the_median_and_the_ends() {
        let of = |rates: &[f64]| Spread::of(rates.to_vec()).median;
        assert_eq!(of(&[3.0, 1.0, 9.0]), 3.0);
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), 3.0);
        assert_eq!((spread(5.0, 2.0).least, spread(5.0, 2.0).most), (3.0, 7.0));
    }

    #[test]
    fn a_clock_that_is_faster_throughout_is_no_lie() {
        let real = [spread(10.0, 1.0), spread(20.0, 1.0), spread(40.0, 1.0)];
        let judged = judge(&real, &[30.0, 60.0, 120.0]);
        assert_eq!(judged.quotients, [1.0, 1.0, 1.0]);
        assert!(judged.misordered.is_empty() && judged.is_within(1.0));
    }

    #[test]
    fn quotients_are_of_ratios_and_the_worst_is_of_any_pair() {
        let real = [spread(10.0, 0.0), spread(20.0, 0.0), spread(40.0, 0.0)];
        let judged = judge(&real, &[10.0, 24.0, 32.0]);
        assert_eq!(judged.quotients, [1.0, 1.2, 0.8]);
        assert!((judged.worst - 0.8 / 1.2).abs() < 1e-12, "{}", judged.worst);
        assert!(!judged.is_within(1.24) && judged.is_within(1.26));
        assert!(judged.misordered.is_empty());
        assert!(!judge(&real, &[10.0, 20.0, 0.0]).is_within(1.25));
    }

    #[test]
    fn an_order_counts_where_the_rounds_have_one() {
        let turned = [30.0, 20.0];
        let apart = judge(&[spread(10.0, 1.0), spread(13.0, 1.0)], &turned);
        assert_eq!(apart.misordered, [(1, 0)]);
        let overlapping = judge(&[spread(10.0, 2.0), spread(13.0, 2.0)], &turned);
        assert!(overlapping.misordered.is_empty() && !overlapping.is_within(1.25));
        let alike = judge(&[spread(10.0, 1.0), spread(13.0, 1.0)], &[5.0, 5.0]);
        assert_eq!(alike.misordered, [(1, 0)], "no order is another order");
    }
}
