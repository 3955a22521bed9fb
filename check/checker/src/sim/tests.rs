//! Tests of the simulation by seeds.

use super::*;

#[test]
fn a_seed_repeats_and_another_differs() {
    let run = |seed| simulate(seed).expect("nothing is wrong");
    for seed in 1..4 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1).digest, run(2).digest);
}
