//! Expired and flushed items do not count, and their memory is freed; evictions of live items are counted.

use std::sync::Arc;
use std::time::Duration;

use device::{Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{
    Amend, Change, Engine, EngineConfig, Peek, Put, ReclaimPolicy, Start, Stop, Victim,
};
use rand::Rng;
use rand::seq::SliceRandom;
use runtime::sim::Sim;

use crate::support::{
    Left, Media, SEGMENT_BYTES, fill, for_each_seed, get, get_item, memory_disk, numbered, random,
    roomy, run_background, set, simulate, slotted, start, tight, value,
};

/// Bytes of memory for which the crawler takes up to one second.
const CRAWLED_A_SECOND: u64 = 256 << 20;

async fn set_until(engine: &Arc<Engine>, number: u64, len: usize, expiry: u32) {
    let put = Put {
        value: value(number, len).into(),
        expiry,
        ..Put::default()
    };
    let key = numbered(number);
    let now = runtime::unix_seconds();
    engine
        .set(engine.key(&key).unwrap(), now, &put)
        .await
        .unwrap();
}

#[test]
fn expired_items_give_their_memory_back_within_seconds() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &roomy()).await;
        let empty = engine.stats();
        let expiry = runtime::unix_seconds() + 10;
        for number in 0..8000 {
            set_until(&engine, number, 500, expiry).await;
        }
        let full = engine.stats();
        assert_eq!((full.items, full.dram_items), (8000, 8000));
        assert!(full.item_bytes > 8000 * 500, "{full:#?}");
        assert_eq!(full.tier.crawls, 0, "nothing can have expired");
        let seconds = 12 + full.dram_bytes / CRAWLED_A_SECOND;
        runtime::sleep(Duration::from_secs(seconds)).await;
        let after = engine.stats();
        assert_eq!((after.items, after.dram_items), (0, 0), "{after:#?}");
        assert_eq!(after.item_bytes, 0);
        assert_eq!(after.tier.crawler_reclaimed, 8000);
        assert_eq!(after.tier.expired_unfetched, 8000);
        let given_back = full.dram_bytes - after.dram_bytes;
        let taken = full.dram_bytes - empty.dram_bytes;
        assert!(given_back > taken * 3 / 4, "{given_back} of {taken} bytes");
        // Nothing was written to flash for that, and the cache works.
        let appended = &engine.store().counters().items_appended;
        assert_eq!(appended.load(std::sync::atomic::Ordering::Relaxed), 0);
        set(&engine, b"next", b"value").await.unwrap();
        assert_eq!(get(&engine, b"next").await.unwrap(), b"value");
    });
}

#[test]
fn an_item_that_is_given_an_expiry_later_is_found_too() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &roomy()).await;
        fill(&engine, 1, 500).await;
        let (key, now) = (numbered(0), runtime::unix_seconds());
        let amend = Amend {
            expiry: Some(now + 5),
            ..Amend::default()
        };
        let touched = engine.modify(engine.key(&key).unwrap(), now, |item| {
            (Change::Amend(amend), item.is_some())
        });
        assert!(touched.await.unwrap().result);
        runtime::sleep(Duration::from_secs(8)).await;
        assert_eq!(engine.stats().tier.crawler_reclaimed, 1);
    });
}

#[test]
fn what_does_not_expire_is_never_crawled() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &roomy()).await;
        fill(&engine, 8000, 500).await;
        set_until(&engine, 9000, 500, runtime::unix_seconds() + 10_000).await;
        runtime::sleep(Duration::from_secs(60)).await;
        let stats = engine.stats();
        assert_eq!(
            (stats.tier.crawls, stats.tier.crawler_items_checked),
            (0, 0)
        );
    });
}

#[test]
fn after_a_flush_nothing_is_counted_and_memory_is_given_back() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &tight()).await;
        fill(&engine, 10_000, 2000).await;
        let full = engine.stats();
        assert!(full.items.abs_diff(10_000) <= full.placement.items_evicted);
        assert!(full.placement.objects > 5000, "{full:#?}");
        engine.flush_all(runtime::unix_seconds()).await;
        let flushed = engine.stats();
        assert_eq!((flushed.items, flushed.item_bytes), (0, 0), "{flushed:#?}");
        fill(&engine, 300, 2000).await;
        assert_eq!(engine.stats().items, 300);
        runtime::sleep(Duration::from_secs(3)).await;
        let after = engine.stats();
        assert_eq!((after.items, after.dram_items), (300, 300), "{after:#?}");
        assert!(after.dram_bytes < full.dram_bytes, "{after:#?}");
        assert_eq!(get(&engine, &numbered(299)).await, Some(value(299, 2000)));
        assert_eq!(get(&engine, &numbered(300)).await, None);
    });
}

