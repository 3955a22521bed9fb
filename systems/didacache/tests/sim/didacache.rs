//! The cache drives the flash: victims by reads, copying that pauses, wear leveling, and blocks that fail while they
//! are written.

use std::sync::Arc;
use std::time::Duration;

use device::{Geometry, MemoryDisk, MemoryJournal};
use emulated::{Endurance, Libssd, Nand, NandConfig, NandTiming, SegmentShape};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{
    Engine, EngineConfig, Medium, NamedCounts as _, Opening, ReclaimPolicy, Stop, Victim,
};
use rand::Rng;

use crate::support::{
    JOURNAL_WORDS, SEGMENT_BYTES, didacache, for_each_seed, get, numbered, random, run_background,
    set, simulate, value,
};

const PAGE_BYTES: u32 = 16 << 10;
const CHANNELS: u32 = 4;
/// 128 blocks of 256 KiB: 32 MiB.
const BLOCKS_PER_LUN: u32 = 16;
/// Bytes of each value.
const VALUE_BYTES: usize = 2300;
/// Number of items that fit a segment, approximately.
const ITEMS: u64 = 102;

const NEVER_FAILS: Endurance = Endurance {
    cycles: 100_000,
    factory_bad: 0.0,
    grown_bad: 0.0,
};

const GEOMETRY: Geometry = Geometry {
    channels: CHANNELS,
    luns_per_channel: 2,
    blocks_per_lun: BLOCKS_PER_LUN,
    pages_per_block: SEGMENT_BYTES / PAGE_BYTES,
    page_bytes: PAGE_BYTES,
};

async fn start(endurance: Endurance, seed: u64, config: &EngineConfig) -> (Arc<Engine>, Arc<Nand>) {
    start_on(GEOMETRY, 220_000, endurance, seed, config).await
}

async fn start_on(
    geometry: Geometry,
    erase_ns: u64,
    endurance: Endurance,
    seed: u64,
    config: &EngineConfig,
) -> (Arc<Engine>, Arc<Nand>) {
    let nand = Nand::new(NandConfig {
        geometry,
        planes: 2,
        timing: NandTiming {
            read_ns: vec![318_000],
            program_ns: vec![643_000],
            erase_ns,
            transfer_ns: 52_000,
        },
        endurance,
        seed,
    });
    let nand = Arc::new(nand.unwrap());
    let medium = Medium::Flash {
        flash: Arc::new(Libssd::new(Arc::clone(&nand), SegmentShape::Block).unwrap()),
        meta: Arc::new(MemoryDisk::new(META_BYTES)),
    };
    let journal = Arc::new(MemoryJournal::from_words(vec![0; JOURNAL_WORDS]));
    let engine = Opening::new(medium, config.clone())
        .open(move || Ok(journal))
        .await;
    let engine = engine.unwrap();
    run_background(&engine);
    (engine, nand)
}

async fn put(engine: &Arc<Engine>, number: u64, tag: u64) {
    let (name, value) = (numbered(number), value(tag, VALUE_BYTES));
    let set = set(engine, &name, &value);
    let set = runtime::timeout(Duration::from_secs(60), set).await;
    set.expect("a write waits for ever").unwrap();
}

async fn survivors(engine: &Arc<Engine>, numbers: std::ops::Range<u64>) -> u64 {
    let mut found = 0;
    for number in numbers {
        found += u64::from(get(engine, &numbered(number)).await.is_some());
    }
    found
}

#[test]
fn what_is_not_read_is_dropped_first() {
    simulate(1, async {
        let mut config = didacache();
        config.reclaim.policy = config.reclaim.policy.with_max_copy(0);
        config.reclaim.wear_leveling = None;
        let (engine, _) = start(NEVER_FAILS, 1, &config).await;
        // A fifth of the flash is read throughout, the rest never.
        let read = 25 * ITEMS;
        for number in 0..40 * ITEMS {
            put(&engine, number, number).await;
        }
        for number in 40 * ITEMS..400 * ITEMS {
            put(&engine, number, number).await;
            if number % 4 == 0 {
                get(&engine, &numbered(number * 7 % read)).await;
            }
        }
        let stats = engine.stats().placement;
        let kept = survivors(&engine, 0..read).await;
        assert!(kept > read * 9 / 10, "{kept} of {read}; {stats:?}");
        assert_eq!(survivors(&engine, 30 * ITEMS..40 * ITEMS).await, 0);
        assert_eq!(
            (stats.items_copied, stats.segments_reclaimed),
            (0, stats.segments_dropped)
        );
    });
}

