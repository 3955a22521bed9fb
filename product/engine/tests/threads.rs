//! Several threads at once, in memory only: no runtime drives them.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{MemoryDisk, MemoryJournal};
use flowstone_engine::{Engine, EngineConfig, Lookup, Opening, Peek, Put};
use futures_util::FutureExt;
use runtime::sim::Sim;

/// Number of flushes of one thread; none may get lost among the flushes of the other thread.
const FLUSHES: usize = 2000;

fn engine() -> Arc<Engine> {
    Sim::new(1).block_on(async {
        let config = EngineConfig {
            memory_bytes: 256 << 20,
            segment_bytes: Some(256 << 10),
            max_value_bytes: 1000,
            partition_bits: 4,
            ..EngineConfig::default()
        };
        let disk = Arc::new(MemoryDisk::new(64 << 20));
        let journal = Arc::new(MemoryJournal::new(512 + 4096 * 8192));
        let opening = Opening::new(disk as Arc<dyn device::Disk>, config);
        opening.open(|| Ok(journal)).await.unwrap()
    })
}

#[test]
fn a_flush_that_was_acknowledged_holds_whatever_delayed_flushes_others_ask_for() {
    let engine = engine();
    let is_over = AtomicBool::new(false);
    let flush = |deadline| engine.flush_all(deadline).now_or_never().unwrap();
    let survivors = std::thread::scope(|scope| {
        scope.spawn(|| {
            // At most as many as the journal has space for.
            for _ in 0..1 << 23 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                flush(runtime::unix_seconds() + 1000);
            }
        });
        let mut survivors = 0;
        for number in 0..FLUSHES {
            let name = format!("key-{number}");
            let key = engine.key(name.as_bytes()).unwrap();
            let now = runtime::unix_seconds();
            let put = Put {
                value: Cow::Borrowed(b"value"),
                ..Put::default()
            };
            engine.try_set(key, now, &put).unwrap().unwrap();
            flush(now);
            let found = engine.lookup(key, now, Peek::No, |_| ());
            survivors += usize::from(!matches!(found, Lookup::Miss));
        }
        is_over.store(true, Ordering::Relaxed);
        survivors
    });
    assert_eq!(survivors, 0, "of {FLUSHES}");
}