#[test]
fn a_flush_with_a_delay_counts_once_it_has_come() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &tight()).await;
        fill(&engine, 6000, 2000).await;
        engine.flush_all(runtime::unix_seconds() + 30).await;
        runtime::sleep(Duration::from_secs(20)).await;
        assert_eq!(engine.stats().items, 6000);
        // No item is read.
        runtime::sleep(Duration::from_secs(13)).await;
        assert_eq!(engine.stats().items, 0);
        assert_eq!(engine.stats().dram_items, 0);
    });
}

/// Returns how many of the keys below `count` are found.
async fn found(engine: &Arc<Engine>, count: u64) -> u64 {
    let mut found = 0;
    for number in 0..count {
        let item = get_item(engine, &numbered(number), Peek::Yes).await;
        found += u64::from(item.is_some());
    }
    found
}

/// Returns the number of live items that have left the cache.
fn evicted(engine: &Engine) -> u64 {
    let stats = engine.stats();
    let placement = stats.placement;
    placement.items_evicted + placement.index_full + placement.items_lost + stats.tier.rejections
}

fn returning() -> EngineConfig {
    let mut config = tight();
    config.reclaim.policy = ReclaimPolicy::ReturnRecent {
        victim: Victim::Oldest,
    };
    config
}

#[test]
fn every_item_is_there_or_was_counted_as_evicted() {
    for_each_seed("every_item_is_there", 6, |seed| {
        let config = match seed % 3 {
            0 => slotted(seed),
            1 => tight(),
            _ => returning(),
        };
        simulate(seed, async {
            let engine = start(&memory_disk(33 << 20), &config).await;
            let mut random = random(seed);
            let count = 24_000;
            for number in 0..count {
                set(&engine, &numbered(number), &value(number, 1500))
                    .await
                    .unwrap();
                let earlier = number.saturating_sub(random.random_range(0..9000));
                get(&engine, &numbered(earlier)).await;
            }
            let gone = evicted(&engine);
            let there = found(&engine, count).await;
            assert!(gone > 2000, "{gone}");
            let stats = engine.stats();
            // A copy on flash that is dropped while memory has the item is counted, and the item is counted again later.
            let twice = stats.dram_items;
            let total = there + gone;
            assert!(
                (count..=count + twice).contains(&total),
                "{there} there, {gone} counted of {count}; {stats:#?}"
            );
            assert!(
                stats.items <= there && stats.items + twice >= there,
                "{there}; {stats:#?}"
            );
            let bytes = stats.item_bytes / stats.items.max(1);
            assert!((1500..2400).contains(&bytes), "{bytes} bytes an item");
        });
    });
}

#[test]
fn items_dropped_before_a_recovery_came_to_them_were_counted() {
    simulate(3, async {
        let disk = memory_disk(33 << 20);
        let engine = start(&disk, &tight()).await;
        fill(&engine, 9000, 2000).await;
        engine.stop().await;
        drop(engine);
        let engine = disk.open(&tight()).await.unwrap();
        run_background(&engine);
        for number in 9000..24_000 {
            set(&engine, &numbered(number), &value(number, 2000))
                .await
                .unwrap();
        }
        engine.recovered().await;
        let gone = evicted(&engine);
        let there = found(&engine, 24_000).await;
        assert_eq!(there + gone, 24_000, "{there} there, {gone} counted");
    });
}

#[test]
fn what_expires_while_it_waits_for_reclaim_is_neither_copied_nor_returned() {
    simulate(1, async {
        for config in [tight(), returning()] {
            let engine = start(&memory_disk(33 << 20), &config).await;
            let expiry = runtime::unix_seconds() + 10;
            for number in 0..6000 {
                set_until(&engine, number, 2000, expiry).await;
            }
            for number in 0..6000 {
                get(&engine, &numbered(number)).await;
            }
            runtime::sleep(Duration::from_secs(15)).await;
            let before = engine.stats();
            assert_eq!(before.dram_items, 0, "{before:#?}");
            let count =
                u64::from(engine.store().table().segments()) * u64::from(SEGMENT_BYTES) / 2000;
            for number in 10_000..10_000 + count {
                set(&engine, &numbered(number), &value(number, 2000))
                    .await
                    .unwrap();
            }
            let stats = engine.stats().placement;
            assert!(stats.items_expired > 1000, "{stats:#?}");
            assert_eq!((stats.items_copied, stats.items_returned), (0, 0));
        }
    });
}

