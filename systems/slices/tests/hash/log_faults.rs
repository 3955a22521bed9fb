//! Faults of the log: syncs that fail or are dropped, kills followed by power cuts, and words that decay.

use std::sync::Arc;
use std::time::Duration;

use device::{Decay, MemoryJournal};
use flowstone_slices::{HashSettings, SliceError, SliceHash};
use runtime::sim::Sim;

use crate::common::hardware::Left;
use crate::common::structure::{Answer, Structure, changed, check_all, fill, fill_drives, missing};
use crate::life::{Hardware, opened, small, used, with};

/// Returns settings with log parts of many pages.
fn long_log() -> HashSettings {
    HashSettings {
        partitions: Some(1),
        table_bytes: 32 << 10,
        incarnations: 8,
        bucket_entries: Some(3),
        ..small(8, false)
    }
}

/// Returns settings with 600 pointers on five drives, so that the first page has no other words.
fn many_pointers() -> HashSettings {
    HashSettings {
        partitions: Some(120),
        ..small(3, true)
    }
}

/// Cuts the power once for each seed. None of the first `synced` keys may be missing.
fn check_power_cuts(hardware: &Hardware, settings: &HashSettings, synced: u64, seeds: u64) {
    let mut lost = Vec::new();
    for seed in 0..seeds {
        let again = Hardware::of(hardware.without_power(seed), seed);
        let gone = opened(&again, settings, seed, async |table| {
            missing(&table, 0..synced).await
        });
        if gone > 0 {
            lost.push((seed, gone));
        }
    }
    assert!(
        lost.is_empty(),
        "synced keys lost (seed, how many): {lost:?}"
    );
}

/// Uses a table with a long log that has 300 keys.
fn used_with_keys(by: impl AsyncFnOnce(SliceHash, &Hardware)) -> (Hardware, Sim) {
    used(&long_log(), 1, 1, async |table, hardware| {
        fill(&table, 0..300).await;
        by(table, hardware).await;
    })
}

/// Begins a sync, which nobody waits for.
async fn begin_sync(table: &SliceHash) {
    let syncing = table.clone();
    runtime::spawn_detached(async move {
        let _ = syncing.sync().await;
    });
    runtime::sleep(Duration::from_micros(5)).await;
}

/// Begins a flush.
async fn begin_flush(table: &SliceHash) -> impl Future<Output = Result<(), SliceError>> {
    let flushing = table.clone();
    let flushed = runtime::spawn(async move { flushing.flush().await });
    runtime::sleep(Duration::from_micros(5)).await;
    async move { flushed.await.expect("it ends") }
}

async fn fail_to_sync(table: &SliceHash, hardware: &Hardware) {
    hardware.journal.set_sync_fails(true);
    assert!(table.sync().await.is_err());
    hardware.journal.set_sync_fails(false);
}

/// Sync 1 completes, sync 2 is dropped, and the power fails during sync 3.
#[test]
fn a_dropped_sync_does_not_cost_what_was_synced_before() {
    let (hardware, _sim) = used_with_keys(async |table, _| {
        table.sync().await.expect("it works");
        table.insert(300, 300).await.expect("drives work");
        let dropped = runtime::timeout(Duration::from_micros(5), table.sync()).await;
        assert!(dropped.is_err());
        table.insert(301, 301).await.expect("drives work");
        begin_sync(&table).await;
    });
    check_power_cuts(&hardware, &long_log(), 300, 200);
}

/// Sync 1 completes, sync 2 fails, and the power fails during sync 3.
#[test]
fn a_failed_sync_does_not_cost_what_was_synced_before() {
    let mut durable = Vec::new();
    let (hardware, _sim) = used_with_keys(async |table, hardware| {
        table.sync().await.expect("it works");
        durable = hardware.journal.crash();
        table.insert(300, 300).await.expect("drives work");
        fail_to_sync(&table, hardware).await;
        table.insert(301, 301).await.expect("drives work");
        begin_sync(&table).await;
    });
    // Pages of the log are written whole. One page has reached the drive before the power failed.
    let stored = hardware.journal.crash();
    let mut lost = Vec::new();
    for page in 0..stored.len() / 512 {
        let mut words = durable.clone();
        words[page * 512..(page + 1) * 512].copy_from_slice(&stored[page * 512..(page + 1) * 512]);
        let left = Left {
            journal: Arc::new(MemoryJournal::from_words(words)),
            ..hardware.without_power(1)
        };
        let again = Hardware::of(left, 1);
        let gone = opened(&again, &long_log(), 1, async |table| {
            missing(&table, 0..300).await
        });
        if gone > 0 {
            lost.push((page, gone));
        }
    }
    assert!(
        lost.is_empty(),
        "synced keys lost (page, how many): {lost:?}"
    );
}

