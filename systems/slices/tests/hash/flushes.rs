//! Flushes that fail, are cut short or are held up.

use std::sync::Arc;
use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_slices::{Files, HashSettings, SliceHash, get_all};

use crate::common::faults::writes_that_fail_and_are_left_are_begun_again;
use crate::common::structure::{fill, fill_drives, missing};
use crate::life::{DRIVE_BYTES, Hardware, opened, small, used, with, with_side};
use crate::plain::with_bytes;

/// Runs a test with a table that has 300 keys on its drive.
fn with_keys(settings: &HashSettings, test: impl AsyncFnOnce(SliceHash, &Hardware)) {
    with(settings, 1, async |table, hardware| {
        fill_drives(&table, 0..300).await;
        test(table, hardware).await;
    });
}

/// A drive fails all reads for a moment: nothing is lost.
#[test]
fn reads_that_fail_for_a_moment_during_a_flush_lose_nothing() {
    with_keys(&small(8, false), async |table, hardware| {
        hardware.every(Operation::Read, Fault::Error);
        for key in 300..400 {
            // The insert may be refused or accepted, but it must return.
            let _ = table.insert(key, key).await;
        }
        let flushed = table.flush().await;
        hardware.disks[0].heal();
        let gone = missing(&table, 0..300).await;
        let told = format!("the flush said {flushed:?}, {:?}", table.stats());
        assert_eq!(gone, 0, "of 300, for ever; {told}");
    });
}

/// One read returns one wrong bit, once: nothing is lost.
#[test]
fn a_bit_that_a_read_gets_wrong_once_loses_nothing() {
    with_keys(&small(8, false), async |table, hardware| {
        hardware.disks[0].script(When::next(Operation::Read), Fault::FlippedBit);
        fill_drives(&table, 300..400).await;
        let gone = missing(&table, 0..300).await;
        assert_eq!(gone, 0, "of 300, for ever; {:?}", table.stats());
    });
}

/// Many look-ups are dropped while the drive is busy.
#[test]
fn look_ups_that_are_given_up_do_not_end_the_process() {
    with_keys(&small(8, false), async |table, hardware| {
        let slow = Fault::Slow(Duration::from_secs(1));
        hardware.disks[0].script(When::next(Operation::Read), slow);
        let busy = table.clone();
        let busy = runtime::spawn(async move { busy.get(1).await });
        runtime::sleep(Duration::from_micros(1)).await;
        let all = get_all(&table, (0..100_000).map(|key| key % 300));
        let given_up = runtime::timeout(Duration::from_millis(1), all).await;
        assert!(given_up.is_err());
        busy.await.expect("it ends").expect("drives work");
        assert_eq!(table.get(2).await.expect("drives work"), Some(2));
    });
}

/// More look-ups begin than the drive takes at once, and are then neither polled nor dropped.
#[test]
fn look_ups_that_nobody_polls_hold_up_no_insert() {
    let settings = HashSettings {
        partitions: Some(1),
        ..small(8, false)
    };
    with_keys(&settings, async |table, _| {
        let mut begun: Vec<_> = (0..100).map(|key| Box::pin(table.get(key))).collect();
        for one in &mut begun {
            assert!(futures_util::poll!(one).is_pending());
        }
        let inserts = async {
            fill_drives(&table, 300..1_000).await;
        };
        let ended = runtime::timeout(Duration::from_secs(10), inserts).await;
        assert!(ended.is_ok(), "inserts wait: {:?}", table.stats());
        for (key, one) in (0..).zip(begun) {
            assert_eq!(one.await.expect("drives work"), Some(key));
        }
    });
}

/// Look-ups are dropped, some before the drive has begun their reads.
#[test]
fn a_table_that_is_closed_has_given_its_drives_back() {
    with_keys(&small(8, false), async |table, hardware| {
        let slow = Fault::Slow(Duration::from_secs(1));
        hardware.disks[0].script(When::next(Operation::Read), slow);
        let mut begun: Vec<_> = (0..100).map(|key| Box::pin(table.get(key))).collect();
        for one in &mut begun {
            assert!(futures_util::poll!(one).is_pending());
        }
        runtime::yield_now().await;
        drop(begun);
        table.close().await.expect("drives work");
        assert_eq!(Arc::strong_count(&hardware.disks[0]), 1);
    });
}

