//! Drives and a log that fail.

use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_slices::SliceError;
use runtime::sim::Sim;

use crate::life::{DRIVE_BYTES, Hardware, small, vector};

#[test]
fn a_failed_write_is_said_and_tried_again() {
    let settings = small(20);
    for operation in [Operation::Write, Operation::Sync] {
        Sim::new(1).block_on(async {
            let hardware = Hardware::new(&settings, 1, 1);
            let index = hardware.create(&settings).await.expect("drives work");
            hardware.disks[0].script(When::every(operation), Fault::Error);
            let mut refused = 0;
            let mut kept = Vec::new();
            for number in 0..400 {
                match index.insert(&vector(number)).await {
                    Ok(id) => kept.push((id, number)),
                    Err(SliceError::Device { drive: 0, .. }) => {
                        refused += 1;
                        runtime::sleep(Duration::from_millis(20)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
                if refused == 20 {
                    assert!(index.flush().await.is_err());
                    hardware.disks[0].heal();
                }
            }
            assert!(refused >= 20 && kept.len() > 200, "{refused}");
            index.flush().await.expect("it works again");
            for (id, number) in kept {
                let asked = vector(number);
                assert_eq!(
                    index.get(id).await.expect("drives work"),
                    Some(asked.clone())
                );
                let answer = index.query(&asked, 1).await.expect("drives work");
                assert_eq!(answer[0].id, id);
            }
        });
    }
}

#[test]
fn a_log_that_cannot_be_synced_stops_writes_and_nothing_is_lost() {
    let settings = small(20);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        let first = index.insert(&vector(5)).await.expect("drives work");
        hardware.journal.set_sync_fails(true);
        let mut kept = Vec::new();
        for number in 0..2_000 {
            if let Ok(id) = index.insert(&vector(number)).await {
                kept.push((id, number));
            }
        }
        assert!(kept.len() < 1_000, "writes wait for the log");
        assert!(index.delete(first));
        assert!(index.sync().await.is_err());
        hardware.journal.set_sync_fails(false);
        index.sync().await.expect("it works again");
        let again = Hardware::of(hardware.without_power(7), 2);
        let opened = again.open(&settings).await.expect("drives work");
        for &(id, number) in &kept {
            assert_eq!(
                opened.get(id).await.expect("drives work"),
                Some(vector(number)),
                "{id:?}"
            );
        }
        assert_eq!(opened.get(first).await.expect("drives work"), None);
        let answer = opened.query(&vector(5), 50).await.expect("drives work");
        assert!(answer.iter().all(|near| near.id != first));
    });
}

#[test]
fn what_is_damaged_is_left_out_and_counted() {
    let settings = small(20);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        let mut ids = Vec::new();
        for number in 0..150 {
            ids.push(index.insert(&vector(number)).await.expect("drives work"));
        }
        index.flush().await.expect("drives work");
        // The superblock has two pages. Every third page behind it is destroyed.
        for page in (2..DRIVE_BYTES / 4096).step_by(3) {
            for byte in (0..4096).step_by(300) {
                let damaged = hardware.disks[0].decay(page * 4096 + byte, 3).await;
                damaged.expect("it decays");
            }
        }
        let mut found = 0;
        for (number, &id) in ids.iter().enumerate() {
            let asked = vector(number as u64);
            let answer = index.query(&asked, 5).await.expect("damage is no error");
            for near in &answer {
                let number = ids
                    .iter()
                    .position(|of| *of == near.id)
                    .expect("it was inserted");
                let distance = settings.family.distance(&asked, &vector(number as u64));
                assert_eq!(near.distance, distance);
            }
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
        for number in 150..250 {
            index.insert(&vector(number)).await.expect("drives work");
        }
        index.flush().await.expect("drives work");
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
    for fault in [
        Fault::Lost,
        Fault::Torn,
        Fault::Zeroed,
        Fault::Misdirected,
        Fault::FlippedBit,
    ] {
        for seed in 0..10 {
            Sim::new(seed).block_on(async {
                let hardware = Hardware::new(&settings, 1, seed);
                let index = hardware.create(&settings).await.expect("drives work");
                hardware.disks[0].set_rates(vec![(Operation::Write, fault.clone(), 0.2)]);
                let mut ids = Vec::new();
                for number in 0..600 {
                    ids.push(
                        index
                            .insert(&vector(number))
                            .await
                            .expect("it says nothing"),
                    );
                }
                index.flush().await.expect("it says nothing");
                for number in 0..600 {
                    let asked = vector(number);
                    let answer = index.query(&asked, 5).await.expect("damage is no error");
                    for near in answer {
                        let of = ids
                            .iter()
                            .position(|id| *id == near.id)
                            .expect("it was inserted");
                        let distance = settings.family.distance(&asked, &vector(of as u64));
                        assert_eq!(near.distance, distance, "{fault:?}, seed {seed}");
                    }
                }
            });
        }
    }
}

/// A power cut takes inserts whose segment has reached its drive. Their ids are given again, and the drive loses the write of
/// the segment with the new vectors.
#[test]
fn a_lost_write_over_vectors_that_never_were_is_found_out() {
    let settings = small(20);
    let mut again = 0;
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let hardware = Hardware::new(&settings, 1, seed);
        sim.block_on(async {
            let index = hardware.create(&settings).await.expect("drives work");
            for number in 0..16 + seed % 3 {
                index.insert(&vector(number)).await.expect("drives work");
            }
            runtime::sleep(Duration::from_micros(40 * seed)).await;
        });
        let left = hardware.without_power(seed);
        sim.crash();
        let hardware = Hardware::of(left, seed);
        Sim::new(seed).block_on(async {
            let index = hardware.open(&settings).await.expect("drives work");
            hardware.disks[0].script(When::every(Operation::Write), Fault::Lost);
            let mut ids = Vec::new();
            for number in 1_000..1_040 {
                match index.insert(&vector(number)).await {
                    Ok(id) => ids.push((id, number)),
                    Err(SliceError::Device { .. }) => {
                        again += 1;
                        hardware.disks[0].heal();
                    }
                    Err(other) => panic!("{other}"),
                }
                runtime::sleep(Duration::from_millis(1)).await;
            }
            for (id, number) in ids {
                match index.get(id).await {
                    Ok(Some(found)) => assert_eq!(found, vector(number), "seed {seed}, {id:?}"),
                    Err(SliceError::Damaged { .. }) => {}
                    other => panic!("seed {seed}, {id:?}: {other:?}"),
                }
            }
        });
    }
    assert!(again > 0);
}

/// The runtime in which writing has begun ends. The next waiter continues the writing.
#[test]
fn writing_outlives_the_runtime_in_which_it_began() {
    let settings = small(20);
    let hardware = Hardware::new(&settings, 1, 1);
    let first = Sim::new(1);
    let (index, mut ids) = first.block_on(async {
        let index = hardware.create(&settings).await.expect("drives work");
        let slow = Fault::Slow(Duration::from_secs(1));
        hardware.disks[0].script(When::every(Operation::Write), slow);
        let mut ids = Vec::new();
        // The last vector of a segment: the segment's write is under way.
        for number in 0..16 {
            ids.push(index.insert(&vector(number)).await.expect("drives work"));
        }
        runtime::sleep(Duration::from_millis(1)).await;
        (index, ids)
    });
    first.crash();
    hardware.disks[0].heal();
    Sim::new(2).block_on(async {
        for number in 16..200 {
            let vector = vector(number);
            let inserted = runtime::timeout(Duration::from_secs(100), index.insert(&vector));
            let inserted = inserted.await.expect("it does not hang");
            ids.push(inserted.expect("drives work"));
        }
        let flushed = runtime::timeout(Duration::from_secs(100), index.flush()).await;
        flushed.expect("it does not hang").expect("drives work");
        for (number, &id) in (0..).zip(&ids) {
            let found = index.get(id).await.expect("drives work");
            assert_eq!(found, Some(vector(number)));
        }
    });
}