/// Sync 1 completes. The process is killed during sync 2, whose stores are in the page cache. The power fails during the sync
/// of the next start.
#[test]
fn a_kill_and_then_a_power_cut_keep_what_was_synced() {
    let (hardware, sim) = used_with_keys(async |table, _| {
        table.sync().await.expect("it works");
        table.insert(300, 300).await.expect("drives work");
        begin_sync(&table).await;
        table.insert(301, 301).await.expect("drives work");
    });
    sim.crash();
    let settings = long_log();
    // The same journal: stores that are not durable stay so.
    let sim = Sim::new(2);
    sim.block_on(async {
        let open = hardware.open(&settings);
        let dropped = runtime::timeout(Duration::from_micros(150), open).await;
        assert!(dropped.is_err(), "it syncs");
    });
    check_power_cuts(&hardware, &long_log(), 300, 200);
}

/// A sync fails and the process ends. The next process opens the table, and its sync succeeds: then everything is durable.
#[test]
fn what_a_failed_sync_of_the_last_process_has_lost_is_stored_again() {
    let (hardware, _sim) = used_with_keys(async |table, hardware| {
        fail_to_sync(&table, hardware).await;
    });
    opened(&hardware, &long_log(), 2, async |table| {
        check_all(&table, 0..300, "opened").await;
        table.sync().await.expect("it works again");
    });
    check_power_cuts(&hardware, &long_log(), 300, 200);
}

/// A dropped sync goes on, so that no other sync takes its place and misses its failure.
#[test]
fn a_dropped_sync_goes_on() {
    let (hardware, _sim) = used_with_keys(async |table, _| {
        let dropped = runtime::timeout(Duration::from_micros(5), table.sync()).await;
        assert!(dropped.is_err());
        runtime::sleep(Duration::from_millis(1)).await;
    });
    check_power_cuts(&hardware, &long_log(), 300, 20);
}

/// A process ends while the sync of a pointer fails. The next process finds that pointer, and goes on as if it were durable.
#[test]
fn a_pointer_that_the_last_process_has_lost_is_stored_again() {
    let settings = many_pointers();
    let (hardware, sim) = used(&settings, 5, 1, async |table, hardware| {
        table.insert(1, 1).await.expect("drives work");
        table.sync().await.expect("it works");
        hardware.journal.set_sync_fails(true);
        assert!(table.flush().await.is_err());
        hardware.journal.set_sync_fails(false);
        let words = hardware.journal.crash();
        let is_there = words[8..512].iter().any(|word| word >> 32 == 1);
        assert!(is_there, "choose a key of another partition");
    });
    sim.crash();
    let sim = Sim::new(2);
    sim.block_on(async {
        let table = hardware.open(&settings).await.expect("drives work");
        table.insert(1, 2).await.expect("drives work");
        drop(begin_flush(&table).await);
        // The log must not lose more of a part's entries than are in the slicetable that the pointer names.
        table.insert(1, 3).await.expect("drives work");
        table.sync().await.expect("it works again");
    });
    let again = Hardware::of(hardware.without_power(1), 1);
    sim.crash();
    opened(&again, &settings, 3, async |table| {
        assert_eq!(table.get(1).await.expect("drives work"), Some(3));
    });
}

/// A successful sync of a pointer does not restore stores that a user's failed sync has lost.
#[test]
fn a_pointer_that_is_durable_makes_up_for_no_failed_sync() {
    let (hardware, _sim) = used_with_keys(async |table, hardware| {
        let flushed = begin_flush(&table).await;
        fill(&table, 300..600).await;
        fail_to_sync(&table, hardware).await;
        flushed.await.expect("it begins after the sync");
        table.sync().await.expect("it works again");
    });
    check_power_cuts(&hardware, &long_log(), 600, 20);
}

/// As on Linux, one waiter alone is told of a failed sync. The pointer's sync fails and takes the stores of a user's earlier
/// sync with it: the user's sync must not succeed.
#[test]
fn a_sync_does_not_succeed_when_another_has_lost_its_stores() {
    let mut synced = Ok(());
    let (hardware, _sim) = used_with_keys(async |table, hardware| {
        // The flush syncs the log while the user's sync is under way.
        drop(begin_flush(&table).await);
        fill(&table, 300..600).await;
        hardware.journal.set_sync_time(Duration::from_millis(100));
        let syncing = table.clone();
        let sync = runtime::spawn(async move { syncing.sync().await });
        runtime::sleep(Duration::from_micros(5)).await;
        hardware.journal.set_sync_time(Duration::from_micros(300));
        hardware.journal.set_sync_fails(true);
        runtime::sleep(Duration::from_millis(60)).await;
        hardware.journal.set_sync_fails(false);
        synced = sync.await.expect("it ends");
    });
    if synced.is_err() {
        return;
    }
    check_power_cuts(&hardware, &long_log(), 600, 20);
}

