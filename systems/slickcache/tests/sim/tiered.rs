//! The `tiered` placement: dumps list the items of all tiers, segments are dropped unread, and reclaim has two phases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Fault, FaultyDisk, Operation, When};
use flowstone_engine::{
    Dram, Engine, EngineConfig, FlashStats, IndexSettings, Layout, ReclaimPolicy, Reserve,
    StaticReserve, Stop, Victim,
};
use flowstone_slickcache::TieredSettings;
use flowstone_slickcache::cascade::{CascadeConfig, Sizes};
use rand::Rng;

use crate::support::{
    Media, dump, fill, for_each_seed, get, memory_disk, numbered, random, remove, set, simulate,
    start, tight, value,
};

/// Entries of Tier 1 in each partition: of a small table, and of one that holds the keys read often.
const FEW: u32 = 60;
const MANY: u32 = 600;
const DROP: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::Oldest,
};
const TWO_PHASE: ReclaimPolicy = ReclaimPolicy::CopyRecent {
    victim: Victim::Oldest,
    max_copy_sixteenths: 15,
};

/// Returns an engine built like `SlickCache`, with tiers of a few blocks.
pub(crate) fn slickcache(policy: ReclaimPolicy, hot_entries: u32) -> EngineConfig {
    let cascade = CascadeConfig {
        sizes: Sizes {
            partitions: Some(2),
            direct_blocks: Some(3),
            active_blocks: Some(3),
            page_entries: Some(40),
            hot_entries: Some(hot_entries),
            ..Sizes::default()
        },
        ..CascadeConfig::default()
    };
    let mut config = EngineConfig {
        dram: Dram::WriteBuffers {
            spare_buffers: Some(1),
        },
        placement: Arc::new(TieredSettings {
            layout: Layout::Slotted,
            checkpoint_segments: 32,
            cascade,
        }),
        index: IndexSettings::of_memory(40),
        write_back: None,
        ..tight()
    };
    config.writing.buffers = 8;
    config.reclaim.policy = policy;
    config.reclaim.reclaimers = 2;
    config.reclaim.reserve = Reserve::Static(StaticReserve {
        low_percent: 2,
        high_percent: 5,
    });
    config
}

/// Statistics of the index that look-ups change.
const TRACES: [&str; 8] = [
    "tier1_hits",
    "tier2_hits",
    "tier3_hits",
    "tiers_absent",
    "tier2_reads",
    "tier3_reads",
    "absent_reads",
    "tier1_promotions",
];

#[test]
fn a_dump_lists_every_living_item_and_leaves_no_trace() {
    const KEYS: u64 = 6000;
    for_each_seed("a_dump_lists_every_living_item", 4, |seed| {
        simulate(seed, async {
            let mut random = random(seed);
            let config = slickcache(DROP, FEW);
            let media = memory_disk(64 << 20);
            let mut engine = start(&media, &config).await;
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
                assert!(model.len() > 20 * 2 * FEW as usize);
                let before = engine.index_stats();
                let listed = dump(&engine).await;
                let after = engine.index_stats();
                for name in TRACES {
                    assert_eq!(before.find(name).unwrap(), after.get(name), "{name}");
                }
                let [compactions, demoted] =
                    ["compactions", "tier1_demotions"].map(|name| before.get(name));
                assert!(compactions > 0 && demoted > KEYS, "{before:?}");
                assert_eq!(listed.len(), model.len());
                for (key, bytes) in &listed {
                    assert_eq!(model.get(key), Some(bytes));
                }
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
                engine = start(&media, &config).await;
                assert_eq!(dump(&engine).await.len(), model.len(), "after a start");
            }
        });
    });
}

