//! Fits unit costs to measured sums.

/// A measured sum, and the number of units of each kind in it.
pub(super) struct Unknown {
    pub(super) sum: f64,
    pub(super) units: Vec<f64>,
}

impl Unknown {
    /// Returns the sum at the given unit costs.
    pub(super) fn at(&self, costs: &[f64]) -> f64 {
        let pairs = self.units.iter().zip(costs);
        pairs.map(|(units, cost)| units * cost).sum()
    }
}

const STEPS: usize = 200_000;

/// Returns the non-negative costs with the least sum of squared relative errors over all sums. Coordinate descent: each step
/// sets the cost of one kind to its optimum, the other costs fixed. A kind that occurs in no sum costs 0.
pub(super) fn fit(sums: &[Unknown]) -> Vec<f64> {
    let kinds = sums.first().map_or(0, |sum| sum.units.len());
    let mut costs = vec![0.0; kinds];
    for step in 0..STEPS {
        let kind = step % kinds.max(1);
        let (mut wanted, mut weight) = (0.0, 0.0);
        for sum in sums {
            let share = sum.units[kind] / sum.sum;
            let others = sum.at(&costs) - sum.units[kind] * costs[kind];
            wanted += share * (1.0 - others / sum.sum);
            weight += share * share;
        }
        if weight > 0.0 {
            costs[kind] = (wanted / weight).max(0.0);
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(sum: f64, units: [f64; 3]) -> Unknown {
        Unknown {
            sum,
            units: units.to_vec(),
        }
    }

    fn near(costs: &[f64], asked: [f64; 3]) {
        for (cost, asked) in costs.iter().zip(asked) {
            assert!((cost - asked).abs() < 1e-6 * asked.max(1.0), "{costs:?}");
        }
    }

    #[test]
    fn sums_that_agree_give_their_costs() {
        let sums = [
            sum(400.0, [1.0, 0.0, 0.0]),
            sum(550.0, [1.0, 3.0, 0.0]),
            sum(2650.0, [1.0, 1.0, 1.1]),
            sum(4600.0, [2.0, 2.0, 1.85]),
        ];
        near(&fit(&sums), [400.0, 50.0, 2000.0]);
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        let sums = [sum(400.0, [1.0, 0.0, 0.0]), sum(300.0, [1.0, 1.0, 0.0])];
        let costs = fit(&sums);
        assert!((costs[1], costs[2]) == (0.0, 0.0), "{costs:?}");
        assert!((300.0..400.0).contains(&costs[0]));
        assert!(fit(&[]).is_empty());
    }
}
