//! Write-back, and having everything made durable: what a kill at some moment leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Fault, FaultyDisk, Latency, MemoryDisk, Operation, Tear, When};
use flowstone_engine::{Engine, EngineConfig, Stop, SyncError};

use crate::support::*;

/// Time after which a cache with the default settings has written back what is dirty.
const WINDOW: Duration = Duration::from_secs(60);

fn written(engine: &Engine) -> u64 {
    engine
        .store()
        .counters()
        .bytes_written
        .load(Ordering::Relaxed)
}

/// An engine with memory for everything these tests store.
async fn start_on(left: &Left, config: &EngineConfig) -> (Arc<MemoryDisk>, Media, Arc<Engine>) {
    let (disk, media) = left.media();
    let engine = start(&media, config).await;
    (disk, media, engine)
}

/// How many of the numbered items a start after a kill finds.
async fn found_after_a_kill(disk: &MemoryDisk, media: &Media, count: u64) -> u64 {
    let (_disk, media) = Left::of(disk, media).media();
    let engine = start(&media, &roomy()).await;
    let mut found = 0;
    for number in 0..count {
        if let Some(seen) = get(&engine, &numbered(number)).await {
            assert_eq!(seen, value(number, seen.len()), "{number}");
            found += 1;
        }
    }
    found
}

#[test]
fn what_fits_in_memory_is_on_flash_when_it_is_older_than_the_window() {
    simulate(1, async {
        let new = Left::new(device::Image::new(65 << 20));
        let (disk, media, engine) = start_on(&new, &roomy()).await;
        fill(&engine, 5000, 1000).await;
        runtime::sleep(WINDOW / 2).await;
        assert_eq!(written(&engine), 0, "what is young costs nothing");
        runtime::sleep(WINDOW / 2).await;
        assert_eq!(found_after_a_kill(&disk, &media, 5000).await, 5000);
        let stats = engine.stats();
        assert_eq!(
            (stats.dram_items, stats.dram_dirty_items),
            (5000, 0),
            "they stay in memory"
        );
        // A few more go to the segment that is half full, and are found all the same.
        let before = written(&engine);
        for number in 5000..5010 {
            set(&engine, &numbered(number), &value(number, 1000))
                .await
                .unwrap();
        }
        runtime::sleep(WINDOW).await;
        assert!(
            written(&engine) - before < 64 << 10,
            "{} bytes",
            written(&engine) - before
        );
        assert_eq!(found_after_a_kill(&disk, &media, 5010).await, 5010);
        assert_eq!(engine.stop().await, Stop::Complete { objects: 5010 });
    });
}

#[test]
fn what_is_overwritten_within_the_window_costs_nothing_and_afterwards_one_write() {
    simulate(1, async {
        let new = Left::new(device::Image::new(65 << 20));
        let (_disk, _media, engine) = start_on(&new, &roomy()).await;
        for _ in 0..20 {
            fill(&engine, 1000, 1000).await;
            runtime::sleep(WINDOW / 3).await;
        }
        assert_eq!(engine.stats().tier.written_back, 0);
        runtime::sleep(WINDOW).await;
        assert_eq!(engine.stats().tier.written_back, 1000);
        runtime::sleep(10 * WINDOW).await;
        assert_eq!(
            engine.stats().tier.written_back,
            1000,
            "what is clean is left alone"
        );
    });
}

#[test]
fn without_a_window_nothing_is_written_before_it_leaves_memory_or_a_sync() {
    simulate(1, async {
        let new = Left::new(device::Image::new(65 << 20));
        let config = EngineConfig {
            write_back: None,
            ..roomy()
        };
        let (disk, media, engine) = start_on(&new, &config).await;
        fill(&engine, 3000, 1000).await;
        runtime::sleep(10 * WINDOW).await;
        assert_eq!(written(&engine), 0);
        assert_eq!(found_after_a_kill(&disk, &media, 3000).await, 0);
        engine.sync().await.unwrap();
        assert_eq!(found_after_a_kill(&disk, &media, 3000).await, 3000);
    });
}