/// Sets 80,000 items on a flash of 48 MiB, which holds some 20,000, and keeps reading every 200th of the first 10,000. If it
/// `rests`, reclaim keeps up. Returns how many of the read items are left, and the engine.
fn turn_over(policy: ReclaimPolicy, rests: bool) -> (u64, Arc<Engine>) {
    simulate(1, async {
        let engine = start(&memory_disk(48 << 20), &slickcache(policy, MANY)).await;
        let hot = |nth: u64| numbered(nth * 200);
        let mut next = 0;
        for number in 0..80_000 {
            let bytes = value(number, 1900);
            set(&engine, &numbered(number), &bytes).await.unwrap();
            if number > 10_000 && number % 8 == 0 {
                get(&engine, &hot(next % 50)).await;
                next += 1;
            }
            if rests && number % 16 == 0 {
                runtime::sleep(Duration::from_millis(1)).await;
            }
        }
        let mut left = 0;
        for nth in 0..50 {
            left += u64::from(get(&engine, &hot(nth)).await.is_some());
        }
        (left, engine)
    })
}

fn stats(engine: &Engine) -> FlashStats {
    engine.stats().placement
}

#[test]
fn nothing_is_read_of_a_segment_that_is_dropped_and_its_items_are_counted() {
    const ITEMS: u64 = 60_000;
    simulate(1, async {
        let engine = start(&memory_disk(48 << 20), &slickcache(DROP, FEW)).await;
        fill(&engine, ITEMS, 1900).await;
        let stats = stats(&engine);
        assert!(stats.segments_dropped > 100, "{stats:?}");
        assert_eq!(engine.store().counters().reads.sum(), 0);
        assert_eq!(stats.items_evicted + stats.objects, ITEMS, "{stats:?}");
        let mean = stats.bytes_evicted / stats.items_evicted;
        assert!((1900..2500).contains(&mean), "{mean} bytes");
        // A dump finds exactly as many.
        assert_eq!(dump(&engine).await.len() as u64, stats.objects);
    });
}

#[test]
fn what_tier_1_names_is_kept_between_the_watermarks_and_dropped_below_the_low_one() {
    let (dropped, engine) = turn_over(DROP, true);
    assert_eq!(dropped, 0, "{:?}", stats(&engine));
    let (kept, engine) = turn_over(TWO_PHASE, true);
    let at_leisure = stats(&engine);
    assert!(kept >= 45, "{kept} of 50; {at_leisure:?}");
    assert!(at_leisure.items_copied > 100, "{at_leisure:?}");
    assert_eq!(at_leisure.segments_dropped, 0, "{at_leisure:?}");
    let (less, engine) = turn_over(TWO_PHASE, false);
    let pressed = stats(&engine);
    assert!(less < kept && pressed.segments_dropped > 50, "{pressed:?}");
}

/// To place all of memory at once takes more pages than are free: a stop writes checkpoints in between, which free pages.
#[test]
fn a_stop_places_what_memory_has_though_the_index_runs_out_of_pages() {
    simulate(1, async {
        let mut config = slickcache(DROP, FEW);
        config.dram = Dram::ItemCache;
        config.reclaim.reserve = Reserve::ForStop;
        config.placement = Arc::new(TieredSettings::new(Layout::Packed));
        let media = memory_disk(20 << 20);
        let engine = start(&media, &config).await;
        fill(&engine, 130_000, 150).await;
        let stop = engine.stop().await;
        assert!(matches!(stop, Stop::Complete { .. }), "{stop:?}");
        let stats = engine.stats();
        assert!(stats.dram_items > 40_000 && stats.placement.index_full == 0);
    });
}

/// Issue: "a device that refuses or delays writes: every preset answers within `write_patience`". Also one that delays reads.
#[test]
fn no_request_waits_longer_than_the_patience() {
    simulate(1, async {
        let disk = Arc::new(FaultyDisk::in_memory(64 << 20, 1));
        let media = Media::new(disk.clone());
        let engine = start(&media, &slickcache(TWO_PHASE, MANY)).await;
        fill(&engine, 8000, 1000).await;
        let patience = engine.config().write_patience;
        let most = patience + Duration::from_secs(2);
        let hours = || Fault::Slow(Duration::from_secs(36_000));
        disk.script(When::every(Operation::Write), hours());
        let mut longest = Duration::ZERO;
        for number in 0..20_000 {
            let begin = runtime::now();
            let stored = set(&engine, &numbered(number), &value(number + 1, 1000)).await;
            longest = longest.max(runtime::now().since(begin));
            if stored.is_err() {
                break;
            }
        }
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
