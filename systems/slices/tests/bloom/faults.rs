//! Drives and a log that fail.

use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_slices::{BloomSettings, SliceBloom, SliceError};
use runtime::sim::Sim;

use crate::hardware::Hardware;
use crate::life::{DRIVE_BYTES, PLACEMENTS, key, small};

async fn insert(filter: &SliceBloom, keys: std::ops::Range<u64>) {
    for number in keys {
        filter.insert(&key(number)).await.expect("drives work");
    }
}

async fn decay_all(hardware: &Hardware) {
    for page in 2..200 {
        let decayed = hardware.disks[0].decay(page * 4096 + 700, 3).await;
        decayed.expect("it decays");
    }
}

#[test]
fn a_failed_flush_is_said_once_and_tried_again() {
    for operation in [Operation::Write, Operation::Sync] {
        Sim::new(1).block_on(async {
            let settings = small(40, PLACEMENTS[0]);
            let hardware = Hardware::new(&settings, 1, 1);
            let filter = hardware.create(&settings).await.expect("drives work");
            hardware.disks[0].script(When::every(operation), Fault::Error);
            let (mut refused, mut kept) = (0, Vec::new());
            for number in 0..2_000 {
                match filter.insert(&key(number)).await {
                    Ok(()) => kept.push(number),
                    Err(SliceError::Device { drive: 0, .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
                if refused == 20 && kept.last() != Some(&number) {
                    hardware.disks[0].heal();
                    while filter.flush().await.is_err() {
                        runtime::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            assert_eq!((refused, kept.len()), (20, 1_980));
            for number in kept {
                let found = filter.may_contain(&key(number)).await;
                assert!(found.expect("drives work"), "{number}");
            }
        });
    }
}

#[test]
fn a_log_that_cannot_be_synced_stops_flushes_and_nothing_is_lost() {
    for seed in 0..20 {
        Sim::new(seed).block_on(async {
            let settings = small(40, PLACEMENTS[1]);
            let hardware = Hardware::new(&settings, 1, 1);
            let filter = hardware.create(&settings).await.expect("drives work");
            insert(&filter, 10_000..10_000 + 40 * seed).await;
            hardware.journal.set_sync_fails(true);
            let mut kept = Vec::new();
            for number in 0..3_000 {
                if filter.insert(&key(number)).await.is_ok() {
                    kept.push(number);
                }
            }
            assert!(kept.len() < 1_500, "flushes wait for the log");
            assert!(filter.sync().await.is_err());
            for number in &kept {
                let found = filter.may_contain(&key(*number)).await;
                assert!(found.expect("drives work"), "{number}");
            }
            hardware.journal.set_sync_fails(false);
            filter.sync().await.expect("it works again");
            let again = Hardware::of(hardware.without_power(seed), 2);
            let opened = again.open(&settings).await.expect("drives work");
            for number in kept {
                let found = opened.may_contain(&key(number)).await;
                assert!(found.expect("drives work"), "seed {seed}: {number}");
            }
        });
    }
}

/// The bits of a damaged page count as set once the page is written anew, until their incarnations are overwritten.
#[test]
fn a_damaged_page_denies_nothing() {
    for placement in PLACEMENTS {
        Sim::new(1).block_on(async {
            let settings = small(8, placement);
            let hardware = Hardware::new(&settings, 1, 1);
            let filter = hardware.create(&settings).await.expect("drives work");
            insert(&filter, 0..300).await;
            filter.flush().await.expect("drives work");
            decay_all(&hardware).await;
            for number in 0..300 {
                let found = filter.may_contain(&key(number)).await;
                assert!(
                    matches!(found, Err(SliceError::Damaged { drive: 0, .. })),
                    "{found:?}"
                );
            }
            insert(&filter, 300..600).await;
            filter.flush().await.expect("drives work");
            assert_eq!(filter.stats().pages_lost, 6);
            for number in (0..600).chain(10_000..10_100) {
                let found = filter.may_contain(&key(number)).await;
                assert!(found.expect("written anew"), "{number}");
            }
            // Eight incarnations later the filter denies keys again.
            insert(&filter, 20_000..25_000).await;
            filter.flush().await.expect("drives work");
            let mut wrong = 0;
            for number in 10_000..11_000 {
                let found = filter.may_contain(&key(number)).await;
                wrong += u64::from(found.expect("written anew"));
            }
            let rate = filter.shape().false_positive_rate();
            assert!((wrong as f64) < 1_000.0 * rate + 15.0, "{wrong}, {rate}");
        });
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_denies_nothing() {
    Sim::new(1).block_on(async {
        let settings = small(8, PLACEMENTS[0]);
        let hardware = Hardware::new(&settings, 1, 1);
        let filter = hardware.create(&settings).await.expect("drives work");
        insert(&filter, 0..300).await;
        filter.flush().await.expect("drives work");
        hardware.disks[0].script(When::every(Operation::Read), Fault::Error);
        let found = filter.may_contain(&key(1)).await;
        assert!(matches!(found, Err(SliceError::Device { drive: 0, .. })));
        insert(&filter, 300..400).await;
        // A drive may answer again. After some time, unreadable pages count as lost.
        while filter.flush().await.is_err() {
            runtime::sleep(Duration::from_secs(1)).await;
        }
        hardware.disks[0].heal();
        for number in 0..400 {
            let found = filter.may_contain(&key(number)).await;
            assert!(found.expect("written anew"), "{number}");
        }
    });
}

#[test]
fn a_write_that_went_nowhere_is_found_out() {
    for fault in [
        Fault::Lost,
        Fault::Torn,
        Fault::Zeroed,
        Fault::Misdirected,
        Fault::FlippedBit,
    ] {
        for seed in 0..20 {
            Sim::new(seed).block_on(async {
                let settings = small(40, PLACEMENTS[(seed % 2) as usize]);
                let hardware = Hardware::new(&settings, 1, seed);
                let filter = hardware.create(&settings).await.expect("drives work");
                hardware.disks[0].set_rates(vec![(Operation::Write, fault.clone(), 0.2)]);
                insert(&filter, 0..1_500).await;
                filter.flush().await.expect("it says nothing");
                for number in 0..1_500 {
                    match filter.may_contain(&key(number)).await {
                        Ok(true) | Err(SliceError::Damaged { .. }) => {}
                        other => panic!("{fault:?}, seed {seed}, {number}: {other:?}"),
                    }
                }
            });
        }
    }
}

/// A power cut during a flush leaves valid pages of a filter that has other keys when it is flushed again. The drive loses the
/// second write.
#[test]
fn a_lost_write_over_an_earlier_attempt_is_found_out() {
    let (mut flushed_again, mut said) = (0, 0);
    for seed in 0..60 {
        for placement in PLACEMENTS {
            let settings = BloomSettings {
                partitions: Some(1),
                ..small(40, placement)
            };
            let sim = Sim::new(seed);
            let hardware = Hardware::new(&settings, 1, seed);
            sim.block_on(async {
                let filter = hardware.create(&settings).await.expect("drives work");
                if seed % 2 == 0 {
                    insert(&filter, 0..150).await;
                    filter.flush().await.expect("drives work");
                }
                insert(&filter, 1_000..1_030).await;
                filter.sync().await.expect("drives work");
                runtime::spawn_detached(async move {
                    // The crash cuts the flush short.
                    let _ = filter.flush().await;
                });
                runtime::sleep(Duration::from_micros(40 * (seed / 2) + 200)).await;
            });
            let left = hardware.without_power(seed);
            sim.crash();
            let hardware = Hardware::of(left, seed);
            Sim::new(seed).block_on(async {
                let filter = hardware.open(&settings).await.expect("drives work");
                insert(&filter, 2_000..2_030).await;
                filter.sync().await.expect("drives work");
                let table = 8192..DRIVE_BYTES;
                let writes = hardware.disks[0].counts().writes;
                hardware.disks[0].script(When::every(Operation::Write).within(table), Fault::Lost);
                // The flush is retried until the drive writes.
                let flushed = filter.flush().await;
                said += u64::from(flushed.is_err());
                flushed_again += hardware.disks[0].counts().writes - writes;
                for number in (1_000..1_030).chain(2_000..2_030) {
                    match filter.may_contain(&key(number)).await {
                        Ok(true) | Err(SliceError::Damaged { .. }) => {}
                        other => panic!("seed {seed}, {number}: {other:?}"),
                    }
                }
            });
        }
    }
    assert!(flushed_again > 100 && said > 0, "{flushed_again} {said}");
}

/// A look-up reads pages one after the other, and slowly, while its slicetable is written twice. The region that it reads is
/// not reused before it has ended.
#[test]
fn a_look_up_reads_the_slicetable_that_it_began_with() {
    let settings = BloomSettings {
        partitions: Some(1),
        filter_bytes: 8 << 10,
        bits_per_key: 400,
        functions: 16,
        spare_regions: 1,
        piece_bytes: 128 << 10,
        ..small(8, PLACEMENTS[0])
    };
    let shape = settings.shape(&[DRIVE_BYTES]).expect("it fits");
    let drive = [8192 + 2 * shape.region_bytes];
    let words = SliceBloom::log_words(&settings, &drive).expect("they can be");
    for seed in 0..10 {
        Sim::new(seed).block_on(async {
            // One region more than the filter has.
            let hardware = Hardware::empty(words, &drive, seed);
            let filter = hardware.create(&settings).await.expect("drives work");
            insert(&filter, 0..100).await;
            filter.flush().await.expect("drives work");
            let slow = Fault::Slow(Duration::from_millis(2));
            hardware.disks[0].script(When::every(Operation::Read), slow);
            let of = filter.clone();
            let look_up = runtime::spawn(async move { of.may_contain(&key(seed)).await });
            runtime::sleep(Duration::from_micros(100 * seed + 1)).await;
            for round in 1..4 {
                insert(&filter, 1_000 * round..1_000 * round + 100).await;
                filter.flush().await.expect("drives work");
            }
            let found = look_up.await.expect("tasks end");
            assert!(found.expect("nothing is damaged"), "seed {seed}");
        });
    }
}
