//! The `sliced` placement: reads, dumps and starts find the items of its index, while its tables are flushed all the time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Disk, Fault, FaultyDisk, Image, Latency, Operation, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{
    Dram, Engine, EngineConfig, IndexSettings, Opening, ReclaimPolicy, Stop, Victim,
};
use flowstone_sliced::SlicedSettings;
use rand::Rng;

use crate::support::{
    Left, Media, dump, fill, for_each_seed, get, memory_disk, numbered, random, remove,
    run_background, set, simulate, start, tight, value,
};

fn settings() -> SlicedSettings {
    SlicedSettings {
        table_bytes: Some(8 << 10),
        checkpoint_segments: 32,
        ..SlicedSettings::default()
    }
}

fn sliced(settings: SlicedSettings) -> EngineConfig {
    let mut config = EngineConfig {
        dram: Dram::WriteBuffers {
            spare_buffers: Some(1),
        },
        placement: Arc::new(settings),
        index: IndexSettings::of_memory(40),
        write_back: None,
        ..tight()
    };
    config.writing.buffers = 8;
    config.reclaim.policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    config
}

#[test]
fn what_is_there_is_found_by_reads_and_dumps_and_after_a_start() {
    const KEYS: u64 = 12_000;
    for_each_seed("what_is_there_is_found", 3, |seed| {
        simulate(seed, async {
            let mut random = random(seed);
            let settings = SlicedSettings {
                filter_percent: [0, 50][(seed % 2) as usize],
                ..settings()
            };
            let media = memory_disk(64 << 20);
            let mut engine = start(&media, &sliced(settings)).await;
            let mut model = HashMap::new();
            for round in 0..2 {
                for tag in 0..2 * KEYS {
                    let number = random.random_range(0..KEYS);
                    let key = numbered(number);
                    if random.random_ratio(1, 6) {
                        remove(&engine, number).await;
                        model.remove(&key);
                    } else {
                        let bytes = value(tag + round * KEYS, random.random_range(0..1500));
                        set(&engine, &key, &bytes).await.unwrap();
                        model.insert(key, bytes);
                    }
                }
                let stats = engine.stats();
                let index = engine.index_stats();
                assert!(index.get("index_tables_flushed") > 20, "{index:?}");
                let dropped = (index.mappings_dropped(), stats.placement.index_full);
                assert_eq!(dropped, (0, 0));
                assert_eq!(dump(&engine).await, model);
                for number in 0..KEYS {
                    let key = numbered(number);
                    let found = get(&engine, &key).await;
                    assert_eq!(found.as_ref(), model.get(&key));
                }
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
                engine = start(&media, &sliced(settings)).await;
                assert_eq!(dump(&engine).await.len(), model.len(), "after a start");
            }
        });
    });
}

/// A hit reads a page of the index and the item, a miss only the page; with filters that know the keys a miss reads nothing.
#[test]
fn a_hit_reads_the_index_once_and_so_does_a_miss() {
    const ITEMS: u64 = 20_000;
    let reads = |filter_percent| {
        simulate(1, async {
            let settings = SlicedSettings {
                filter_percent,
                ..settings()
            };
            let engine = start(&memory_disk(64 << 20), &sliced(settings)).await;
            fill(&engine, ITEMS, 600).await;
            for number in 0..ITEMS {
                assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
            }
            for number in ITEMS..2 * ITEMS {
                assert_eq!(get(&engine, &numbered(number)).await, None);
            }
            let index = engine.index_stats();
            let [for_hits, for_misses] =
                ["index_hit_reads", "index_absent_reads"].map(|name| index.get(name));
            (
                for_hits as f64 / ITEMS as f64,
                for_misses as f64 / ITEMS as f64,
            )
        })
    };
    let (hit, miss) = reads(0);
    assert!((0.5..1.15).contains(&hit), "{hit} pages for a hit");
    assert!((0.8..1.15).contains(&miss), "{miss} pages for a miss");
    let (hit, miss) = reads(60);
    assert!((0.5..1.15).contains(&hit), "{hit} pages for a hit");
    assert!(miss < 0.5, "{miss} pages for a miss, with filters");
}

