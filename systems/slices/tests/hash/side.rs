//! Tables that wait on the side in a burst of inserts, and flushes that write several tables.

use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::{HashSettings, SliceError, SliceHash};

use crate::common::lives::live_and_crash;
use crate::common::structure::{check_all, fill};
use crate::life::{Hardware, opened, small, used, with, with_side};

/// Returns settings with one partition, whose tables hold about 100 changes.
fn one_partition(side_tables: u32) -> HashSettings {
    HashSettings {
        partitions: Some(1),
        side_tables,
        ..small(8, false)
    }
}

/// Makes the drive's writes take an hour.
fn stop_writes(hardware: &Hardware) {
    let slow = Fault::Slow(Duration::from_secs(3_600));
    hardware.every(Operation::Write, slow);
}

/// Inserts numbers until an insert waits. Returns the first number that is not inserted.
async fn insert_until_full(table: &SliceHash) -> u64 {
    for key in 0.. {
        let insert = table.insert(key, key);
        match runtime::timeout(Duration::from_secs(1), insert).await {
            Ok(inserted) => inserted.expect("drives work"),
            Err(_) => return key,
        }
    }
    unreachable!("memory is bounded")
}

#[test]
fn a_burst_goes_to_the_side_and_is_flushed_at_once() {
    let mut taken = Vec::new();
    for side_tables in [0, 1, 5] {
        let settings = one_partition(side_tables);
        with(&settings, 1, async |table, hardware| {
            let entries = u64::from(table.shape().table_entries);
            let a_table = table.memory().tables;
            stop_writes(hardware);
            let full = insert_until_full(&table).await;
            assert_eq!(full, entries * (2 + u64::from(side_tables)));
            assert_eq!(
                table.memory().tables,
                a_table * (2 + u64::from(side_tables))
            );
            check_all(&table, (0..full).step_by(7), "in memory").await;
            hardware.disks[0].heal();
            runtime::sleep(Duration::from_secs(7_200)).await;
            let stats = table.stats();
            assert_eq!(stats.flushed_tables, 1 + u64::from(side_tables));
            assert_eq!(stats.flushes, 1, "all were frozen when it began");
            assert_eq!(
                stats.bytes_written,
                stats.flushes * table.shape().region_bytes
            );
            assert_eq!(stats.flushed_entries, entries * stats.flushed_tables);
            assert_eq!(table.memory().tables, a_table);
            check_all(&table, 0..full, "flushed").await;
            taken.push(stats.bytes_written as f64 / stats.flushed_entries as f64);
        });
    }
    assert!(taken[2] < taken[0] / 5.9, "{taken:?} bytes an entry");
}

/// Keys are changed again while older tables with the same keys wait: the newest value counts, in memory, during the flush, on
/// the drive, and after the next start.
#[test]
fn the_newest_of_the_tables_that_wait_counts() {
    let settings = one_partition(6);
    with(&settings, 1, async |table, hardware| {
        stop_writes(hardware);
        let keys = u64::from(table.shape().table_entries) / 2;
        for round in 0..5 {
            for key in 0..keys {
                match (key + round) % 5 {
                    0 => table.delete(key).await.expect("drives work"),
                    _ => table.insert(key, round).await.expect("drives work"),
                }
            }
            // Other keys of the partition fill the table.
            let mut other = 1_000 * (1 + round);
            let before = table.memory().tables;
            while table.memory().tables == before {
                table.insert(other, round).await.expect("drives work");
                other += 1;
            }
        }
        let check = async |table: &SliceHash, when: &str| {
            for key in 0..keys {
                let expected = ((key + 4) % 5 != 0).then_some(4);
                let found = table.get(key).await.expect("drives work");
                assert_eq!(found, expected, "key {key}, {when}");
            }
        };
        let a_table = table.memory().tables / 6;
        check(&table, "in memory").await;
        assert_eq!(table.memory().tables, 6 * a_table, "nothing is flushed");
        let again = Hardware::of(hardware.killed(1), 2);
        let opened = again.open(&settings).await.expect("drives work");
        assert!(opened.stats().flushed_tables > opened.stats().flushes);
        check(&opened, "opened after a kill").await;
        hardware.disks[0].heal();
        runtime::sleep(Duration::from_secs(7_200)).await;
        check(&table, "flushed").await;
    });
}

/// Synced changes in tables on the side survive a power cut; other changes may be missing. The test repeats this on the same
/// drives.
#[test]
fn tables_on_the_side_survive_kills_and_power_cuts() {
    // Enough incarnations that none is overwritten.
    let settings = HashSettings {
        incarnations: 40,
        ..one_partition(5)
    };
    for seed in 0..40 {
        let mut synced = 0;
        live_and_crash(&settings, 1, seed, async |table, hardware, life, _| {
            let first = synced;
            let when = format!("seed {seed}, life {}", life.number);
            check_all(&table, 0..synced, &when).await;
            stop_writes(hardware);
            synced += 150 + 90 * (seed % 7);
            fill(&table, first..synced).await;
            table.sync().await.expect("it works");
            for key in synced..synced + 100 {
                let insert = table.insert(key, key);
                let _ = runtime::timeout(Duration::from_secs(1), insert).await;
            }
        });
    }
}

/// The log has a part for each table. A part is not used again while its table waits.
#[test]
fn parts_of_the_log_are_used_in_turn() {
    let settings = HashSettings {
        incarnations: 40,
        ..one_partition(5)
    };
    let mut keys = 0;
    let (hardware, sim) = used(&settings, 1, 1, async |table, hardware| {
        let a_round = 5 * u64::from(table.shape().table_entries);
        for round in 0..4 {
            if round == 3 {
                stop_writes(hardware);
            }
            fill(&table, round * a_round..(round + 1) * a_round).await;
            if round < 3 {
                table.flush().await.expect("drives work");
            }
        }
        keys = 4 * a_round;
    });
    let again = Hardware::of(hardware.killed(1), 1);
    sim.crash();
    opened(&again, &settings, 2, async |table| {
        check_all(&table, 0..keys, "killed").await;
    });
}

/// All partitions of a drive share the tables on the side, and so the bound of memory.
#[test]
fn the_side_is_bounded_by_the_drive() {
    let settings = HashSettings {
        partitions: Some(20),
        ..with_side(3, false)
    };
    with(&settings, 1, async |table, hardware| {
        let a_table = table.memory().tables / 20;
        stop_writes(hardware);
        let full = insert_until_full(&table).await;
        assert_eq!(table.memory().tables, (20 + 2 + 4) * a_table);
        assert!(full > 6 * u64::from(table.shape().table_entries));
        hardware.disks[0].heal();
        runtime::sleep(Duration::from_secs(100_000)).await;
        check_all(&table, 0..full, "flushed").await;
    });
}

/// The settings of a start do not change the number of the log's parts.
#[test]
fn the_side_is_as_the_table_was_created() {
    let settings = one_partition(2);
    with(&settings, 1, async |table, hardware| {
        drop(table);
        let opened = hardware.open(&one_partition(9)).await.expect("drives work");
        assert_eq!(opened.shape().side_tables, 2);
        stop_writes(hardware);
        let full = insert_until_full(&opened).await;
        assert_eq!(full, 4 * u64::from(opened.shape().table_entries));
    });
    let refused = one_partition(u32::MAX).shape(&[1 << 30]);
    assert!(matches!(refused, Err(SliceError::Setting(_))));
}