/// A user's sync fails and takes the word that says where a new slicetable lies. The sync of that word, which began earlier,
/// succeeds. The user syncs again with success. The power fails during the next flush, which overwrites the old slicetable.
#[test]
fn a_sync_that_succeeds_makes_pointers_durable_that_a_failed_one_has_lost() {
    let (hardware, _sim) = used_with_keys(async |table, hardware| {
        table.flush().await.expect("drives work");
        table.insert(300, 300).await.expect("drives work");
        table.sync().await.expect("it works");
        hardware.journal.set_sync_time(Duration::from_millis(100));
        let flushed = begin_flush(&table).await;
        runtime::sleep(Duration::from_millis(60)).await;
        hardware.journal.set_sync_time(Duration::from_micros(300));
        fail_to_sync(&table, hardware).await;
        // The flush's own sync has failed, too, or has ended before.
        let _ = flushed.await;
        table.insert(301, 301).await.expect("drives work");
        table.sync().await.expect("it works again");
        table.sync().await.expect("it works again");
        drop(begin_flush(&table).await);
        runtime::sleep(Duration::from_millis(5)).await;
    });
    check_power_cuts(&hardware, &long_log(), 302, 200);
}

/// A log with a flipped bit or a page of zeros is reported, not taken for a shorter log.
#[test]
fn a_log_that_has_decayed_is_no_shorter_log() {
    let settings = long_log();
    let mut silent = Vec::new();
    for kind in [
        "flipped bit of an entry",
        "page of zeros",
        "head of zeros",
        "flipped bit of a generation",
        "pointers of zeros",
    ] {
        let (hardware, _) = used(&settings, 1, 1, async |table, _| {
            fill_drives(&table, (0..300).map(|key| changed(key, 1))).await;
            fill(&table, (0..300).map(|key| changed(key, 2))).await;
            table.sync().await.expect("it works");
        });
        let mut words = hardware.journal.crash();
        // An entry of the part in use, known by its value and its key.
        let at = (0..words.len() - 1)
            .rev()
            .find(|&at| words[at] == 270 && words[at + 1] == changed(270, 2))
            .expect("it is there");
        // The head of the part begins with the count of its entries.
        let head = (0..words.len())
            .find(|&at| words[at] >> 32 == 300 && words[at + 3] >> 32 == 2)
            .expect("it is there");
        match kind {
            "flipped bit of an entry" => words[at + 1] ^= 4,
            "head of zeros" => words[head..head + 4].fill(0),
            "flipped bit of a generation" => words[head + 3] ^= 1 << 33,
            "page of zeros" => words[at / 512 * 512..(at / 512 + 1) * 512].fill(0),
            _ => words[8] = 0,
        }
        let again = hardware.with_words(words);
        Sim::new(2).block_on(async {
            let Ok(table) = again.open(&settings).await else {
                return;
            };
            for key in 0..300 {
                let found = table.look_up(changed(key, 2)).await;
                if let Ok(Answer::Absent | Answer::Wrong) = found {
                    silent.push(format!("{kind}: key {key} is {found:?}"));
                }
            }
        });
    }
    assert!(silent.is_empty(), "opened without a word: {silent:#?}");
}

/// A bit of the word that says where one partition's slicetable lies has flipped. The entries of other partitions stay.
#[test]
fn a_pointer_that_has_decayed_costs_its_own_partition_only() {
    let settings = small(40, false);
    let (hardware, _) = used(&settings, 1, 1, async |table, _| {
        fill_drives(&table, 0..300).await;
    });
    let mut bad = Vec::new();
    for pointer in 8..11 {
        for bit in [0, 1, 2, 3, 20] {
            let mut words = hardware.journal.crash();
            words[pointer] ^= 1 << bit;
            let again = hardware.with_words(words);
            Sim::new(2).block_on(async {
                let Ok(table) = again.open(&settings).await else {
                    return;
                };
                let mut there = Vec::new();
                for key in 0..300 {
                    if missing(&table, [key]).await == 0 {
                        there.push(key);
                    }
                }
                let mut last = Ok(());
                for round in 0..6 {
                    for key in 300..340 {
                        let _ = table.put(changed(key, round)).await;
                    }
                    last = table.flush().await;
                    if last.is_err() {
                        runtime::sleep(Duration::from_secs(60)).await;
                        last = table.flush().await;
                    }
                }
                let gone = missing(&table, there.iter().copied()).await;
                if gone > 0 || last.is_err() {
                    bad.push(format!(
                        "pointer {pointer}, bit {bit}: {gone} of {} keys of other partitions are gone, flush: {last:?}",
                        there.len()
                    ));
                }
            });
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The places of slicetables are read, not loaded: a page that cannot be read is an error, and does not end the process.
#[test]
fn pointers_that_cannot_be_read_are_an_error() {
    let settings = many_pointers();
    with(&settings, 5, async |table, hardware| {
        drop(table);
        let left = |seed| {
            let mut image = hardware.journal.image(hardware.journal.crash());
            let decayed = image.decay(seed);
            (decayed == Some((1, Decay::Unreadable))).then_some(image)
        };
        let image = (0..100_000).find_map(left).expect("a seed does it");
        let again = hardware.with_journal(MemoryJournal::from_image(image));
        let opened = again.open(&settings).await;
        assert!(
            matches!(opened.as_ref().err(), Some(SliceError::Log(_))),
            "{:?}",
            opened.err()
        );
    });
}
