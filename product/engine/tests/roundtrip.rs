//! The engine end to end on the simulated runtime: memory, flash, reclaim, restart.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

use std::borrow::Cow;
use std::sync::Arc;

use device::{Disk, MemoryDisk, MemoryJournal};
use flowstone_engine::{Engine, EngineConfig, Lookup, Opening, Peek, Put, Start, Stop};
use runtime::sim::Sim;

fn config() -> EngineConfig {
    EngineConfig {
        memory_bytes: 16 << 20,
        segment_bytes: Some(256 << 10),
        partition_bits: 2,
        max_value_bytes: 100_000,
        ..EngineConfig::default()
    }
}

async fn open(disk: &Arc<dyn Disk>, journal: &Arc<MemoryJournal>) -> Arc<Engine> {
    let journal = Arc::clone(journal);
    let opened = Opening::new(Arc::clone(disk), config())
        .open(|| Ok(journal))
        .await;
    let engine = opened.unwrap();
    engine.start_background(|task| {
        runtime::spawn(async move { task().await });
    });
    engine.recovered().await;
    engine
}

async fn get(engine: &Arc<Engine>, key: &str) -> Option<Vec<u8>> {
    let now = runtime::unix_seconds();
    let key = engine.key(key.as_bytes()).unwrap();
    match engine.lookup(key, now, Peek::No, |item| item.value.to_vec()) {
        Lookup::Hit(value) => Some(value),
        Lookup::Miss => None,
        Lookup::Flash(read) => engine
            .read_flash(key, read)
            .await
            .map(|hit| hit.view().value.to_vec()),
    }
}

async fn set(engine: &Arc<Engine>, key: &str, value: &[u8]) {
    let now = runtime::unix_seconds();
    let put = Put {
        value: Cow::Borrowed(value),
        ..Put::default()
    };
    engine
        .set(engine.key(key.as_bytes()).unwrap(), now, &put)
        .await
        .unwrap();
}

fn value(n: usize) -> Vec<u8> {
    vec![n as u8; 100 + n * 37 % 3000]
}

#[test]
fn more_than_memory_holds_is_found_on_flash_and_after_a_restart() {
    let sim = Sim::new(7);
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(128 << 20));
    let journal = Arc::new(MemoryJournal::new(512 + 16 * 8192));
    sim.block_on(async {
        let engine = open(&disk, &journal).await;
        assert_eq!(engine.start(), Start::New);
        for n in 0..30_000 {
            set(&engine, &format!("key-{n}"), &value(n)).await;
        }
        let mut lost = 0;
        for n in 0..30_000 {
            match get(&engine, &format!("key-{n}")).await {
                Some(found) => assert_eq!(found, value(n)),
                None => lost += 1,
            }
        }
        let stats = engine.stats();
        assert_eq!(lost, 0, "{stats:#?}");
        assert!(stats.paths.flash_hits > 10_000, "{stats:#?}");
        assert!(stats.dram_bytes <= stats.dram_limit_bytes, "{stats:#?}");
        let stopped = engine.stop().await;
        assert!(
            matches!(stopped, Stop::Complete { objects: 30_000 }),
            "{stopped:?} {stats:#?} {:#?}",
            engine.stats()
        );
        drop(engine);
        let engine = open(&disk, &journal).await;
        assert!(
            matches!(engine.start(), Start::Warm { orderly: true, .. }),
            "{:?}",
            engine.start()
        );
        for n in 0..30_000 {
            assert_eq!(get(&engine, &format!("key-{n}")).await, Some(value(n)));
        }
    });
}