#[test]
fn copying_stops_when_it_gains_nothing_and_begins_again_when_it_does() {
    simulate(1, async {
        let mut config = didacache();
        config.reclaim.policy = config.reclaim.policy.with_max_copy(12);
        let (engine, nand) = start(NEVER_FAILS, 1, &config).await;
        let fits = 114 * ITEMS;
        for number in 0..fits {
            put(&engine, number, number).await;
        }
        runtime::sleep(Duration::from_secs(5)).await;
        let before = (engine.stats().placement.segments_reclaimed, nand.counts());
        let marks = engine.stats().placement;
        assert!(
            engine.store().pool().counts().free < marks.high_watermark,
            "{marks:?}"
        );
        runtime::sleep(Duration::from_secs(60)).await;
        let after = (engine.stats().placement.segments_reclaimed, nand.counts());
        assert_eq!(before, after, "nothing is gained, and work goes on");
        assert_eq!(survivors(&engine, 0..fits).await, fits);
        // Half of each segment dies: copying the other half gains. The writes are slow, so that there is no pressure.
        for number in (0..fits).step_by(2) {
            put(&engine, number, number + 1).await;
            runtime::sleep(Duration::from_millis(1)).await;
        }
        runtime::sleep(Duration::from_secs(5)).await;
        let stats = engine.stats().placement;
        assert!(stats.items_copied > ITEMS, "{stats:?}");
        assert_eq!(stats.items_evicted, 0, "{stats:?}");
        assert_eq!(survivors(&engine, 0..fits).await, fits);
    });
}

/// State of cold items that lie beside overwritten ones.
struct Worn {
    /// Difference between the most and the fewest erases of a block.
    spread: u64,
    /// Number of cold items left in the end.
    kept: u64,
    /// Number of reads of cold items that were hits.
    hits: u64,
}

const COLD: u64 = 60 * ITEMS;

/// Keeps reading the first `read` cold items.
fn wear(wear_leveling: Option<u32>, read: u64) -> Worn {
    simulate(1, async {
        let mut config = didacache();
        config.reclaim.wear_leveling = wear_leveling;
        let (engine, nand) = start(NEVER_FAILS, 1, &config).await;
        for number in 0..COLD {
            put(&engine, number, number).await;
        }
        let hot = 20 * ITEMS;
        let mut hits = 0;
        for turn in 0..2000 * ITEMS {
            put(&engine, 100_000 + turn % hot, turn).await;
            if read > 0 {
                let found = get(&engine, &numbered(turn * 7 % read)).await;
                hits += u64::from(found.is_some());
            }
        }
        let stats = engine.stats().placement;
        assert_eq!(
            wear_leveling.is_some(),
            stats.segments_leveled > 0,
            "{stats:?}"
        );
        let wear = engine.store().pool().wear();
        assert_eq!(wear.most, nand_most(&nand), "what the device counts");
        let kept = survivors(&engine, 0..COLD).await;
        let spread = wear.most - wear.least;
        Worn { spread, kept, hits }
    })
}

fn nand_most(nand: &Nand) -> u64 {
    let blocks = (0..nand.config().geometry.blocks()).map(device::BlockId);
    blocks
        .map(|block| u64::from(nand.erases(block)))
        .max()
        .unwrap()
}

#[test]
fn leveling_keeps_the_erases_of_blocks_close_and_costs_no_item_and_no_hit() {
    for read in [0, 40 * ITEMS] {
        let without = wear(None, read);
        let with = wear(Some(2), read);
        assert!(
            10 * with.spread <= 6 * without.spread,
            "{} with, {} without leveling, {read} read",
            with.spread,
            without.spread
        );
        assert!(
            100 * with.kept >= 99 * without.kept,
            "{} with, {} without leveling are kept, {read} read",
            with.kept,
            without.kept
        );
        assert!(
            100 * with.hits >= 99 * without.hits,
            "{} hits with, {} without leveling",
            with.hits,
            without.hits
        );
    }
}