/// A table is used from many short `block_on`s, as by threads that have one each. A flush left unfinished at the end of its
/// `block_on` does not hold up another partition.
#[test]
fn a_flush_outlives_the_runtime_of_the_insert_that_began_it() {
    for (partitions, side_tables) in [(1, 0), (4, 0), (4, 2)] {
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let settings = HashSettings {
                partitions: Some(partitions),
                side_tables,
                ..small(8, false)
            };
            let directory = tempfile::tempdir().expect("a directory");
            let paths = [directory.path().join("drive")];
            let words = async |disks: &[_]| SliceHash::log_words_for(&settings, disks);
            let files = Files::create(&paths, DRIVE_BYTES, false, words);
            let files = runtime::live::block_on(files).expect("they are made");
            let table =
                runtime::live::block_on(SliceHash::create(files.disks, files.journal, &settings))
                    .expect("drives work");
            for key in 0..2_000_u64 {
                runtime::live::block_on(table.insert(key, key)).expect("drives work");
                let _ = done.send(key);
            }
        });
        let mut last = None;
        while let Ok(key) = ended.recv_timeout(Duration::from_secs(60)) {
            last = Some(key);
        }
        let which = format!("{partitions} partitions, {side_tables} tables on the side");
        assert_eq!(
            last,
            Some(1_999),
            "the last insert that has returned, {which}"
        );
    }
}

/// A failing drive holds up its own partitions only.
#[test]
fn a_failed_drive_does_not_stop_inserts_of_the_others() {
    let settings = HashSettings {
        partitions: Some(16),
        ..small(2, false)
    };
    with(&settings, 2, async |table, hardware| {
        hardware.every(Operation::Write, Fault::Error);
        let (mut refused, mut tried) = (0, 0);
        for key in 0..5_000 {
            let (drive, _) = table.place_of(key);
            let inserted = table.insert(key, key).await;
            if drive == 1 {
                tried += 1;
                refused += u64::from(inserted.is_err());
            }
        }
        assert_eq!(refused, 0, "of {tried} inserts into partitions of drive 1");
    });
}

/// If one region cannot be written and another is free, the free region is used.
#[test]
fn a_region_that_cannot_be_written_is_left_alone() {
    let settings = HashSettings {
        partitions: Some(1),
        ..small(8, false)
    };
    with(&settings, 1, async |table, hardware| {
        // The first page of the first region.
        let of_page = When::every(Operation::Write).within(8192..12288);
        hardware.disks[0].script(of_page, Fault::Error);
        for key in 0..50 {
            table.insert(key, key).await.expect("there is space");
        }
        let mut last = Ok(());
        for _ in 0..100 {
            last = table.flush().await;
            if last.is_ok() {
                return;
            }
            runtime::sleep(Duration::from_secs(1)).await;
        }
        panic!(
            "after 100 s, with {} regions free: {last:?}",
            (DRIVE_BYTES - 8192) / table.shape().region_bytes - 1
        );
    });
}

/// With one spare region, as with two: if flushes fail because of the log, inserts return the error.
#[test]
fn a_failing_log_is_an_error_and_no_silence() {
    let settings = HashSettings {
        spare_regions: 1,
        ..small(8, false)
    };
    let shape = settings.shape(&[DRIVE_BYTES]).expect("it can be");
    let four_regions = 8192 + 4 * shape.region_bytes;
    with_bytes(&settings, four_regions, async |table, journal| {
        fill_drives(&table, 0..300).await;
        journal.set_sync_fails(true);
        for key in 300..2_000 {
            let inserted =
                runtime::timeout(Duration::from_secs(3600), table.insert(key, key)).await;
            assert!(inserted.is_ok(), "insert {key} waits for an hour");
        }
    });
}

/// A table is closed while it flushes, and opened again on the same drives.
#[test]
fn a_table_that_is_closed_and_opened_again_is_one_table() {
    let settings = HashSettings {
        partitions: Some(1),
        ..small(40, false)
    };
    for seed in 0..20 {
        let (hardware, sim) = used(&settings, 1, seed, async |table, hardware| {
            let slow = Fault::Slow(Duration::from_millis(500));
            hardware.disks[0].script(When::next(Operation::Sync), slow);
            let one = table.memory().tables;
            let mut key = 0;
            while table.memory().tables == one {
                table.insert(key, key).await.expect("drives work");
                key += 1;
            }
            // The flush has begun by then.
            runtime::sleep(Duration::from_micros(100)).await;
            table.close().await.expect("drives work");
            let table = hardware.open(&settings).await.expect("drives work");
            fill(&table, 0..1_500).await;
            table.sync().await.expect("it works");
            runtime::sleep(Duration::from_secs(1)).await;
        });
        let again = Hardware::of(hardware.killed(seed), seed);
        sim.crash();
        opened(&again, &settings, seed, async |table| {
            assert_eq!(missing(&table, 0..1_500).await, 0, "seed {seed}");
        });
    }
}

/// A runtime ends while flushes fail and the most tables wait. Another runtime continues the flushes when the drive works
/// again, even if none of its keys is in a partition whose table waits.
#[test]
fn flushes_that_fail_and_are_left_are_begun_again() {
    let settings = HashSettings {
        partitions: Some(20),
        ..with_side(3, false)
    };
    writes_that_fail_and_are_left_are_begun_again(&settings);
}
