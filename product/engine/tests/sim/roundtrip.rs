//! More items than memory holds: all are found on flash, and after a restart.

use flowstone_engine::{EngineConfig, Start, Stop};

use crate::support::{get, is_warm, memory_disk, numbered, set, simulate, start};

const ITEMS: u64 = 30_000;

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 100 + number as usize * 37 % 3000]
}

#[test]
fn more_than_memory_holds_is_found_on_flash_and_after_a_restart() {
    let config = EngineConfig {
        memory_bytes: 16 << 20,
        segment_bytes: Some(256 << 10),
        partition_bits: 2,
        max_value_bytes: 100_000,
        ..EngineConfig::default()
    };
    let media = memory_disk(128 << 20);
    simulate(7, async {
        let engine = start(&media, &config).await;
        assert_eq!(engine.start(), Start::New);
        for number in 0..ITEMS {
            let stored = set(&engine, &numbered(number), &value(number)).await;
            stored.unwrap();
        }
        for number in 0..ITEMS {
            assert_eq!(get(&engine, &numbered(number)).await, Some(value(number)));
        }
        let stats = engine.stats();
        assert!(stats.paths.flash_hits > 10_000, "{stats:#?}");
        assert!(stats.dram_bytes <= stats.dram_limit_bytes, "{stats:#?}");
        let stopped = engine.stop().await;
        assert_eq!(stopped, Stop::Complete { objects: ITEMS }, "{stats:#?}");
        drop(engine);
        let engine = start(&media, &config).await;
        assert!(is_warm(&engine), "{:?}", engine.start());
        for number in 0..ITEMS {
            assert_eq!(get(&engine, &numbered(number)).await, Some(value(number)));
        }
    });
}
