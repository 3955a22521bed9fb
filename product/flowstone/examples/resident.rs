//! Measures the resident memory of a process that uses the library, against
//! [`CacheConfig::memory`], while the cache is filled and while it is read.
//!
//! `cargo run --release --manifest-path product/Cargo.toml -p flowstone --example resident -- [MEMORY_MIB] [FLASH_MIB] [SECONDS] [VALUE_BYTES]`
//!
//! One thread fills the flash with values of [`VALUE_BYTES`], and [`CALLERS`] threads read keys for the given time,
//! first with uniform popularity, then by Zipf's law. The allocator is the unmodified system allocator.

#![allow(clippy::print_stdout, reason = "a measuring program prints")]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowstone::{Cache, CacheConfig, block_on};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of a value by default.
const VALUE_BYTES: u64 = 500;
const CALLERS: u64 = 8;
/// Approximate bytes of an item on flash without its value.
const ITEM_BYTES: u64 = 100;
const SAMPLE: Duration = Duration::from_millis(20);

/// Distribution of the reads over the keys.
#[derive(Clone, Copy, Debug)]
enum Popularity {
    Uniform,
    /// Zipf's law with an exponent of 1.
    Zipf,
}

impl Popularity {
    fn pick(self, keys: u64, random: &mut SmallRng) -> u64 {
        match self {
            Self::Uniform => random.random_range(0..keys),
            Self::Zipf => {
                let rank = (keys as f64).powf(random.random()) as u64;
                // Spreads the popular keys over early and late writes.
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys
            }
        }
    }
}

/// Returns the bytes of a field of `/proc/self/status`.
fn status_bytes(field: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    Ok(kib.ok_or("no such field")?.parse::<u64>()? << 10)
}

fn report(what: &str, bytes: u64, memory: u64) {
    println!(
        "{what}: {:.1} MiB resident, {:.3} of memory()",
        bytes as f64 / f64::from(1 << 20),
        bytes as f64 / memory as f64
    );
}

/// Returns the most resident bytes while `CALLERS` threads read for `time`.
fn read(cache: &Cache, how: Popularity, keys: u64, time: Duration) -> Result<u64, Box<dyn Error>> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(caller);
                while !is_over.load(Ordering::Relaxed) {
                    let key = how.pick(keys, &mut random);
                    let found = block_on(cache.get(&key.to_be_bytes()));
                    assert!(found.is_ok(), "{found:?}");
                }
            });
        }
        let mut most = 0;
        let mut left = time;
        let sampled = loop {
            match status_bytes("VmRSS:") {
                Ok(bytes) => most = most.max(bytes),
                Err(error) => break Err(error),
            }
            if left.is_zero() {
                break Ok(());
            }
            std::thread::sleep(SAMPLE);
            left = left.saturating_sub(SAMPLE);
        };
        is_over.store(true, Ordering::Relaxed);
        sampled.map(|()| most)
    })
}

fn measure(
    path: &Path,
    memory: u64,
    flash: u64,
    time: Duration,
    value_bytes: u64,
) -> Result<(), Box<dyn Error>> {
    let config = CacheConfig::new(path).memory(memory).flash_size(flash);
    let cache = block_on(Cache::open(config))?;
    let keys = flash / (value_bytes + ITEM_BYTES);
    let value = vec![7; value_bytes as usize];
    for key in 0..keys {
        block_on(cache.insert(&key.to_be_bytes(), &value))?;
    }
    report("filled", status_bytes("VmRSS:")?, memory);
    for how in [Popularity::Uniform, Popularity::Zipf] {
        let most = read(&cache, how, keys, time)?;
        report(&format!("{how:?} reads, the most"), most, memory);
    }
    println!("{:?}", cache.stats()?);
    block_on(cache.close());
    report("ever", status_bytes("VmHWM:")?, memory);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let argument = |number: usize, usual| arguments.get(number).copied().unwrap_or(usual);
    let (memory, flash) = (argument(0, 256) << 20, argument(1, 2048) << 20);
    let time = Duration::from_secs(argument(2, 20));
    let directory = std::env::temp_dir().join(format!("flowstone-resident-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let measured = measure(
        &directory.join("cache.flash"),
        memory,
        flash,
        time,
        argument(3, VALUE_BYTES),
    );
    std::fs::remove_dir_all(&directory)?;
    measured
}