#[test]
fn a_sync_makes_everything_durable_whatever_the_schedule() {
    for_each_seed(
        "a_sync_makes_everything_durable_whatever_the_schedule",
        24,
        |seed| {
            simulate(seed, async {
                let new = Left::new(device::Image::new(65 << 20));
                let (disk, media, engine) = start_on(&new, &slotted(seed)).await;
                for count in [1, 700, 2000] {
                    fill(&engine, count, 1000).await;
                    engine.sync().await.unwrap();
                    assert_eq!(found_after_a_kill(&disk, &media, count).await, count);
                }
            });
        },
    );
}

#[test]
fn what_reclaim_takes_from_flash_is_placed_again_while_memory_has_it() {
    simulate(1, async {
        let new = Left::new(device::Image::new(41 << 20));
        let (disk, media, engine) = start_on(&new, &roomy()).await;
        fill(&engine, 500, 1000).await;
        engine.sync().await.unwrap();
        // Flash turns over while the first ones are read, and stay in memory.
        for number in 1000..90_000 {
            set(&engine, &numbered(number), &value(number, 1000))
                .await
                .unwrap();
            get(&engine, &numbered(number % 500)).await.unwrap();
            if number % 64 == 0 {
                runtime::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(engine.stats().placement.segments_reclaimed > 150);
        runtime::sleep(2 * WINDOW).await;
        assert_eq!(found_after_a_kill(&disk, &media, 500).await, 500);
    });
}

/// Checks what power cuts now would leave of the first items.
fn assert_a_power_cut_leaves(disk: &FaultyDisk, media: &Media, items: u64, what: &str) {
    for seed in 1..5 {
        let left = Left {
            image: disk.crash(seed, Tear::Pages),
            words: media.journal.power_cut(seed),
        };
        simulate(seed, async {
            let engine = start(&left.media().1, &roomy()).await;
            for number in 0..items {
                let found = get(&engine, &numbered(number)).await;
                assert!(
                    found == Some(value(number, 1000)),
                    "{what}, seed {seed}: item {number}"
                );
            }
        });
    }
}

/// The system tells one sync of an error, and none after it: that of a checkpoint, of a flush before its footer, or of
/// one behind it.
#[test]
fn what_a_failed_sync_may_have_lost_is_written_again_before_a_sync_says_ok() {
    let first = When::next(Operation::Sync);
    let cases = [
        (3000, When::every(Operation::Sync)),
        (100, When::every(Operation::Sync)),
        (100, first.clone()),
        (100, first.clone().after(1)),
        (3000, first.after(1)),
    ];
    for (seed, (items, failing)) in (1..5).flat_map(|seed| cases.clone().map(|case| (seed, case))) {
        let image = device::Image::new(65 << 20);
        let disk = Arc::new(FaultyDisk::from_image(image, Latency::default(), seed));
        let media = Media::new(disk.clone());
        let what = format!("{items} items, disk's seed {seed}, {failing:?}");
        simulate(1, async {
            let engine = start(&media, &roomy()).await;
            fill(&engine, items, 1000).await;
            disk.script(failing, Fault::Error);
            // To the flush of what is older than five eighths of the window.
            while disk.counts().met(&Fault::Error) == 0 {
                runtime::sleep(WINDOW / 64).await;
            }
            engine.checkpoint_now().await;
            disk.heal();
            assert!(engine.checkpoint_now().await, "it is written anew");
            assert_eq!(engine.sync().await, Ok(()));
        });
        assert_a_power_cut_leaves(&disk, &media, items, &what);
    }
}

#[test]
fn a_sync_that_the_flash_refuses_says_so_and_the_next_one_makes_up_for_it() {
    for operation in [Operation::Write, Operation::Sync] {
        let image = device::Image::new(65 << 20);
        let disk = Arc::new(FaultyDisk::from_image(image, Latency::default(), 1));
        let media = Media::new(disk.clone());
        simulate(1, async {
            let engine = start(&media, &roomy()).await;
            fill(&engine, 1000, 1000).await;
            disk.script(When::every(operation), Fault::Error);
            let refused = engine.sync().await;
            assert_eq!(refused, Err(SyncError::Refused), "{operation:?}");
            disk.heal();
            assert_eq!(engine.sync().await, Ok(()), "{operation:?}");
        });
        assert_a_power_cut_leaves(&disk, &media, 1000, &format!("{operation:?}"));
    }
}