/// Overwrites a cache that fills three quarters of its flash, slowly enough that there is no pressure.
#[test]
fn far_from_the_low_watermark_only_nearly_empty_segments_are_copied() {
    simulate(1, async {
        let mut config = didacache();
        config.reclaim.policy = config.reclaim.policy.with_max_copy(12);
        config.reclaim.wear_leveling = None;
        let (engine, _) = start(NEVER_FAILS, 1, &config).await;
        let keys = 92 * ITEMS;
        for number in 0..keys {
            put(&engine, number, number).await;
        }
        let mut random = random(1);
        let before = engine.stats().placement;
        let sets = 600 * ITEMS;
        for turn in 0..sets {
            put(&engine, random.random_range(0..keys), turn).await;
            runtime::sleep(Duration::from_millis(1)).await;
        }
        let after = engine.stats().placement.since(&before);
        assert_eq!(after.items_evicted, 0, "{after:?}");
        let copies = after.items_copied;
        assert!(
            copies > 0 && 2 * copies < 3 * sets,
            "{copies} copied for {sets} set"
        );
    });
}

/// All writers are busy, and only segments written just now can be reclaimed.
#[test]
fn a_first_fill_at_full_speed_drops_nothing() {
    simulate(1, async {
        let geometry = Geometry {
            channels: 12,
            luns_per_channel: 16,
            blocks_per_lun: 2,
            ..GEOMETRY
        };
        let mut config = didacache();
        config.writing.buffers = 40;
        config.writing.writers = 30;
        // Time of an erase that waits for another block of its LUN: writes are faster than the reclaimers' erases.
        let (engine, _) = start_on(geometry, 50_000_000, NEVER_FAILS, 1, &config).await;
        let count = u64::from(engine.store().table().segments()) * ITEMS * 83 / 100;
        let clients = (0..32).map(|client| {
            let engine = Arc::clone(&engine);
            runtime::spawn(async move {
                for number in (client..count).step_by(32) {
                    put(&engine, number, number).await;
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        for client in clients {
            client.await.expect("no panic");
        }
        runtime::sleep(Duration::from_secs(1)).await;
        let kept = survivors(&engine, 0..count).await;
        let stats = engine.stats().placement;
        assert!(100 * kept >= 99 * count, "{kept} of {count}; {stats:?}");
    });
}

/// The watermark falls while idle, although no segment is opened.
#[test]
fn the_watermark_of_a_queue_falls_when_nobody_writes() {
    simulate(1, async {
        let mut config = didacache();
        config.reclaim.reclaimers = 1;
        let (engine, _) = start_on(GEOMETRY, 7_000_000, NEVER_FAILS, 1, &config).await;
        for number in 0..400 * ITEMS {
            put(&engine, number, number).await;
        }
        let busy = engine.stats().placement.low_watermark;
        runtime::sleep(Duration::from_secs(20)).await;
        let idle = engine.stats().placement.low_watermark;
        assert!(busy > 2 * CHANNELS, "{busy}");
        assert_eq!(idle, CHANNELS, "one a channel");
    });
}

/// Returns an engine that only copies, like `didacache-space`.
fn copies_only(max_copy_sixteenths: u32) -> EngineConfig {
    let mut config = didacache();
    config.reclaim.policy = ReclaimPolicy::CopyValid {
        victim: Victim::FewestValid,
        max_copy_sixteenths,
    };
    config.reclaim.wear_leveling = None;
    config
}

#[test]
fn what_copies_only_keeps_every_item_that_it_has_space_for() {
    for (sixteenths, reclaimers) in [(15, 1), (15, 4), (16, 1), (16, 4)] {
        simulate(1, async {
            let mut config = copies_only(sixteenths);
            config.reclaim.reclaimers = reclaimers;
            let (engine, _) = start(NEVER_FAILS, 1, &config).await;
            let keys = 106 * ITEMS;
            for number in 0..keys {
                put(&engine, number, number).await;
            }
            let mut random = random(1);
            for turn in 0..300 * ITEMS {
                put(&engine, random.random_range(0..keys), turn).await;
            }
            let stats = engine.stats().placement;
            assert!(stats.items_copied > 0, "{stats:?}");
            assert_eq!(
                stats.items_evicted, 0,
                "{sixteenths}, {reclaimers}: {stats:?}"
            );
            assert_eq!(survivors(&engine, 0..keys).await, keys);
        });
    }
}

/// All keys differ, so that no segment ever gains: one segment at a time is dropped, when writes would stall for ever.
#[test]
fn what_copies_only_drops_one_segment_when_nothing_gains_and_writes_stall() {
    for (sixteenths, reclaimers) in [(15, 1), (16, 1), (15, 4), (16, 4)] {
        simulate(1, async {
            let mut config = copies_only(sixteenths);
            config.reclaim.reclaimers = reclaimers;
            let (engine, _) = start(NEVER_FAILS, 1, &config).await;
            for number in 0..300 * ITEMS {
                put(&engine, number, number).await;
            }
            let kept = survivors(&engine, 0..300 * ITEMS).await;
            let stats = engine.stats().placement;
            // All items except those in segments reserved for copies or being reclaimed.
            assert!(kept >= 118 * ITEMS, "{kept} kept; {stats:?}");
        });
    }
}

#[test]
fn nothing_is_lost_when_blocks_fail_while_they_are_written() {
    for_each_seed("nothing_is_lost_when_blocks_fail", 6, |seed| {
        simulate(seed, async {
            let endurance = Endurance {
                cycles: 12,
                factory_bad: 0.05,
                grown_bad: 0.4,
            };
            let mut config = didacache();
            config.reclaim.policy = ReclaimPolicy::CopyValid {
                victim: Victim::FewestValid,
                max_copy_sixteenths: 8,
            };
            let (engine, _) = start(endurance, seed, &config).await;
            let keys = 10 * ITEMS;
            let mut latest = vec![None; keys as usize];
            // Until a quarter of the blocks has failed.
            for turn in 0.. {
                put(&engine, turn * 7 % keys, turn).await;
                latest[(turn * 7 % keys) as usize] = Some(turn);
                let retired = engine.store().pool().retired().len() as u32;
                if 4 * retired > engine.store().table().segments() {
                    break;
                }
                if turn % 5 == 0 {
                    let number = turn * 11 % keys;
                    let expected = latest[number as usize].map(|tag| value(tag, VALUE_BYTES));
                    assert_eq!(
                        get(&engine, &numbered(number)).await,
                        expected,
                        "item {number}"
                    );
                }
            }
            for (number, tag) in (0..).zip(&latest) {
                let expected = tag.map(|tag| value(tag, VALUE_BYTES));
                assert_eq!(
                    get(&engine, &numbered(number)).await,
                    expected,
                    "item {number}"
                );
            }
            let moved = &engine.store().counters().segments_moved;
            assert!(moved.load(std::sync::atomic::Ordering::Relaxed) > 0);
            assert_eq!(engine.stats().placement.items_lost, 0);
        });
    });
}

/// One reclaimer and many clients, so that free segments often run out.
#[test]
fn a_checkpoint_waits_for_a_segment_that_is_being_reclaimed() {
    simulate(1, async {
        let mut config = didacache();
        config.reclaim.reclaimers = 1;
        let (engine, _) = start(NEVER_FAILS, 1, &config).await;
        let keys = 100 * ITEMS;
        for number in 0..keys {
            put(&engine, number, number).await;
        }
        let clients = (0..32).map(|client| {
            let engine = Arc::clone(&engine);
            runtime::spawn(async move {
                let mut random = random(client);
                for _ in 0..keys {
                    put(&engine, random.random_range(0..keys), 0).await;
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        for client in clients {
            client.await.expect("no panic");
        }
        let checkpoints = engine.checkpoint_stats();
        assert!(checkpoints.written > 0, "{checkpoints:?}");
        assert_eq!(checkpoints.failed, 0, "{checkpoints:?}");
    });
}

#[test]
fn a_stop_drops_nothing_that_is_being_copied() {
    let mut copied = 0;
    for seed in 1..=20 {
        copied += simulate(seed, async {
            let (engine, _) = start(NEVER_FAILS, seed, &didacache()).await;
            let keys = 90 * ITEMS;
            for number in 0..keys {
                put(&engine, number, number).await;
            }
            // Half of each segment dies, slowly, so that there is no pressure.
            let mut random = random(seed);
            for number in (0..random.random_range(keys / 2..keys)).step_by(2) {
                put(&engine, number, number + 1).await;
                runtime::sleep(Duration::from_micros(300)).await;
            }
            let before = engine.stats().placement;
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            let after = engine.stats().placement;
            assert_eq!(after.items_evicted, before.items_evicted, "{after:?}");
            assert_eq!(after.objects, before.objects, "{after:?}");
            after.items_copied - before.items_copied
        });
    }
    assert!(copied > 0, "no stop came while anything was copied");
}
