//! The placement `runs`: items collect in memory, are written in the order of their hashes, and are found again.

use std::collections::HashMap;
use std::sync::Arc;

use device::{Latency, MemoryDisk};
use flowstone_engine::config::{META_BYTES, Sizes};
use flowstone_engine::preset::RUNS;
use flowstone_engine::{Engine, EngineConfig, Stop};
use rand::Rng;

use crate::support::{
    Media, for_each_seed, get, numbered, random, remove, set, simulate, start, value,
};

const FLASH_BYTES: u64 = 64 << 20;

fn config() -> EngineConfig {
    (RUNS.config)(Sizes {
        memory_bytes: 16 << 20,
        flash_bytes: FLASH_BYTES,
        block_bytes: None,
        segment_bytes: Some(1 << 20),
        buffer_bytes: None,
        max_value_bytes: 200_000,
    })
}

fn media() -> (Arc<MemoryDisk>, Media) {
    let disk = MemoryDisk::with_latency(META_BYTES + FLASH_BYTES, Latency::default());
    let disk = Arc::new(disk);
    (disk.clone(), Media::with_words(disk, vec![0; 1 << 17]))
}

/// Returns how many of the items the cache has; none is another version than the latest.
async fn hits(engine: &Arc<Engine>, latest: &HashMap<u64, Option<Vec<u8>>>) -> usize {
    let mut hits = 0;
    for (number, expected) in latest {
        if let Some(found) = get(engine, &numbered(*number)).await {
            assert_eq!(Some(found), *expected, "item {number}");
            hits += 1;
        }
    }
    hits
}

#[test]
fn items_are_found_in_runs_and_after_a_restart() {
    for_each_seed(
        "runs::items_are_found_in_runs_and_after_a_restart",
        3,
        |seed| {
            let mut random = random(seed);
            let (disk, media) = media();
            let mut latest = HashMap::new();
            simulate(seed, async {
                let engine = start(&media, &config()).await;
                for _ in 0..80_000u64 {
                    let number = random.random_range(0..40_000);
                    if random.random_range(0..10) == 0 {
                        remove(&engine, number).await;
                        latest.insert(number, None);
                        continue;
                    }
                    let len = match random.random_range(0..100) {
                        0 => random.random_range(3000..9000),
                        _ => random.random_range(20..600),
                    };
                    let bytes = value(random.random(), len);
                    set(&engine, &numbered(number), &bytes).await.unwrap();
                    latest.insert(number, Some(bytes));
                }
                let living = latest.values().flatten().count();
                let found = hits(&engine, &latest).await;
                assert!(found == living, "{found} of {living}");
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            });
            let words = media.journal.crash();
            let disk = MemoryDisk::from_image(disk.snapshot(), Latency::default());
            let media = Media::with_words(Arc::new(disk), words);
            simulate(seed, async {
                let engine = start(&media, &config()).await;
                let living = latest.values().flatten().count();
                let found = hits(&engine, &latest).await;
                assert!(found == living, "{found} of {living}");
            });
        },
    );
}

#[test]
fn a_run_has_all_that_its_group_has_collected() {
    let (_, media) = media();
    simulate(1, async {
        let engine = start(&media, &config()).await;
        for number in 0..120_000 {
            set(&engine, &numbered(number), &[7; 250]).await.unwrap();
        }
        let stats = engine.index_stats();
        let items = engine.flash_stats().objects - stats.get("index_own_entries");
        let runs = stats.get("index_runs");
        assert!(items / runs > 1500, "{items} items in {runs} runs");
    });
}