/// Items of a dropped segment leave the count at once; overwritten and deleted items leave it when a flush finds them.
#[test]
fn items_are_counted_as_they_are_found() {
    const ITEMS: u64 = 60_000;
    simulate(1, async {
        let engine = start(&memory_disk(48 << 20), &sliced(settings())).await;
        fill(&engine, ITEMS, 1900).await;
        // Reclaim continues during a dump.
        let (stats, found) = loop {
            let before = engine.stats().placement;
            let found = dump(&engine).await.len() as u64;
            let stats = engine.stats().placement;
            if before.segments_dropped == stats.segments_dropped {
                break (stats, found);
            }
        };
        assert!(stats.segments_dropped > 100, "{stats:?}");
        assert_eq!(stats.items_evicted + stats.objects, ITEMS, "{stats:?}");
        assert_eq!(found, stats.objects);
        for number in ITEMS - 4000..ITEMS {
            remove(&engine, number).await;
        }
        // Writes enough to flush the tables.
        fill(&engine, 8000, 10).await;
        let objects = engine.stats().placement.objects;
        let found = dump(&engine).await.len() as u64;
        assert!(
            objects.abs_diff(found) < 1000,
            "{objects} counted, {found} found"
        );
    });
}

/// While the index cannot be written, it refuses items that it has no place for, and no older value is returned for them. When it
/// can be written again, stores succeed.
#[test]
fn an_index_that_cannot_be_written_costs_items_until_it_can() {
    const ITEMS: u64 = 30_000;
    simulate(3, async {
        let media = memory_disk(64 << 20);
        let index = Arc::new(FaultyDisk::in_memory(40 << 20, 3));
        let engine = open_with_index(&media, &index).await;
        fill(&engine, 2000, 500).await;
        index.set_full(true);
        let mut number = 2000;
        let store = async |number| set(&engine, &numbered(number), &value(number, 500)).await;
        while store(number).await.is_ok() {
            number += 1;
        }
        assert!((4000..ITEMS).contains(&number), "{number}");
        assert!(engine.stats().placement.index_full > 0);
        index.set_full(false);
        // Failed flushes are repeated after some seconds.
        runtime::sleep(Duration::from_secs(6)).await;
        for number in number..ITEMS {
            store(number).await.unwrap();
        }
        let mut found = 0;
        for number in 0..ITEMS {
            if let Some(bytes) = get(&engine, &numbered(number)).await {
                assert_eq!(bytes, value(number, 500));
                found += 1;
            }
        }
        // All except the refused ones.
        let refused = engine.stats().placement.index_full;
        assert!(found + refused >= ITEMS, "{found} found, {refused} refused");
    });
}

/// Values have places in tables only while their writers wait.
#[test]
fn who_stores_waits_for_an_index_that_is_slow() {
    const ITEMS: u64 = 40_000;
    simulate(4, async {
        let media = memory_disk(64 << 20);
        let engine = open_with_index(&media, &slow_index(4)).await;
        fill(&engine, ITEMS, 500).await;
        let stats = engine.stats();
        let index = engine.index_stats();
        assert!(index.get("index_tables_flushed") > 50, "{index:?}");
        assert_eq!(stats.placement.index_full, 0);
        assert_eq!(dump(&engine).await.len() as u64, ITEMS);
    });
}

/// A start puts the outdated keys that it learns of into the tables, and flushes the tables when they are full. It needs no
/// other memory.
#[test]
fn a_start_that_is_told_of_many_outdated_keys_takes_no_more_memory_for_them() {
    const ITEMS: u64 = 30_000;
    simulate(8, async {
        let (disk, media) = Left::new(Image::new(64 << 20)).media();
        let config = sliced(SlicedSettings {
            checkpoint_segments: u32::MAX,
            ..settings()
        });
        let engine = start(&media, &config).await;
        fill(&engine, ITEMS, 500).await;
        assert!(engine.checkpoint_now().await);
        let before = engine.stats().memory.index_bytes;
        for number in (0..ITEMS).filter(|number| number % 10 != 0) {
            remove(&engine, number).await;
        }
        // The state after a kill; the rest of the old engine runs on beside it.
        let media = Left::of(&disk, &media).media().1;
        let engine = media.open(&config).await.unwrap();
        let stats = engine.stats();
        let index = engine.index_stats();
        assert!(index.get("index_tables_flushed") > 10, "{index:?}");
        let has = stats.memory.index_bytes;
        assert!(
            has < before + before / 4,
            "{has} bytes, and {before} before"
        );
        run_background(&engine);
        engine.recovered().await;
        for number in 0..ITEMS {
            let found = get(&engine, &numbered(number)).await.is_some();
            assert_eq!(found, number % 10 == 0, "{number}");
        }
    });
}

