//! Drives and a log that fail.

use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_slices::{BloomSettings, SliceBloom, SliceError};
use runtime::sim::Sim;

use crate::common::faults;
use crate::common::structure::{check_all, damaged, fill, fill_drives, missing};
use crate::life::{
    DRIVE_BYTES, Hardware, PLACEMENTS, key, opened, small, used_without_power, with,
};

#[test]
fn a_failed_flush_is_said_once_and_tried_again() {
    faults::writes_that_fail_are_said_and_tried_again(&small(40, PLACEMENTS[0]), 2_000);
}

#[test]
fn a_log_that_cannot_be_synced_stops_flushes_and_nothing_is_lost() {
    faults::a_log_that_cannot_be_synced_loses_nothing(
        &small(40, PLACEMENTS[1]),
        20,
        Duration::ZERO,
    );
}

#[test]
fn writes_that_fail_and_are_left_are_begun_again() {
    faults::writes_that_fail_and_are_left_are_begun_again(&small(40, PLACEMENTS[0]));
}

/// The bits of a damaged page count as set once the page is written anew, until their incarnations are overwritten.
#[test]
fn a_damaged_page_denies_nothing() {
    for placement in PLACEMENTS {
        with(&small(8, placement), 1, async |filter, hardware| {
            fill_drives(&filter, 0..300).await;
            hardware.decay(0, 2..200, 700).await;
            assert_eq!(damaged(&filter, 0..300, false, "damaged").await, 300);
            fill_drives(&filter, 300..600).await;
            assert_eq!(filter.stats().pages_lost, 6);
            let all = (0..600).chain(10_000..10_100);
            check_all(&filter, all, "written anew").await;
            // Eight incarnations later the filter denies keys again.
            fill_drives(&filter, 20_000..25_000).await;
            let wrong = 1_000 - missing(&filter, 10_000..11_000).await;
            let rate = filter.shape().false_positive_rate();
            assert!((wrong as f64) < 1_000.0 * rate + 15.0, "{wrong}, {rate}");
        });
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_denies_nothing() {
    with(&small(8, PLACEMENTS[0]), 1, async |filter, hardware| {
        fill_drives(&filter, 0..300).await;
        hardware.every(Operation::Read, Fault::Error);
        let found = filter.may_contain(&key(1)).await;
        assert!(matches!(found, Err(SliceError::Device { drive: 0, .. })));
        fill(&filter, 300..400).await;
        // A drive may answer again. After some time, unreadable pages count as lost.
        while filter.flush().await.is_err() {
            runtime::sleep(Duration::from_secs(1)).await;
        }
        hardware.disks[0].heal();
        check_all(&filter, 0..400, "written anew").await;
    });
}

#[test]
fn a_write_that_went_nowhere_is_found_out() {
    let settings = |seed: u64| small(40, PLACEMENTS[(seed % 2) as usize]);
    faults::writes_that_go_nowhere(settings, 500, 3, async |filter, rounds, when| {
        damaged(&filter, rounds.concat(), false, when).await;
    });
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
            let hardware = used_without_power(&settings, 1, seed, async |filter, _| {
                if seed % 2 == 0 {
                    fill_drives(&filter, 0..150).await;
                }
                fill(&filter, 1_000..1_030).await;
                filter.sync().await.expect("drives work");
                runtime::spawn_detached(async move {
                    // The crash cuts the flush short.
                    let _ = filter.flush().await;
                });
                runtime::sleep(Duration::from_micros(40 * (seed / 2) + 200)).await;
            });
            opened(&hardware, &settings, seed, async |filter| {
                fill(&filter, 2_000..2_030).await;
                filter.sync().await.expect("drives work");
                let table = 8192..DRIVE_BYTES;
                let writes = hardware.disks[0].counts().writes;
                hardware.disks[0].script(When::every(Operation::Write).within(table), Fault::Lost);
                // The flush is retried until the drive writes.
                let flushed = filter.flush().await;
                said += u64::from(flushed.is_err());
                flushed_again += hardware.disks[0].counts().writes - writes;
                let all = (1_000..1_030).chain(2_000..2_030);
                damaged(&filter, all, false, &format!("seed {seed}")).await;
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
            fill_drives(&filter, 0..100).await;
            let slow = Fault::Slow(Duration::from_millis(2));
            hardware.every(Operation::Read, slow);
            let of = filter.clone();
            let look_up = runtime::spawn(async move { of.may_contain(&key(seed)).await });
            runtime::sleep(Duration::from_micros(100 * seed + 1)).await;
            for round in 1..4 {
                fill_drives(&filter, 1_000 * round..1_000 * round + 100).await;
            }
            let found = look_up.await.expect("tasks end");
            assert!(found.expect("nothing is damaged"), "seed {seed}");
        });
    }
}
