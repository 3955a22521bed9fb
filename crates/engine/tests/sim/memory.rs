//! One number of memory: whatever the load, the parts stay within it.

use std::sync::Arc;

use flowstone_engine::{
    ConfigError, Engine, EngineConfig, EngineStats, OpenError, PlacementConfig, Stop,
};
use rand::Rng;

use crate::support::{
    any_len, fill, get, memory_disk, numbered, random, roomy, set, simulate, start, tight, value,
};

/// The largest chunk of a partition's log. A partition may hold one chunk beyond its share.
const MAX_CHUNK_BYTES: u64 = 64 << 10;

fn check(engine: &Engine, config: &EngineConfig) -> EngineStats {
    let stats = engine.stats();
    let share = config.memory_bytes >> config.partition_bits;
    let slack = (share / 16).min(MAX_CHUNK_BYTES) << config.partition_bits;
    assert!(
        stats.dram_bytes <= stats.dram_limit_bytes + slack,
        "{} of {} bytes",
        stats.dram_bytes,
        stats.dram_limit_bytes
    );
    let sum = stats.dram_limit_bytes + stats.memory.index_bytes + stats.memory.fixed_bytes;
    assert!(
        sum <= config.memory_bytes,
        "{sum} of {} bytes",
        config.memory_bytes
    );
    stats
}

async fn mixed_load(engine: &Arc<Engine>, config: &EngineConfig, max_len: usize, steps: usize) {
    let mut random = random(5);
    for step in 0..steps {
        let number = random.random_range(0..20_000);
        if random.random_bool(0.6) {
            let len = any_len(&mut random, max_len);
            set(engine, &numbered(number), &value(number, len))
                .await
                .unwrap();
        } else {
            get(engine, &numbered(number)).await;
        }
        if step % 100 == 0 {
            check(engine, config);
        }
    }
    check(engine, config);
}

#[test]
fn a_mixed_load_stays_within_memory() {
    // The last has less memory in a partition than the largest values take.
    for (partition_bits, buffers) in [(0, 4), (2, 4), (5, 4), (6, 40)] {
        simulate(1, async {
            let mut config = EngineConfig {
                partition_bits,
                ..roomy()
            };
            config.writing.buffers = buffers;
            let engine = start(&memory_disk(65 << 20), &config).await;
            mixed_load(&engine, &config, 200_000, 8000).await;
        });
    }
}

#[test]
fn large_values_alone_stay_within_memory() {
    simulate(1, async {
        let config = roomy();
        let engine = start(&memory_disk(257 << 20), &config).await;
        // Hundreds of these have their stubs in one chunk of the log.
        for number in 0..600 {
            set(&engine, &numbered(number), &value(number, 150_000))
                .await
                .unwrap();
            check(&engine, &config);
        }
        let stats = check(&engine, &config);
        let full = stats.dram_limit_bytes / 2;
        assert!(stats.dram_item_bytes > full, "memory is used: {stats:#?}");
        for number in 0..600 {
            assert_eq!(
                get(&engine, &numbered(number)).await,
                Some(value(number, 150_000))
            );
        }
        check(&engine, &config);
    });
}

#[test]
fn tiny_items_stay_within_memory_while_their_table_grows() {
    // One of these sizes has memory full just when the table has to double.
    for len in (0..28).step_by(4) {
        simulate(1, async {
            let config = EngineConfig {
                partition_bits: 4,
                ..tight()
            };
            let engine = start(&memory_disk(65 << 20), &config).await;
            for number in 0..160_000 {
                set(&engine, &numbered(number), &[1; 28][..len])
                    .await
                    .unwrap();
                if number % 100 == 0 {
                    let stats = engine.stats();
                    // Less than what one table grows by.
                    assert!(stats.dram_bytes <= stats.dram_limit_bytes + (64 << 10));
                }
            }
        });
    }
}

