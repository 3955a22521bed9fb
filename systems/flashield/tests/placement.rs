//! The crash simulation with the placement `hashed`: no item that was overwritten, deleted, expired or flushed comes back,
//! whatever the moment of the crash.

use std::sync::Arc;

extern crate checker as flowstone_checker;
extern crate engine as flowstone_engine;

#[path = "sim/hashed_placement.rs"]
mod hashed_placement;
#[path = "../../../check/checker/tests/seeds/mod.rs"]
mod seeds;

use hashed_placement::HashedFor;
use seeds::simulate_each;

/// In most runs the index is so small that it keeps losing entries, and that entries of other keys lead to dead items.
#[test]
fn dead_keys_stay_dead_where_the_index_has_no_keys() {
    simulate_each(|seed| Arc::new(HashedFor([1, 40, 150, 200_000][(seed % 4) as usize])));
}
