//! A table's answers and counters while nothing fails.

use std::collections::HashMap;
use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_slices::{HashSettings, Scheduling, SliceHash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::structure::{check_all, fill_drives};
use crate::life::{small, with};
use crate::plain::{at_once, with_bytes};

async fn check(table: &SliceHash, model: &HashMap<u64, u64>, keys: u64) {
    for key in 0..keys {
        let found = table.get(key).await.expect("drives work");
        assert_eq!(found, model.get(&key).copied(), "key {key}");
    }
}

/// Changes keys at random and compares the table with a map. Nothing is evicted.
async fn change_at_random(table: &SliceHash, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut model = HashMap::new();
    for value in 0..700 {
        let key = random.random_range(0..150);
        if random.random_bool(0.2) {
            table.delete(key).await.expect("drives work");
            model.remove(&key);
        } else {
            table.insert(key, value).await.expect("drives work");
            model.insert(key, value);
        }
        let key = random.random_range(0..150);
        let found = table.get(key).await.expect("drives work");
        assert_eq!(found, model.get(&key).copied(), "key {key}");
    }
    check(table, &model, 150).await;
    table.flush().await.expect("drives work");
    check(table, &model, 150).await;
    let stats = table.stats();
    assert_eq!(stats.evicted, 0);
    assert!(stats.flushes > 3 && stats.drive_hits > 0, "{stats:?}");
}

#[test]
fn a_table_is_a_map() {
    let filtered = HashSettings {
        filter_bytes: 1 << 20,
        ..small(12, false)
    };
    let unaware = HashSettings {
        scheduling: Scheduling {
            is_channel_aware: false,
            ..Scheduling::default()
        },
        ..small(12, false)
    };
    for seed in 0..5 {
        for (settings, drives) in [
            (&small(12, false), 1),
            (&small(12, false), 3),
            (&small(12, true), 3),
            (&filtered, 2),
            (&unaware, 1),
        ] {
            with(settings, drives, async |table, _| {
                change_at_random(&table, seed).await;
            });
        }
    }
}

#[test]
fn a_look_up_reads_two_pages_at_most_and_one_as_a_rule() {
    let settings = HashSettings {
        partitions: Some(4),
        table_bytes: 32 << 10,
        ..HashSettings::default()
    };
    with_bytes(&settings, 64 << 20, async |table, _| {
        let keys = 4 * 30 * u64::from(table.shape().table_entries);
        fill_drives(&table, 0..keys).await;
        let reads_of = async |keys: std::ops::Range<u64>| {
            let before = table.stats().page_reads;
            let (count, mut found) = (keys.end - keys.start, 0);
            for key in keys {
                let reads = table.stats().page_reads;
                found += u64::from(table.get(key).await.expect("drives work").is_some());
                assert!(table.stats().page_reads - reads <= 2);
            }
            (
                (table.stats().page_reads - before) as f64 / count as f64,
                found,
            )
        };
        let (reads, found) = reads_of(0..20_000).await;
        assert_eq!(found, 20_000);
        assert!((1.0..1.12).contains(&reads), "{reads}");
        let (reads, found) = reads_of(keys..keys + 20_000).await;
        assert_eq!(found, 0);
        assert!((1.0..1.05).contains(&reads), "{reads}");
    });
}

/// One entry of 16 stays in its second slot. Without moves back, one of 13 would.
#[test]
fn entries_go_back_to_their_first_slots_before_a_flush() {
    let settings = HashSettings {
        partitions: Some(2),
        table_bytes: 16 << 10,
        bucket_entries: Some(12),
        incarnations: 8,
        ..HashSettings::default()
    };
    with(&settings, 1, async |table, _| {
        let keys = 2 * u64::from(table.shape().table_entries);
        fill_drives(&table, 0..keys).await;
        let before = table.stats().page_reads;
        check_all(&table, 0..keys, "flushed").await;
        let reads = (table.stats().page_reads - before) as f64 / keys as f64;
        assert!((1.0..1.07).contains(&reads), "{reads}");
    });
}

#[test]
fn the_oldest_incarnation_goes() {
    for spread in [false, true] {
        with(&small(4, spread), 2, async |table, _| {
            fill_drives(&table, 0..6_000).await;
            let mut found = Vec::new();
            for key in 0..6_000 {
                if table.get(key).await.expect("drives work") == Some(key) {
                    found.push(key);
                }
            }
            let stats = table.stats();
            assert_eq!(found.len() as u64, 6_000 - stats.evicted, "{stats:?}");
            assert!(stats.evicted > 500 && found.len() > 1_000, "{stats:?}");
            let mean = found.iter().sum::<u64>() / found.len() as u64;
            assert!(mean > 4_000, "the youngest stay: {mean}");
        });
    }
}

#[test]
fn tasks_at_once_find_what_they_have_written() {
    for (drives, spread) in [(1, false), (3, false), (3, true)] {
        with(&small(30, spread), drives, async |table, _| {
            at_once(8, |task| {
                let table = table.clone();
                async move {
                    for round in 0..150 {
                        let key = task * 1000 + round % 40;
                        table.insert(key, round).await.expect("drives work");
                        let found = table.get(key).await.expect("drives work");
                        assert_eq!(found, Some(round), "key {key}");
                        let absent = table.get(key + 500).await.expect("drives work");
                        assert_eq!(absent, None);
                    }
                }
            })
            .await;
            assert!(table.stats().flushes > 0);
        });
    }
}

#[test]
fn filters_spare_reads_of_what_is_not_there() {
    let settings = HashSettings {
        filter_bytes: 1 << 20,
        ..small(12, false)
    };
    with(&settings, 1, async |table, _| {
        for key in 0..200 {
            table.insert(key, key).await.expect("drives work");
            table.get(key + 10_000).await.expect("drives work");
        }
        table.flush().await.expect("drives work");
        let before = table.stats();
        for key in 20_000..21_000 {
            assert_eq!(table.get(key).await.expect("drives work"), None);
        }
        let stats = table.stats();
        assert!(stats.page_reads - before.page_reads < 50, "{stats:?}");
        assert!(table.memory().filters > 0);
    });
}

#[test]
fn memory_counts_what_a_flush_has_for_a_while() {
    let settings = HashSettings {
        partitions: Some(1),
        filter_bytes: 1 << 20,
        ..small(12, false)
    };
    let slow = Fault::Slow(Duration::from_secs(1));
    with(&settings, 1, async |table, hardware| {
        let no_filter = table.memory();
        table.insert(0, 0).await.expect("drives work");
        table.flush().await.expect("drives work");
        let before = table.memory();
        let filter = before.filters - no_filter.filters;
        assert!(filter > 0, "{before:?}");
        assert_eq!(before.pieces, 2 * 8192);
        // The old filter stays until the new one is complete.
        table.insert(1, 1).await.expect("drives work");
        hardware.disks[0].script(When::next(Operation::Sync), slow);
        let flushing = table.clone();
        let flushed = runtime::spawn(async move { flushing.flush().await });
        runtime::sleep(Duration::from_millis(500)).await;
        let memory = table.memory();
        assert_eq!(memory.filters, before.filters + filter);
        assert_eq!(memory.tables, 2 * before.tables);
        flushed.await.expect("it ends").expect("drives work");
        assert_eq!(table.memory(), before);
    });
}
