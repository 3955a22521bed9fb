//! The crash simulation with a placement that answers Perhaps and cannot locate what it displaces: nothing that was
//! overwritten, deleted, expired or flushed comes back, whatever the moment of the crash.

use std::sync::Arc;

extern crate engine as flowstone_engine;

use flowstone_checker::simulate_placement;

#[path = "../../engine/tests/sim/map_placement.rs"]
mod map_placement;

/// Seeds run by default; `FLOWSTONE_CASES` runs more.
const SEEDS: u64 = 40;

#[test]
fn dead_keys_stay_dead() {
    let cases = std::env::var("FLOWSTONE_CASES").ok();
    let seeds = cases.map_or(SEEDS, |cases| cases.parse().expect("a number"));
    let mut crashes = 0;
    for seed in 1..=seeds {
        let kind = Arc::new(map_placement::MapKind);
        match simulate_placement(seed, kind) {
            Ok(report) => crashes += report.crashes,
            Err(wrong) => panic!("{wrong}"),
        }
    }
    println!("{crashes} crash points");
    assert!(crashes > 10 * seeds, "{crashes} crash points");
}