#[test]
fn what_an_expired_item_has_superseded_stays_gone_though_power_cuts_lose_the_records() {
    for_each_seed("what_an_expired_item_has_superseded", 30, |seed| {
        let config = EngineConfig {
            sync_interval: Duration::from_secs(3600),
            ..tight()
        };
        let key = numbered(1 << 20);
        let (disk, media) = Left::new(Image::new(65 << 20)).media();
        let expiry = simulate(seed, async {
            let engine = start(&media, &config).await;
            let expiry = runtime::unix_seconds() + 60;
            set(&engine, &key, b"superseded").await.unwrap();
            // The superseding item leaves memory, and the journal is not synced.
            fill(&engine, 8000, 2000).await;
            set_until(&engine, 1 << 20, 10, expiry).await;
            fill(&engine, 8000, 2000).await;
            expiry
        });
        let cut = |disk: &MemoryDisk, media: &Media| Left {
            image: disk.snapshot(),
            words: media.journal.power_cut(seed),
        };
        // The second power cut, at any moment of the recovery.
        let left = cut(&disk, &media);
        let latency = Latency {
            read: Duration::from_micros(100),
            ..Latency::default()
        };
        let disk = Arc::new(MemoryDisk::from_image(left.image, latency));
        let media = Media::with_words(disk.clone(), left.words);
        simulate(seed, async {
            let engine = media.open(&config).await.unwrap();
            run_background(&engine);
            runtime::sleep(Duration::from_micros(seed * 50)).await;
        });
        let (_, media) = cut(&disk, &media).media();
        let sim = Sim::new(seed);
        sim.shift_wall_clock(120);
        sim.block_on(async {
            let engine = start(&media, &config).await;
            assert!(runtime::unix_seconds() >= expiry);
            assert_eq!(get(&engine, &key).await, None);
        });
    });
}

#[test]
fn what_takes_the_place_of_an_expired_item_during_a_recovery_stays() {
    const SEGMENTS: u64 = 32;
    const SMALL_SEGMENT_BYTES: u32 = 64 << 10;
    // One item fits a segment: no segment has a second place.
    const LEN: usize = 50_000;
    const KEYS: u64 = 22;
    let mut config = tight();
    config.segment_bytes = Some(SMALL_SEGMENT_BYTES);
    config.max_value_bytes = LEN as u32;
    config.writing.buffers = 4;
    config.reclaim.policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    for_each_seed("what_takes_the_place_of_an_expired_item", 20, |seed| {
        let new = Image::new(META_BYTES + SEGMENTS * u64::from(SMALL_SEGMENT_BYTES));
        let (disk, media) = Left::new(new).media();
        simulate(seed, async {
            let engine = start(&media, &config).await;
            let expiry = runtime::unix_seconds() + 60;
            for key in 0..KEYS {
                set_until(&engine, key, LEN, expiry).await;
            }
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        });
        let latency = Latency {
            read: Duration::from_micros(100),
            ..Latency::default()
        };
        let disk = Arc::new(FaultyDisk::from_image(disk.snapshot(), latency, seed));
        let media = Media::with_words(disk.clone(), media.journal.crash());
        let sim = Sim::new(seed);
        sim.shift_wall_clock(120);
        sim.block_on(async {
            let engine = media.open(&config).await.unwrap();
            // All segments but one are soon read and reclaimed.
            disk.script(
                When::next(Operation::Read),
                Fault::Slow(Duration::from_secs(60)),
            );
            run_background(&engine);
            let limit = engine.stats().dram_limit_bytes;
            engine.loans().lend(limit);
            runtime::sleep(Duration::from_secs(1)).await;
            let mut random = random(seed);
            let mut order: Vec<u64> = (0..KEYS).collect();
            order.shuffle(&mut random);
            for key in order {
                set(&engine, &numbered(key), &value(key, LEN))
                    .await
                    .unwrap();
            }
            let recovery = engine.recovery();
            assert!(recovery.segments_done < recovery.segments, "{recovery:?}");
            engine.recovered().await;
            for key in 0..KEYS {
                let found = get(&engine, &numbered(key)).await;
                assert!(found == Some(value(key, LEN)), "key {key} is not there");
            }
        });
    });
}

#[test]
fn what_write_back_has_superseded_stays_gone_when_a_power_cut_follows() {
    for_each_seed("what_write_back_has_superseded", 10, |seed| {
        let config = EngineConfig {
            sync_interval: Duration::from_secs(3600),
            write_back: Some(Duration::from_secs(5)),
            ..roomy()
        };
        let key = numbered(1);
        let (disk, media) = Left::new(Image::new(65 << 20)).media();
        simulate(seed, async {
            let engine = start(&media, &config).await;
            set(&engine, &key, b"superseded").await.unwrap();
            runtime::sleep(Duration::from_secs(20)).await;
            set_until(&engine, 1, 10, runtime::unix_seconds() + 60).await;
            runtime::sleep(Duration::from_secs(20)).await;
            assert_eq!(engine.flash_stats().objects, 1, "it is on flash");
        });
        let left = Left {
            image: disk.snapshot(),
            words: media.journal.power_cut(seed),
        };
        let sim = Sim::new(seed);
        sim.shift_wall_clock(120);
        sim.block_on(async {
            let engine = start(&left.media().1, &config).await;
            assert!(matches!(engine.start(), Start::Warm { .. }));
            assert_eq!(get(&engine, &key).await, None);
        });
    });
}
