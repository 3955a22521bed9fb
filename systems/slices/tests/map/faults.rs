//! Drives and a log that fail, records that decay, and starts that find records of others.

use std::sync::Arc;
use std::time::Duration;

use device::{Fault, MemoryJournal, Operation, When};
use flowstone_slices::SliceError;
use runtime::sim::Sim;

use crate::life::{Hardware, Left, key, number, small, value};

#[test]
fn a_write_that_fails_is_said_and_tried_again() {
    let settings = small(8);
    for operation in [Operation::Write, Operation::Sync] {
        Sim::new(1).block_on(async {
            let hardware = Hardware::new(&settings, 1, 1);
            let map = hardware.create(&settings).await.expect("drives work");
            hardware.disks[0].script(When::every(operation), Fault::Error);
            let mut kept = Vec::new();
            for of in 0..2_000 {
                match map.insert(&key(of), &value(of)).await {
                    Ok(()) => kept.push(of),
                    Err(SliceError::Device { drive: 0, .. }) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(kept.len() < 1_000, "memory is bounded");
            assert!(map.sync().await.is_err());
            hardware.disks[0].heal();
            runtime::sleep(Duration::from_secs(10)).await;
            map.sync().await.expect("drives work again");
            for of in kept {
                let found = map.get(&key(of)).await.expect("drives work");
                assert_eq!(number(found), Some(of));
            }
        });
    }
}

#[test]
fn a_record_that_has_decayed_is_an_error_and_no_value() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let map = hardware.create(&settings).await.expect("drives work");
        for of in 0..200 {
            map.insert(&key(of), &value(of)).await.expect("drives work");
        }
        map.sync().await.expect("drives work");
        for page in 2..60 {
            hardware.disks[0]
                .decay(page * 4096 + 700, 3)
                .await
                .expect("it decays");
        }
        let (mut damaged, mut right) = (0, 0);
        for of in 0..200 {
            match map.get(&key(of)).await {
                Ok(found) => {
                    assert_eq!(number(found), Some(of));
                    right += 1;
                }
                Err(SliceError::Damaged { drive: 0, .. }) => damaged += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(damaged > 5 && right > 100, "{damaged} and {right}");
    });
}

/// Writes are lost or go elsewhere: a look-up returns the key's value or an error, never another key's value.
#[test]
fn a_record_that_was_not_written_never_answers() {
    let settings = small(40);
    for fault in [Fault::Lost, Fault::Torn, Fault::Zeroed, Fault::FlippedBit] {
        for seed in 0..10 {
            Sim::new(seed).block_on(async {
                let hardware = Hardware::new(&settings, 1, seed);
                let map = hardware.create(&settings).await.expect("drives work");
                hardware.disks[0].set_rates(vec![(Operation::Write, fault.clone(), 0.2)]);
                for round in 0..3 {
                    for of in 0..150 {
                        let to = value(of + 1_000 * round);
                        map.insert(&key(of), &to).await.expect("it says nothing");
                    }
                    map.sync().await.expect("it says nothing");
                }
                for of in 0..150 {
                    match map.get(&key(of)).await {
                        Ok(None) | Err(SliceError::Damaged { .. }) => {}
                        Ok(found) => assert_eq!(number(found), Some(of + 2_000), "{fault:?}"),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    }
}

/// The process dies with records in memory alone: the log has the records.
#[test]
fn a_kill_loses_nothing_that_has_returned() {
    let settings = small(40);
    for seed in 0..20 {
        let hardware = Hardware::new(&settings, 1, seed);
        let sim = Sim::new(seed);
        let kept = sim.block_on(async {
            let map = hardware.create(&settings).await.expect("drives work");
            hardware.disks[0].script(
                When::every(Operation::Write),
                Fault::Slow(Duration::from_secs(100)),
            );
            let mut kept = 0;
            for of in 0..30 + 20 * seed {
                let (key, value) = (key(of), value(of));
                let insert = map.insert(&key, &value);
                if runtime::timeout(Duration::from_secs(1), insert)
                    .await
                    .is_err()
                {
                    break;
                }
                kept = of + 1;
            }
            kept
        });
        let mut again = Hardware::of(hardware.killed(seed), seed);
        sim.crash();
        // The second start finds the state that the first one has left.
        for _ in 0..2 {
            let sim = Sim::new(seed);
            sim.block_on(async {
                let map = again.open(&settings).await.expect("drives work");
                for of in 0..kept {
                    let found = map.get(&key(of)).await.expect("drives work");
                    assert_eq!(number(found), Some(of), "seed {seed}");
                }
            });
            let left = again.without_power(seed);
            sim.crash();
            again = Hardware::of(left, seed);
        }
    }
}

/// Returns a value whose record takes `bytes` bytes.
fn filling(key: &[u8], bytes: usize, fill: u8) -> Vec<u8> {
    vec![fill; bytes - 24 - key.len()]
}

/// Records that a power cut made unreachable stay so, even after other records have been written up to their place.
#[test]
fn what_a_power_cut_has_taken_does_not_come_back() {
    let settings = small(40);
    let (asked, other) = (key(1), key(2));
    let mut taken = 0;
    for seed in 0..300 {
        let hardware = Hardware::new(&settings, 1, seed);
        let sim = Sim::new(seed);
        sim.block_on(async {
            let map = hardware.create(&settings).await.expect("drives work");
            let insert = async |key: &[u8], bytes, fill| {
                let inserted = map.insert(key, &filling(key, bytes, fill)).await;
                inserted.expect("there is space in memory");
            };
            // Together they fill a segment.
            insert(&asked, 64, 1).await;
            insert(&other, (16 << 10) - 64, 1).await;
            map.sync().await.expect("drives work");
            let slow = Fault::Slow(Duration::from_secs(100));
            hardware.disks[0].script(When::every(Operation::Write), slow);
            // Two segments of which the log has four pages or nothing, and one whose only record is short.
            insert(&other, 16 << 10, 2).await;
            insert(&other, 16 << 10, 2).await;
            insert(&asked, 64, 2).await;
        });
        let again = Hardware::of(hardware.without_power(seed), seed);
        sim.crash();
        let sim = Sim::new(seed);
        let first = sim.block_on(async {
            let map = again.open(&settings).await.expect("drives work");
            let first = map.get(&asked).await.expect("drives work");
            let first = first.expect("it was synced")[0];
            taken += u32::from(first == 1);
            // The old record may be the next one in the log.
            let inserted = map.insert(&other, &filling(&other, 64, 3)).await;
            inserted.expect("drives work");
            map.sync().await.expect("drives work");
            first
        });
        let last = Hardware::of(again.killed(seed), seed);
        sim.crash();
        Sim::new(seed).block_on(async {
            let map = last.open(&settings).await.expect("drives work");
            let found = map.get(&asked).await.expect("drives work");
            assert_eq!(found, Some(filling(&asked, 64, first)), "seed {seed}");
        });
    }
    assert!(taken > 100, "{taken} of 300 power cuts");
}

/// Some reads fail while a start looks for records after a power cut: no synced key is lost.
#[test]
fn a_read_that_fails_in_a_start_ends_no_records() {
    let settings = small(40);
    for seed in 0..100 {
        let hardware = Hardware::new(&settings, 1, seed);
        let sim = Sim::new(seed);
        let records = sim.block_on(async {
            let map = hardware.create(&settings).await.expect("drives work");
            // More records than the log holds.
            for of in 0..600 {
                map.insert(&key(of), &value(of)).await.expect("drives work");
            }
            map.sync().await.expect("drives work");
            let records = map.shape().records;
            // Segments begin after the superblock, which takes a stripe.
            8192..8192 + records.segments * u64::from(records.segment_bytes)
        });
        let again = Hardware::of(hardware.without_power(seed), seed);
        sim.crash();
        Sim::new(seed).block_on(async {
            for failing in 0..5 {
                let one = When::next(Operation::Read).within(records.clone());
                again.disks[0].script(one.after((1 + seed % 3) * failing), Fault::Error);
            }
            let map = again.open(&settings).await.expect("it is tried again");
            again.disks[0].heal();
            for of in 1_000..1_100 {
                map.insert(&key(of), &value(of)).await.expect("drives work");
            }
            map.sync().await.expect("drives work");
            for of in 0..600 {
                let found = map.get(&key(of)).await;
                let found = found.unwrap_or_else(|error| panic!("seed {seed}, key {of}: {error}"));
                assert_eq!(number(found), Some(of), "seed {seed}");
            }
        });
    }
}

/// Pages that a start reads after a power cut have decayed: their records are damaged, and the records behind them stay.
#[test]
fn what_has_decayed_ends_no_records() {
    let settings = small(40);
    let mut damaged = 0;
    for seed in 0..40 {
        let hardware = Hardware::new(&settings, 1, seed);
        let sim = Sim::new(seed);
        sim.block_on(async {
            let map = hardware.create(&settings).await.expect("drives work");
            for of in 0..600 {
                map.insert(&key(of), &value(of)).await.expect("drives work");
            }
            map.sync().await.expect("drives work");
        });
        let again = Hardware::of(hardware.without_power(seed), seed);
        sim.crash();
        Sim::new(seed).block_on(async {
            for page in [2, 9] {
                let decayed = again.disks[0].decay((page + seed % 4) * 4096 + 40 * seed, 3);
                decayed.await.expect("it decays");
            }
            let map = again.open(&settings).await.expect("drives work");
            for of in 1_000..1_100 {
                map.insert(&key(of), &value(of)).await.expect("drives work");
            }
            map.sync().await.expect("drives work");
            for of in 0..600 {
                match map.get(&key(of)).await {
                    Ok(found) => assert_eq!(number(found), Some(of), "seed {seed}, key {of}"),
                    Err(SliceError::Damaged { drive: 0, .. }) => damaged += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    assert!((40..400).contains(&damaged), "{damaged} in 40 starts");
}

#[test]
fn another_log_and_a_damaged_one_are_told() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let map = hardware.create(&settings).await.expect("drives work");
        map.insert(b"key", b"value").await.expect("drives work");
        map.close().await.expect("drives work");
        let words = hardware.journal.crash();
        // Behind the table's words come the instance, the epoch and the end, at the start of a page.
        let log = (0..words.len() / 512).rev().map(|page| 512 * page);
        let head = log.into_iter().find(|&at| {
            let is_page = words[at] != 0 && words[at + 3..at + 512].iter().all(|&word| word == 0);
            is_page && words[at + 1] != 0 && words[at + 2] != 0
        });
        let head = head.expect("it is there");
        for (word, bit) in [(1, 9), (2, 9), (2, 0), (0, 5)] {
            let mut words = words.clone();
            words[head + word] ^= 1 << bit;
            let left = Left {
                images: hardware.killed(1).images,
                journal: Arc::new(MemoryJournal::from_words(words)),
            };
            let opened = Hardware::of(left, 1).open(&settings).await;
            let error = opened.err().expect("it is refused");
            let is_told = match word {
                0 => matches!(error, SliceError::OtherLog),
                _ => matches!(error, SliceError::DamagedRecords),
            };
            assert!(is_told, "word {word}: {error}");
        }
    });
}

/// A runtime ends while writes fail and memory is full. Another runtime continues when the drive works again, even without a
/// sync.
#[test]
fn writes_that_fail_and_are_left_are_begun_again() {
    let settings = small(8);
    let hardware = Hardware::new(&settings, 1, 1);
    let sim = Sim::new(1);
    let (map, refused) = sim.block_on(async {
        let map = hardware.create(&settings).await.expect("drives work");
        hardware.disks[0].script(When::every(Operation::Write), Fault::Error);
        for of in 0.. {
            if map.insert(&key(of), &value(of)).await.is_err() {
                return (map, of);
            }
        }
        unreachable!("memory is bounded")
    });
    sim.crash();
    hardware.disks[0].heal();
    Sim::new(2).block_on(async {
        let mut tries = 0;
        while let Err(error) = map.insert(&key(refused), &value(refused)).await {
            tries += 1;
            assert!(tries < 100, "the drive works, and still: {error}");
            runtime::sleep(Duration::from_secs(1)).await;
        }
        for of in 0..=refused {
            let found = map.get(&key(of)).await.expect("drives work");
            assert_eq!(number(found), Some(of));
        }
    });
}
