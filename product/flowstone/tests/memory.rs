//! The memory setting holds for a process that uses the library. It is the only test of its process, whose memory it measures.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, not only the tests themselves"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowstone::{Cache, CacheConfig, block_on};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MEMORY_BYTES: u64 = 96 << 20;
const FLASH_BYTES: u64 = 384 << 20;
const CALLERS: u64 = 4;
const READS: u64 = 40_000;

/// Returns the resident bytes of the process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_ascii_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// Fills a cache on this thread and reads it on others, with uniform popularity; returns the most resident bytes.
fn fill_and_read(value_bytes: usize) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let config = CacheConfig::new(directory.path().join("cache.flash"))
        .memory(MEMORY_BYTES)
        .flash_size(FLASH_BYTES)
        .threads(2);
    let cache = block_on(Cache::open(config)).unwrap();
    let keys = FLASH_BYTES / (value_bytes as u64 + 100);
    let value = vec![7; value_bytes];
    for key in 0..keys {
        block_on(cache.insert(&key.to_be_bytes(), &value)).unwrap();
    }
    let read = &|caller| {
        let mut random = SmallRng::seed_from_u64(caller);
        for _ in 0..READS {
            let key = random.random_range(0..keys);
            block_on(cache.get(&key.to_be_bytes())).unwrap();
        }
    };
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = resident_bytes().max(most);
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(move || read(caller)))
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(cache.stats().unwrap().flash_hits > CALLERS * READS / 4);
    block_on(cache.close());
    most
}

#[test]
fn a_process_that_uses_the_library_stays_within_the_memory_it_gives_it() {
    for value_bytes in [500, 20_000] {
        let most = fill_and_read(value_bytes);
        assert!(
            most <= MEMORY_BYTES * 105 / 100,
            "{most} bytes are resident with values of {value_bytes} bytes, and memory() is {MEMORY_BYTES}"
        );
    }
}
