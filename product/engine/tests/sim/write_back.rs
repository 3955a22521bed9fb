//! Write-back and sync: the items that survive a kill at some moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Fault, FaultyDisk, Latency, MemoryDisk, Operation, Tear, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::placement::{Look, Probe};
use flowstone_engine::{Engine, EngineConfig, Stop, SyncError};

use crate::support::*;

/// Time after which a cache with the default settings has written back all dirty items.
const WINDOW: Duration = Duration::from_secs(60);

fn written(engine: &Engine) -> u64 {
    engine
        .store()
        .counters()
        .bytes_written
        .load(Ordering::Relaxed)
}

/// Starts an engine with memory for all items of the tests.
async fn start_on(left: &Left, config: &EngineConfig) -> (Arc<MemoryDisk>, Media, Arc<Engine>) {
    let (disk, media) = left.media();
    let engine = start(&media, config).await;
    (disk, media, engine)
}

/// Returns how many of the numbered items a start after a kill finds.
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
        // A few more go to the half-full segment, and are found all the same.
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

/// Memory is a third of the flash: if as much were kept free for the stop, a third of the cache would be unused.
#[test]
fn what_is_clean_needs_no_room_for_the_stop() {
    const ITEMS: u64 = 46_000;
    simulate(1, async {
        let new = Left::new(device::Image::new(META_BYTES + (64 << 20)));
        let config = EngineConfig {
            memory_bytes: 22 << 20,
            ..roomy()
        };
        let (_disk, _media, engine) = start_on(&new, &config).await;
        for number in 0..ITEMS {
            set(&engine, &numbered(number), &value(number, 1250))
                .await
                .unwrap();
            if number % 2000 == 0 {
                runtime::sleep(WINDOW).await;
            }
        }
        runtime::sleep(WINDOW).await;
        let stats = engine.stats();
        assert_eq!(stats.placement.items_evicted, 0, "{stats:?}");
        let (free, all) = (
            engine.store().pool().counts().free,
            engine.store().table().segments(),
        );
        assert!(16 * free <= all * 2, "{free} of {all} segments are free");
        for number in 0..ITEMS {
            assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
        }
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
        // Flash turns over while the first items are read and stay in memory.
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

/// Checks that the first items survive power cuts at this moment.
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

/// The system reports an error to one sync only: the sync of a checkpoint, of a flush before its footer, or of
/// a flush behind it.
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
            // Until the flush of items older than five eighths of the window.
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
fn a_stop_outlives_a_sync_that_fails() {
    for (seed, after) in (1..5).flat_map(|seed| (0..3).map(move |after| (seed, after))) {
        let image = device::Image::new(65 << 20);
        let disk = Arc::new(FaultyDisk::from_image(image, Latency::default(), seed));
        let media = Media::new(disk.clone());
        simulate(1, async {
            let engine = start(&media, &roomy()).await;
            fill(&engine, 1000, 1000).await;
            disk.script(When::next(Operation::Sync).after(after), Fault::Error);
            assert_eq!(engine.stop().await, Stop::Complete { objects: 1000 });
            assert_eq!(disk.counts().met(&Fault::Error), 1);
        });
        assert_a_power_cut_leaves(&disk, &media, 1000, &format!("disk's seed {seed}, {after}"));
    }
}

/// A segment that has been flushed before is synced once more while it is written.
#[test]
fn a_sync_that_fails_while_a_segment_is_written_takes_none_of_its_items() {
    let image = device::Image::new(65 << 20);
    let disk = Arc::new(FaultyDisk::from_image(image, Latency::default(), 1));
    simulate(1, async {
        let engine = start(&Media::new(disk.clone()), &roomy()).await;
        fill(&engine, 100, 1000).await;
        engine.sync().await.unwrap();
        disk.script(When::every(Operation::Sync), Fault::Error);
        // More than memory holds.
        fill(&engine, 20_000, 1000).await;
        assert!(disk.counts().met(&Fault::Error) > 0);
        let stats = engine.stats().placement;
        assert_eq!(stats.items_lost, 0);
        for number in 0..20_000 {
            let found = get(&engine, &numbered(number)).await;
            assert!(found == Some(value(number, 1000)), "item {number}");
        }
    });
}

/// The first failed sync of a run leaves no doubt about items that earlier runs made durable.
#[test]
fn what_was_durable_before_a_failed_sync_is_not_written_again() {
    let image = device::Image::new(65 << 20);
    let disk = Arc::new(FaultyDisk::from_image(image, Latency::default(), 1));
    let media = Media::new(disk.clone());
    simulate(1, async {
        let engine = start(&media, &roomy()).await;
        fill(&engine, 30_000, 1000).await;
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    });
    simulate(2, async {
        let engine = start(&media, &roomy()).await;
        disk.script(When::next(Operation::Sync), Fault::Error);
        set(&engine, b"new", b"value").await.unwrap();
        assert_eq!(engine.sync().await, Err(SyncError::Refused));
        assert_eq!(engine.sync().await, Ok(()));
        assert!(written(&engine) < 1 << 20, "{}", written(&engine));
    });
}

/// A segment that cannot be read back is given up after some seconds, and one that cannot be written waits. The others become
/// durable all the same.
#[test]
fn one_bad_place_keeps_nothing_else_from_becoming_durable() {
    for bad in [Operation::Read, Operation::Write] {
        let image = device::Image::new(65 << 20);
        let disk = Arc::new(FaultyDisk::from_image(image, Latency::default(), 1));
        let media = Media::new(disk.clone());
        simulate(1, async {
            let engine = start(&media, &roomy()).await;
            disk.script(When::every(Operation::Sync), Fault::Error);
            fill(&engine, 3000, 1000).await;
            assert_eq!(engine.sync().await, Err(SyncError::Refused));
            disk.heal();
            let first = META_BYTES..META_BYTES + u64::from(SEGMENT_BYTES);
            disk.script(When::every(bad).within(first), Fault::Error);
            assert_eq!(engine.sync().await, Err(SyncError::Refused), "{bad:?}");
            let left = Left {
                image: disk.crash(1, Tear::Pages),
                words: media.journal.power_cut(1),
            };
            let (_, media) = left.media();
            let again = start(&media, &roomy()).await;
            let mut found = 0;
            for number in 0..3000 {
                found += u64::from(get(&again, &numbered(number)).await.is_some());
            }
            assert!(found >= 2700, "{bad:?}: {found}");
            runtime::sleep(Duration::from_secs(11)).await;
            let synced = engine.sync().await;
            assert_eq!(synced.is_ok(), bad == Operation::Read, "{bad:?}");
            disk.heal();
            assert_eq!(engine.sync().await, Ok(()), "{bad:?}");
        });
        assert_a_power_cut_leaves(&disk, &media, 3000, &format!("{bad:?}"));
    }
}

/// A full index refuses the last items of a batch. They stay dirty, and are placed once reclaim has freed space.
#[test]
fn what_a_full_index_refuses_is_placed_later() {
    for asks in [false, true] {
        simulate(1, async {
            let mut config = roomy();
            config.index.percent = 1;
            let engine = start(&memory_disk(65 << 20), &config).await;
            let mut number = 0;
            let refused = |engine: &Engine| engine.stats().placement.index_full;
            while refused(&engine) < 10 {
                // Memory holds fewer items than the index, and flash more.
                for _ in 0..2000 {
                    set(&engine, &numbered(number), &value(number, 1000))
                        .await
                        .unwrap();
                    number += 1;
                }
                if asks {
                    assert_eq!(engine.sync().await, Ok(()));
                } else {
                    runtime::sleep(2 * WINDOW).await;
                }
                let stats = engine.stats();
                assert_eq!(stats.dram_dirty_items, 0, "asks {asks}, {number} items");
                assert!(number < 1_000_000, "{:?}", stats.placement);
            }
            for young in number - 2000..number {
                let name = numbered(young);
                let hash = engine.key(&name).unwrap().hash();
                let found = engine.placement().probe(hash, Look::Peek);
                assert!(matches!(found, Probe::At(_)), "asks {asks}: item {young}");
            }
        });
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

#[test]
fn a_sync_that_finds_nothing_new_writes_nothing() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &roomy()).await;
        fill(&engine, 1000, 1000).await;
        // The first sync may end with records of its own.
        engine.sync().await.unwrap();
        engine.sync().await.unwrap();
        let counts = |engine: &Engine| (written(engine), engine.checkpoint_stats().syncs);
        let (bytes, syncs) = counts(&engine);
        for _ in 0..100 {
            engine.sync().await.unwrap();
        }
        // The journal notes the time of its last sync.
        let (bytes_after, syncs_after) = counts(&engine);
        assert_eq!(bytes_after, bytes);
        assert!(syncs_after <= syncs + 2, "{syncs} to {syncs_after}");
        set(&engine, &numbered(0), b"new").await.unwrap();
        engine.sync().await.unwrap();
        assert!(written(&engine) > bytes);
    });
}
