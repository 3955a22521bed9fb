//! The process or the power fails at a random moment, several times in a row; before that, drives are slow or fail, and
//! operations are given up.

use flowstone_slices::{HashSettings, MapSettings};

use crate::common::hardware::seeds;
use crate::keyed::{Plan, changes_survive, failing, slow};
use crate::life::{short_ring, small};

/// Drives that work, that are so slow that segments wait, and that fail.
fn plan(may_evict: bool) -> Plan {
    let both = [slow(4, 0.1), failing()].concat();
    Plan {
        may_evict,
        gives_up: true,
        troubles: vec![Vec::new(), slow(4, 0.3), both],
    }
}

#[test]
fn no_change_is_lost_or_undone() {
    let plan = plan(false);
    let with_side = MapSettings {
        table: HashSettings {
            side_tables: 3,
            ..small(40).table
        },
        ..small(40)
    };
    for seed in seeds(40) {
        changes_survive(&small(40), 1, seed, &plan);
        changes_survive(&small(40), 2, seed, &plan);
        changes_survive(&with_side, 1, seed, &plan);
    }
}

#[test]
fn what_has_been_written_over_does_not_come_back() {
    for seed in seeds(40) {
        changes_survive(&short_ring(), 1, seed, &plan(true));
        changes_survive(&short_ring(), 2, seed, &plan(true));
    }
}
