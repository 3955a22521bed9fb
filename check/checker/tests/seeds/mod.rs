//! The crash simulation of a placement with many seeds. The tests of a system include this file.

use std::sync::Arc;

use engine::placement::PlacementKind;
use flowstone_checker::simulate_placement;

/// Seeds run by default. `FLOWSTONE_CASES` sets another number, `FLOWSTONE_SEED` runs one seed alone.
const SEEDS: u64 = 40;

/// Runs the simulation with the placement that `kind` returns for each seed. Panics at the first wrong answer.
pub(crate) fn simulate_each(kind: impl Fn(u64) -> Arc<dyn PlacementKind>) {
    let seeds = match number("FLOWSTONE_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("FLOWSTONE_CASES").unwrap_or(SEEDS),
    };
    let (mut crashes, least) = (0, 10 * seeds.clone().count() as u64);
    for seed in seeds {
        let kind = kind(seed);
        match simulate_placement(seed, kind) {
            Ok(report) => crashes += report.crashes,
            Err(wrong) => panic!("{wrong}"),
        }
    }
    eprintln!("{crashes} crash points");
    assert!(crashes > least, "{crashes} crash points");
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}
