//! Drives and a log that fail.

use std::time::Duration;

use flowstone_slices::SliceError;

use crate::common::faults;
use crate::common::structure::{changed, check_all, damaged, fill_drives};
use crate::life::{small, with};

#[test]
fn a_failed_flush_is_said_once_and_tried_again() {
    faults::writes_that_fail_are_said_and_tried_again(&small(8, false), 600);
}

#[test]
fn a_log_that_cannot_be_synced_stops_flushes_and_nothing_is_lost() {
    faults::a_log_that_cannot_be_synced_loses_nothing(&small(40, false), 20, Duration::ZERO);
}

#[test]
fn a_damaged_page_is_an_error_until_it_is_written_anew() {
    with(&small(8, false), 1, async |table, hardware| {
        fill_drives(&table, 0..300).await;
        hardware.decay(0, 2..200, 700).await;
        assert_eq!(damaged(&table, 0..300, false, "damaged").await, 300);
        fill_drives(&table, 300..500).await;
        assert!(table.stats().pages_lost > 0);
        for key in 0..300 {
            assert_eq!(table.get(key).await.expect("written anew"), None);
        }
        check_all(&table, 300..500, "written anew").await;
    });
}

/// An older copy on another drive is not taken for the value if the younger copy may have been in a damaged page.
#[test]
fn what_a_damaged_page_has_superseded_stays_so() {
    with(&small(8, true), 2, async |table, hardware| {
        for round in [1, 2] {
            fill_drives(&table, (0..100).map(|key| changed(key, round))).await;
        }
        // The second flush of each partition went to drive 1.
        hardware.decay(1, 2..200, 700).await;
        for round in 0..6 {
            fill_drives(&table, 1_000 + 100 * round..1_100 + 100 * round).await;
            for key in 0..100 {
                match table.get(key).await {
                    Ok(None) | Err(SliceError::Damaged { .. }) => {}
                    other => panic!("round {round}, key {key}: {other:?}"),
                }
            }
        }
    });
}

#[test]
fn a_write_that_went_nowhere_is_found_out() {
    faults::writes_that_go_nowhere(
        |_| small(8, false),
        200,
        4,
        async |table, rounds, when| {
            damaged(&table, rounds[3].clone(), true, when).await;
        },
    );
}