#[test]
fn a_growing_index_takes_memory_from_the_items() {
    simulate(1, async {
        let config = tight();
        let engine = start(&memory_disk(65 << 20), &config).await;
        let before = check(&engine, &config);
        fill(&engine, 400_000, 20).await;
        let after = check(&engine, &config);
        let grown = after.memory.index_bytes - before.memory.index_bytes;
        assert!(grown > 2 << 20, "{after:#?}");
        let shrunk = before.dram_limit_bytes - after.dram_limit_bytes;
        assert!(shrunk.abs_diff(grown) <= 1 << config.partition_bits);
        let objects = after.placement.objects;
        let per_object = after.memory.index_bytes as f64 / objects as f64;
        assert!(per_object <= 12.0, "{per_object} bytes of memory an object");
    });
}

fn with_index_percent(percent: u32) -> EngineConfig {
    let mut config = tight();
    let PlacementConfig::Exact(exact) = &mut config.placement;
    exact.index_percent = percent;
    config
}

#[test]
fn a_full_index_makes_room_and_stays_useful() {
    simulate(1, async {
        let config = with_index_percent(10);
        let disk = memory_disk(257 << 20);
        let engine = start(&disk, &config).await;
        let bound = config.memory_bytes / 100 * 10;
        let count = 600_000;
        for number in 0..count {
            set(&engine, &numbered(number), &value(number, 20))
                .await
                .unwrap();
            if number % 1000 == 0 {
                let stats = check(&engine, &config);
                assert!(stats.memory.index_bytes <= bound + (64 << 10), "{stats:#?}");
            }
        }
        let stats = check(&engine, &config);
        assert!(stats.placement.segments_reclaimed > 0, "{stats:#?}");
        // Two thirds of what the bound has room for at 11 bytes each.
        assert!(stats.placement.objects > bound / 11 * 2 / 3, "{stats:#?}");
        let refused = stats.placement.index_full;
        assert!(
            refused < count / 50,
            "{refused} of {count} found no place in the index"
        );
        let mut newest = 0;
        for number in count - 50_000..count {
            newest += u64::from(get(&engine, &numbered(number)).await.is_some());
        }
        assert!(newest > 45_000, "{newest} of the newest 50,000");
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        // With less memory still, reclaim brings the index under its new bound.
        let smaller = with_index_percent(5);
        let engine = start(&disk, &smaller).await;
        for number in 0..20_000 {
            set(&engine, &numbered(number), b"again").await.unwrap();
        }
        check(&engine, &smaller);
    });
}

#[test]
fn values_larger_than_a_partitions_memory_stay_out_of_it() {
    simulate(1, async {
        let config = EngineConfig {
            partition_bits: 6,
            ..tight()
        };
        let engine = start(&memory_disk(257 << 20), &config).await;
        for number in 0..600 {
            set(&engine, &numbered(number), &value(number, 190_000))
                .await
                .unwrap();
            check(&engine, &config);
        }
        for number in 0..600 {
            let found = get(&engine, &numbered(number)).await;
            assert!(found == Some(value(number, 190_000)), "item {number}");
            check(&engine, &config);
        }
    });
}

/// A flash far larger than memory can index: the index starts small and stays within its part.
#[test]
fn a_vast_flash_does_not_take_all_memory_for_an_empty_index() {
    simulate(1, async {
        let config = EngineConfig {
            partition_bits: 6,
            ..roomy()
        };
        let vast = memory_disk(2 << 40).open(&config).await;
        let refused = matches!(
            vast.err(),
            Some(OpenError::Config(ConfigError::Memory { .. }))
        );
        assert!(refused, "the table of its segments alone is larger");
        let engine = start(&memory_disk(32 << 30), &config).await;
        let stats = check(&engine, &config);
        assert!(stats.memory.index_bytes < 2 << 20, "{stats:#?}");
        fill(&engine, 20_000, 500).await;
        for number in 0..20_000 {
            assert_eq!(
                get(&engine, &numbered(number)).await,
                Some(value(number, 500))
            );
        }
        check(&engine, &config);
    });
}
