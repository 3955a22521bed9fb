//! The memory setting is one number: under any load, all parts together stay within it.

use std::sync::Arc;
use std::time::Duration;

use device::MemoryDisk;
use flowstone_engine::{ConfigError, Engine, EngineConfig, EngineStats, OpenError, Stop};
use rand::Rng;

use crate::support::{
    Media, any_len, fill, get, memory_disk, numbered, random, roomy, run_background, set, simulate,
    start, tight, value,
};

/// Largest chunk of a partition's log. A partition may hold one chunk beyond its share.
const MAX_CHUNK_BYTES: u64 = 64 << 10;

pub(crate) fn check(engine: &Engine, config: &EngineConfig) -> EngineStats {
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
    // In the last case the memory of a partition is less than the largest values need.
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
        // One chunk of the log holds the stubs of hundreds of items.
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
    // With one of these sizes memory is full just when the table has to double.
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
                    // Less than one table grows by.
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
    config.index.percent = percent;
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
        // Two thirds of the items that fit the limit at 11 bytes each.
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
        // With less memory, reclaim brings the index under its new limit.
        let smaller = with_index_percent(5);
        let engine = start(&disk, &smaller).await;
        for number in 0..20_000 {
            set(&engine, &numbered(number), b"again").await.unwrap();
        }
        check(&engine, &smaller);
    });
}

#[test]
fn values_larger_than_a_partitions_memory_stay_within_the_whole() {
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

/// The flash is far larger than memory can index: the index starts small and stays within its part.
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

/// Checks that index, recovery and fixed memory together stay within the setting.
fn check_start(engine: &Engine, config: &EngineConfig) {
    let memory = engine.stats().memory;
    let sum = memory.index_bytes + memory.fixed_bytes;
    assert!(
        sum <= config.memory_bytes,
        "{sum} of {} bytes: {memory:?}",
        config.memory_bytes
    );
}

/// Opens an engine and watches its memory while it recovers.
async fn start_watched(media: &Media, config: &EngineConfig) -> Arc<Engine> {
    let engine = media.open(config).await.unwrap();
    check_start(&engine, config);
    run_background(&engine);
    while engine.recovery().segments_done < engine.recovery().segments {
        check_start(&engine, config);
        runtime::sleep(Duration::from_micros(100)).await;
    }
    engine.recovered().await;
    check(&engine, config);
    engine
}

/// Asserts that each key has the value of its last write or none; returns how many have one.
async fn count_latest(engine: &Arc<Engine>, latest: &[Option<u64>]) -> usize {
    let mut found = 0;
    for (number, tag) in (0..).zip(latest) {
        let Some(bytes) = get(engine, &numbered(number)).await else {
            continue;
        };
        assert_eq!(Some(bytes), tag.map(|tag| value(tag, 20)), "item {number}");
        found += 1;
    }
    found
}

#[test]
fn an_image_made_with_more_memory_opens_within_less_and_brings_nothing_old_back() {
    const COUNT: u64 = 600_000;
    simulate(1, async {
        let large = EngineConfig {
            memory_bytes: 64 << 20,
            ..roomy()
        };
        let small = tight();
        let media = memory_disk(257 << 20);
        let mut latest: Vec<Option<u64>> = Vec::new();
        let engine = start(&media, &large).await;
        for number in 0..COUNT {
            set(&engine, &numbered(number), &value(number, 20))
                .await
                .unwrap();
            latest.push(Some(number));
        }
        let mut random = random(3);
        let mut rewrite = async |engine: &Arc<Engine>, latest: &mut [Option<u64>], round: u64| {
            for _ in 0..60_000 {
                let number = random.random_range(0..COUNT);
                let tag = round * COUNT + number;
                set(engine, &numbered(number), &value(tag, 20))
                    .await
                    .unwrap();
                latest[number as usize] = Some(tag);
                let gone = random.random_range(0..COUNT);
                let gone_name = numbered(gone);
                let key = engine.key(&gone_name).unwrap();
                engine.remove(key, runtime::unix_seconds()).await.unwrap();
                latest[gone as usize] = None;
            }
        };
        rewrite(&engine, &mut latest, 1).await;
        let all = count_latest(&engine, &latest).await;
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        drop(engine);

        let engine = start_watched(&media, &small).await;
        let some = count_latest(&engine, &latest).await;
        assert!(some > all / 4 && some < all, "{some} of {all} items");
        rewrite(&engine, &mut latest, 2).await;
        count_latest(&engine, &latest).await;
        check(&engine, &small);
        drop(engine);

        // After the crash there is memory again for the items that were left out: they stay out.
        let engine = start_watched(&media, &large).await;
        let left = count_latest(&engine, &latest).await;
        assert!(left > some / 2 && left < all, "{left} of {all} items");
    });
}

#[test]
fn a_journal_longer_than_memory_is_read_within_it() {
    const COUNT: u64 = 300_000;
    const ROUNDS: u64 = 7;
    simulate(1, async {
        let config = roomy();
        let disk = Arc::new(MemoryDisk::new(257 << 20));
        let media = Media::with_words(disk, vec![0; 8 << 20]);
        let engine = start(&media, &config).await;
        for round in 0..ROUNDS {
            for number in 0..COUNT {
                set(
                    &engine,
                    &numbered(number),
                    &value(round * COUNT + number, 20),
                )
                .await
                .unwrap();
            }
        }
        let records = engine.journal().records();
        assert!(records > 1_200_000, "{records} records");
        assert_eq!(engine.checkpoint_stats().written, 0);
        drop(engine);
        let latest: Vec<Option<u64>> = (0..COUNT)
            .map(|number| Some((ROUNDS - 1) * COUNT + number))
            .collect();
        let engine = start_watched(&media, &config).await;
        let found = count_latest(&engine, &latest).await;
        assert!(found > COUNT as usize / 3, "{found} items");
    });
}

#[test]
fn memory_is_lent_when_the_items_have_given_it_up() {
    simulate(1, async {
        let config = roomy();
        let engine = start(&memory_disk(65 << 20), &config).await;
        fill(&engine, 20_000, 1000).await;
        let before = engine.stats();
        let bytes = before.dram_limit_bytes * 3 / 4;
        // Segment buffers take some of the items that have to leave; the others wait for flash.
        assert!(!engine.loans().try_lend(bytes), "{:#?}", engine.stats());
        assert_eq!(engine.stats().dram_limit_bytes, before.dram_limit_bytes);
        lend_in_time(&engine, bytes).await;
        let after = engine.stats();
        assert!(after.dram_bytes <= after.dram_limit_bytes, "{after:#?}");
        // All memory that can be lent has been lent by then.
        lend_in_time(&engine, config.memory_bytes).await;
    });
}

/// Lends memory as soon as flash has taken the items that have to leave it.
async fn lend_in_time(engine: &Engine, bytes: u64) {
    for _ in 0..10_000 {
        if engine.loans().try_lend(bytes) {
            return;
        }
        runtime::sleep(Duration::from_millis(1)).await;
    }
    panic!("never lent: {:#?}", engine.stats());
}