/// An error of the index's device that lasts for seconds delays a start by these seconds, without other harm.
#[test]
fn a_start_waits_for_an_index_device_that_fails_for_seconds() {
    const ITEMS: u64 = 10_000;
    for operation in [Operation::Read, Operation::Write] {
        simulate(9, async {
            let media = memory_disk(64 << 20);
            let index = Arc::new(FaultyDisk::in_memory(40 << 20, 9));
            let engine = open_with_index(&media, &index).await;
            fill(&engine, ITEMS, 500).await;
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            drop(engine);
            // Excludes the head of the device, which the start itself reads and writes.
            let of_index = When::every(operation).within((1 << 20)..(40 << 20));
            index.script(of_index, Fault::Error);
            let healed = Arc::clone(&index);
            runtime::spawn(async move {
                runtime::sleep(Duration::from_secs(5)).await;
                healed.heal();
            });
            let engine = open_with_index(&media, &index).await;
            for number in 0..ITEMS {
                let found = get(&engine, &numbered(number)).await;
                assert_eq!(found, Some(value(number, 500)), "{number}");
            }
        });
    }
}

/// The tables of an image keep the settings it was made with. The index of an empty image gets as many items as the region
/// holds.
#[test]
fn an_image_is_opened_with_any_number_of_incarnations() {
    const ITEMS: u64 = 4000;
    let with = |incarnations| {
        sliced(SlicedSettings {
            incarnations,
            table_bytes: None,
            ..settings()
        })
    };
    // Some settings need a larger region than the image has.
    let others = [64, 9, 8, 4, 3, 1].map(|then| (31, then));
    for (made_with, then) in others.into_iter().chain([(32, 4), (5, 2)]) {
        simulate(10, async {
            let media = memory_disk(64 << 20);
            let engine = start(&media, &with(made_with)).await;
            fill(&engine, ITEMS, 500).await;
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            drop(engine);
            let engine = start(&media, &with(then)).await;
            for number in 0..ITEMS {
                let found = get(&engine, &numbered(number)).await;
                assert!(found.is_some(), "{made_with}, then {then}: {number}");
            }
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            drop(engine);
            // Without its journal the image counts as empty.
            let engine = start(&Media::new(media.disk), &with(then)).await;
            for number in 0..ITEMS {
                let bytes = value(number, 500);
                set(&engine, &numbered(number), &bytes).await.unwrap();
                let found = get(&engine, &numbered(number)).await;
                assert!(found.is_some(), "{made_with}, then {then}, empty: {number}");
            }
        });
    }
}

/// Returns a device for an index whose writes take 10 ms.
fn slow_index(seed: u64) -> Arc<FaultyDisk> {
    let latency = Latency {
        write: Duration::from_millis(10),
        ..Latency::default()
    };
    Arc::new(FaultyDisk::from_image(Image::new(40 << 20), latency, seed))
}

async fn open_with_index(media: &Media, index: &Arc<FaultyDisk>) -> Arc<Engine> {
    let opening = Opening::new(Arc::clone(&media.disk), sliced(settings()));
    let opening = opening.with_index_disk(Arc::clone(index) as _);
    let journal = Arc::clone(&media.journal);
    let engine = opening.open(move || Ok(journal)).await.unwrap();
    run_background(&engine);
    engine.recovered().await;
    engine
}

/// An item that is overwritten or deleted during the flush of its entry leaves the count once.
#[test]
fn what_changes_during_a_flush_is_counted_out_once() {
    const KEYS: u64 = 3000;
    simulate(5, async {
        let media = memory_disk(64 << 20);
        let engine = open_with_index(&media, &slow_index(5)).await;
        let mut random = random(5);
        for tag in 0..60_000 {
            let number = random.random_range(0..KEYS);
            let bytes = value(tag, 200);
            set(&engine, &numbered(number), &bytes).await.unwrap();
        }
        let found = dump(&engine).await.len() as u64;
        let counted = engine.stats().placement.objects;
        assert!(counted >= found, "{counted} counted, {found} found");
    });
}

/// An image keeps tables for as many items as memory had space for when it was made.
#[test]
fn an_image_that_is_opened_with_less_for_its_index_stores_on() {
    const ITEMS: u64 = 4000;
    simulate(6, async {
        let media = memory_disk(64 << 20);
        let with = |index_percent| {
            let mut config = sliced(SlicedSettings {
                incarnations: 1,
                ..SlicedSettings::default()
            });
            config.index.percent = index_percent;
            config
        };
        let engine = start(&media, &with(40)).await;
        fill(&engine, ITEMS, 500).await;
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        let engine = start(&media, &with(10)).await;
        for number in ITEMS..4 * ITEMS {
            let bytes = value(number, 500);
            set(&engine, &numbered(number), &bytes).await.unwrap();
        }
        for number in 0..4 * ITEMS {
            assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
        }
    });
}

