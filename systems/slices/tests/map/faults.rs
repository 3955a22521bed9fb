//! Drives and a log that fail, records that decay, and starts that find records of others.

use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_slices::{SliceError, SliceMap};
use runtime::sim::Sim;

use crate::common::faults;
use crate::common::structure::{Structure, check_all, damaged, fill};
use crate::life::{Hardware, filling, key, opened, small, used, used_without_power, with};

#[test]
fn a_write_that_fails_is_said_and_tried_again() {
    faults::writes_that_fail_are_said_and_tried_again(&small(40), 2_000);
}

#[test]
fn a_log_that_cannot_be_synced_stops_writes_and_nothing_is_lost() {
    faults::a_log_that_cannot_be_synced_loses_nothing(&small(40), 20, Duration::from_secs(10));
}

#[test]
fn a_record_that_has_decayed_is_an_error_and_no_value() {
    with(&small(8), 1, async |map, hardware| {
        fill(&map, 0..200).await;
        map.sync().await.expect("drives work");
        hardware.decay(0, 2..60, 700).await;
        let damaged = damaged(&map, 0..200, false, "decayed").await;
        assert!((6..100).contains(&damaged), "{damaged} of 200");
    });
}

/// Writes are lost or go elsewhere: a look-up returns the key's value or an error, never another key's value.
#[test]
fn a_record_that_was_not_written_never_answers() {
    let check = async |map: SliceMap, rounds: Vec<Vec<u64>>, when: &str| {
        damaged(&map, rounds[2].clone(), true, when).await;
    };
    faults::writes_that_go_nowhere(|_| small(40), 150, 3, check);
}

/// The process dies with records in memory alone: the log has the records.
#[test]
fn a_kill_loses_nothing_that_has_returned() {
    let settings = small(40);
    for seed in 0..20 {
        let mut kept = 0;
        let (hardware, sim) = used(&settings, 1, seed, async |map, hardware| {
            let slow = Fault::Slow(Duration::from_secs(100));
            hardware.every(Operation::Write, slow);
            for of in 0..30 + 20 * seed {
                if runtime::timeout(Duration::from_secs(1), map.put(of))
                    .await
                    .is_err()
                {
                    break;
                }
                kept = of + 1;
            }
        });
        let mut again = Hardware::of(hardware.killed(seed), seed);
        sim.crash();
        // The second start finds the state that the first one has left.
        for _ in 0..2 {
            let sim = Sim::new(seed);
            sim.block_on(async {
                let map = again.open(&settings).await.expect("drives work");
                check_all(&map, 0..kept, &format!("seed {seed}")).await;
            });
            let left = again.without_power(seed);
            sim.crash();
            again = Hardware::of(left, seed);
        }
    }
}

/// Records that a power cut made unreachable stay so, even after other records have been written up to their place.
#[test]
fn what_a_power_cut_has_taken_does_not_come_back() {
    let settings = small(40);
    let (asked, other) = (key(1), key(2));
    let mut taken = 0;
    for seed in 0..300 {
        let again = used_without_power(&settings, 1, seed, async |map, hardware| {
            let insert = async |key: &[u8], bytes, fill| {
                let inserted = map.insert(key, &filling(key, bytes, fill)).await;
                inserted.expect("there is space in memory");
            };
            // Together they fill a segment.
            insert(&asked, 64, 1).await;
            insert(&other, (16 << 10) - 64, 1).await;
            map.sync().await.expect("drives work");
            let slow = Fault::Slow(Duration::from_secs(100));
            hardware.every(Operation::Write, slow);
            // Two segments of which the log has four pages or nothing, and one whose only record is short.
            insert(&other, 16 << 10, 2).await;
            insert(&other, 16 << 10, 2).await;
            insert(&asked, 64, 2).await;
        });
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
        opened(&last, &settings, seed, async |map| {
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
        let mut records = 0..0;
        let again = used_without_power(&settings, 1, seed, async |map, _| {
            // More records than the log holds.
            fill(&map, 0..600).await;
            map.sync().await.expect("drives work");
            let shape = map.shape().records;
            // Segments begin after the superblock, which takes a stripe.
            records = 8192..8192 + shape.segments * u64::from(shape.segment_bytes);
        });
        Sim::new(seed).block_on(async {
            for failing in 0..5 {
                let one = When::next(Operation::Read).within(records.clone());
                again.disks[0].script(one.after((1 + seed % 3) * failing), Fault::Error);
            }
            let map = again.open(&settings).await.expect("it is tried again");
            again.disks[0].heal();
            fill(&map, 1_000..1_100).await;
            map.sync().await.expect("drives work");
            check_all(&map, 0..600, &format!("seed {seed}")).await;
        });
    }
}

/// Pages that a start reads after a power cut have decayed: their records are damaged, and the records behind them stay.
#[test]
fn what_has_decayed_ends_no_records() {
    let settings = small(40);
    let mut all = 0;
    for seed in 0..40 {
        let again = used_without_power(&settings, 1, seed, async |map, _| {
            fill(&map, 0..600).await;
            map.sync().await.expect("drives work");
        });
        Sim::new(seed).block_on(async {
            let pages = [2, 9].map(|page| page + seed % 4);
            again.decay(0, pages, 40 * seed).await;
            let map = again.open(&settings).await.expect("drives work");
            fill(&map, 1_000..1_100).await;
            map.sync().await.expect("drives work");
            all += damaged(&map, 0..600, false, &format!("seed {seed}")).await;
        });
    }
    assert!((40..400).contains(&all), "{all} in 40 starts");
}

#[test]
fn another_log_and_a_damaged_one_are_told() {
    let settings = small(8);
    with(&settings, 1, async |map, hardware| {
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
            let opened = hardware.with_words(words).open(&settings).await;
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
    faults::writes_that_fail_and_are_left_are_begun_again(&small(8));
}
