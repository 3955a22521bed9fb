//! Drives and a log that fail.

use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::SliceError;
use runtime::sim::Sim;

use crate::common::faults;
use crate::common::structure::{Answer, Structure, check_all, damaged, fill, fill_drives};
use crate::life::{DRIVE_BYTES, opened, small, used, used_without_power, vector, with};
use crate::model::Model;

#[test]
fn a_failed_write_is_said_and_tried_again() {
    faults::writes_that_fail_are_said_and_tried_again(&small(20), 400);
}

#[test]
fn a_log_that_cannot_be_synced_stops_writes_and_nothing_is_lost() {
    faults::a_log_that_cannot_be_synced_loses_nothing(&small(20), 2, Duration::ZERO);
}

#[test]
fn writes_that_fail_and_are_left_are_begun_again() {
    faults::writes_that_fail_and_are_left_are_begun_again(&small(20));
}

#[test]
fn a_delete_before_a_failed_sync_is_made_durable_by_the_next() {
    let settings = small(20);
    let mut deleted = Vec::new();
    let again = used_without_power(&settings, 1, 7, async |index, hardware| {
        deleted = fill(&index, 5..6).await;
        index.sync().await.expect("it works");
        hardware.journal.set_sync_fails(true);
        assert!(index.delete(deleted[0].0));
        assert!(index.sync().await.is_err());
        hardware.journal.set_sync_fails(false);
        index.sync().await.expect("it works again");
    });
    opened(&again, &settings, 2, async |index| {
        let found = index.look_up(deleted[0]).await;
        assert_eq!(found.expect("drives work"), Answer::Absent);
    });
}

#[test]
fn what_is_damaged_is_left_out_and_counted() {
    let settings = small(20);
    with(&settings, 1, async |index, hardware| {
        let items = fill_drives(&index, 0..150).await;
        // The superblock has two pages. Every third page behind it is destroyed.
        for page in (2..DRIVE_BYTES / 4096).step_by(3) {
            for byte in (0..4096).step_by(300) {
                hardware.decay(0, [page], byte).await;
            }
        }
        let mut found = 0;
        let model = Model::of(&items);
        for &(id, number) in &items {
            let asked = vector(number);
            let answer = index.query(&asked, 5).await.expect("damage is no error");
            model.check_answer(settings.family, &asked, &answer);
            let is_whole = match index.get(id).await {
                Ok(found) => found == Some(asked),
                Err(SliceError::Damaged { drive: 0, .. }) => false,
                Err(other) => panic!("{other}"),
            };
            found += usize::from(answer.iter().any(|near| near.id == id));
            assert!(is_whole || answer.iter().all(|near| near.id != id));
        }
        assert!((60..150).contains(&found), "{found}");
        assert!(index.stats().damaged > 50);
        fill_drives(&index, 150..250).await;
        assert!(index.stats().pages_lost > 0);
        let before = index.stats().damaged;
        for number in 150..250 {
            let answer = index.query(&vector(number), 1).await.expect("drives work");
            assert_eq!(answer[0].distance, 0.0);
        }
        assert!(
            index.stats().damaged - before < 100,
            "tables were written anew"
        );
    });
}

#[test]
fn a_write_that_went_nowhere_is_found_out() {
    let settings = small(6);
    faults::writes_that_go_nowhere(
        |_| small(6),
        600,
        1,
        async |index, rounds, when| {
            let model = Model::of(&rounds[0]);
            for &(_, number) in &rounds[0] {
                let asked = vector(number);
                let answer = index.query(&asked, 5).await;
                let answer = answer.unwrap_or_else(|error| panic!("{when}: {error}"));
                model.check_answer(settings.family, &asked, &answer);
            }
        },
    );
}

/// A power cut takes inserts whose segment has reached its drive. Their ids are given again, and the drive loses the write of
/// the segment with the new vectors.
#[test]
fn a_lost_write_over_vectors_that_never_were_is_found_out() {
    let settings = small(20);
    let mut again = 0;
    for seed in 0..40 {
        let hardware = used_without_power(&settings, 1, seed, async |index, _| {
            fill(&index, 0..16 + seed % 3).await;
            runtime::sleep(Duration::from_micros(40 * seed)).await;
        });
        opened(&hardware, &settings, seed, async |index| {
            hardware.every(Operation::Write, Fault::Lost);
            let mut items = Vec::new();
            for number in 1_000..1_040 {
                match index.put(number).await {
                    Ok(item) => items.push(item),
                    Err(SliceError::Device { .. }) => {
                        again += 1;
                        hardware.disks[0].heal();
                    }
                    Err(other) => panic!("{other}"),
                }
                runtime::sleep(Duration::from_millis(1)).await;
            }
            damaged(&index, items, false, &format!("seed {seed}")).await;
        });
    }
    assert!(again > 0);
}

/// The runtime in which writing has begun ends. The next waiter continues the writing.
#[test]
fn writing_outlives_the_runtime_in_which_it_began() {
    let settings = small(20);
    let mut left = None;
    let (hardware, sim) = used(&settings, 1, 1, async |index, hardware| {
        let slow = Fault::Slow(Duration::from_secs(1));
        hardware.every(Operation::Write, slow);
        // The last vector of a segment: the segment's write is under way.
        let items = fill(&index, 0..16).await;
        runtime::sleep(Duration::from_millis(1)).await;
        left = Some((index, items));
    });
    sim.crash();
    hardware.disks[0].heal();
    let (index, mut items) = left.expect("it was used");
    Sim::new(2).block_on(async {
        let limit = Duration::from_secs(100);
        let filled = runtime::timeout(limit, fill(&index, 16..200)).await;
        items.extend(filled.expect("it does not hang"));
        let flushed = runtime::timeout(limit, index.flush()).await;
        flushed.expect("it does not hang").expect("drives work");
        check_all(&index, items, "written").await;
    });
}
