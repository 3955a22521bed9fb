//! The process or the power fails at a random moment, several times over; operations are given up, and drives fail for a while.

use flowstone_slices::HashSettings;

use crate::common::hardware::seeds;
use crate::keyed::{Plan, changes_survive, failing, slow};
use crate::life::{small, with_side};

/// Enough incarnations that nothing is evicted: a missing value is lost.
fn roomy() -> [(HashSettings, usize); 3] {
    [
        (small(40, false), 1),
        (small(40, false), 2),
        (small(40, true), 3),
    ]
}

/// Few incarnations, so that values are evicted.
fn narrow() -> [(HashSettings, usize); 2] {
    [(small(3, false), 2), (small(2, true), 3)]
}

/// Filters for some of the partitions, and no region to spare.
fn filtered() -> (HashSettings, usize) {
    let settings = HashSettings {
        filter_bytes: 1_000,
        partitions: Some(6),
        spare_regions: 1,
        ..small(40, false)
    };
    (settings, 2)
}

/// Runs each plan with settings and drives, and with tables on the side that slow writes fill.
fn with_and_without_side(settings: &[(HashSettings, usize)], plan: &Plan) {
    for seed in seeds(40) {
        for (settings, drives) in settings {
            changes_survive(settings, *drives, seed, plan);
            let side = HashSettings {
                side_tables: with_side(1, false).side_tables,
                ..settings.clone()
            };
            let slow = slow(8, 0.5);
            let troubles = match plan.troubles.as_slice() {
                [] => vec![slow],
                all => all
                    .iter()
                    .map(|rates| [rates.clone(), slow.clone()].concat())
                    .collect(),
            };
            let slow = Plan {
                troubles,
                ..plan.clone()
            };
            changes_survive(&side, *drives, seed, &slow);
        }
    }
}

#[test]
fn no_change_is_lost_or_undone() {
    with_and_without_side(&roomy(), &Plan::default());
}

#[test]
fn what_has_been_evicted_does_not_come_back() {
    let plan = Plan {
        may_evict: true,
        ..Plan::default()
    };
    with_and_without_side(&narrow(), &plan);
}

#[test]
fn operations_are_given_up() {
    let plan = Plan {
        gives_up: true,
        ..Plan::default()
    };
    for seed in seeds(40) {
        for (settings, drives) in roomy().into_iter().chain([filtered()]) {
            changes_survive(&settings, drives, seed, &plan);
        }
        let slow = Plan {
            troubles: vec![slow(8, 0.5)],
            ..plan.clone()
        };
        changes_survive(&with_side(40, false), 2, seed, &slow);
        let slow_and_narrow = Plan {
            may_evict: true,
            ..slow
        };
        changes_survive(&with_side(2, false), 1, seed, &slow_and_narrow);
        let narrow = Plan {
            may_evict: true,
            ..plan.clone()
        };
        changes_survive(&small(2, true), 3, seed, &narrow);
        changes_survive(&small(1, false), 1, seed, &narrow);
    }
}

#[test]
fn operations_are_given_up_and_drives_fail() {
    let plan = Plan {
        gives_up: true,
        troubles: vec![failing()],
        ..Plan::default()
    };
    for seed in seeds(40) {
        for (settings, drives) in roomy().into_iter().chain([filtered()]) {
            changes_survive(&settings, drives, seed, &plan);
        }
        changes_survive(&with_side(40, false), 2, seed, &plan);
        let narrow = Plan {
            may_evict: true,
            ..plan.clone()
        };
        changes_survive(&small(2, true), 3, seed, &narrow);
    }
}