/// Failed superblock writes leave checkpoints that may or may not be in force. Once the superblock can be written, they
/// are not, and their areas are free again.
#[test]
fn checkpoints_go_on_after_superblocks_that_could_not_be_written() {
    simulate(7, async {
        let mut media = memory_disk(64 << 20);
        let disk = Arc::new(FaultyDisk::in_memory(64 << 20, 7));
        media.disk = Arc::clone(&disk) as Arc<dyn Disk>;
        let engine = start(&media, &sliced(settings())).await;
        fill(&engine, 1000, 500).await;
        assert!(engine.checkpoint_now().await);
        for nth in 0..4 {
            // The first superblock write withdraws the earlier checkpoint, the second one names the new checkpoint.
            let when = When::next(Operation::Write).within(0..META_BYTES);
            disk.script(when.after(nth.min(1)), Fault::Error);
            assert!(!engine.checkpoint_now().await, "{nth}");
            disk.heal();
        }
        assert!(engine.checkpoint_now().await);
    });
}

/// Issue: "`sliced` on a device of 5 MB/s lets reads wait 0.9 s".
#[test]
fn reads_do_not_wait_for_writes_of_the_index() {
    const KEYS: u64 = 12_000;
    simulate(1, async {
        let disk = Arc::new(FaultyDisk::in_memory(64 << 20, 1));
        let engine = start(&Media::new(disk.clone()), &sliced(settings())).await;
        fill(&engine, KEYS, 1000).await;
        let flushed = |engine: &Engine| engine.index_stats().get("index_tables_flushed");
        let before = flushed(&engine);
        let slow = Fault::Slow(Duration::from_secs(1));
        disk.script(When::every(Operation::Write), slow);
        let writer = Arc::clone(&engine);
        let writes = runtime::spawn(async move {
            for number in 0..KEYS {
                let _ = set(&writer, &numbered(number), &value(number + 1, 1000)).await;
            }
        });
        let mut random = random(1);
        let mut found = 0;
        while flushed(&engine) < before + 3 {
            let begin = runtime::now();
            let number = random.random_range(0..KEYS);
            found += u64::from(get(&engine, &numbered(number)).await.is_some());
            let took = runtime::now().since(begin);
            assert!(took < Duration::from_millis(10), "{number}: {took:?}");
            runtime::sleep(Duration::from_millis(7)).await;
        }
        assert!(found > 100, "{found}");
        disk.heal();
        drop(writes);
    });
}

/// Issue: "a device that refuses or delays writes: every preset answers within `write_patience`". Also one that delays reads.
#[test]
fn no_request_waits_longer_than_the_patience() {
    simulate(1, async {
        let disk = Arc::new(FaultyDisk::in_memory(64 << 20, 1));
        let engine = start(&Media::new(disk.clone()), &sliced(settings())).await;
        fill(&engine, 12_000, 1000).await;
        let patience = engine.config().write_patience;
        let hours = || Fault::Slow(Duration::from_secs(36_000));
        disk.script(When::every(Operation::Write), hours());
        let mut longest = Duration::ZERO;
        for number in 0..12_000 {
            let begin = runtime::now();
            let stored = set(&engine, &numbered(number), &value(number + 1, 1000)).await;
            longest = longest.max(runtime::now().since(begin));
            if stored.is_err() {
                break;
            }
        }
        let most = patience + Duration::from_secs(2);
        assert!(longest >= patience && longest < most, "{longest:?}");
        for number in 0..5 {
            let begin = runtime::now();
            let name = numbered(number);
            let key = engine.key(&name).unwrap();
            let _ = engine.remove(key, runtime::unix_seconds()).await;
            assert!(runtime::now().since(begin) < most);
            let begin = runtime::now();
            let _ = get(&engine, &name).await;
            assert!(runtime::now().since(begin) < Duration::from_secs(1));
        }
        disk.heal();
        disk.script(When::every(Operation::Read), hours());
        let begin = runtime::now();
        for number in 0..2000 {
            let _ = get(&engine, &numbered(number)).await;
        }
        let waited = runtime::now().since(begin);
        assert!(waited >= patience && waited < 3 * patience, "{waited:?}");
        disk.heal();
    });
}
