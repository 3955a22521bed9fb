//! Measures look-ups of a [`Cascade`] below Tier 1: median time of each, and pages read.
//!
//! `cargo run --release -p flowstone-slickcache --example cascade_speed -- 2000000 [bits of filter]`
//!
//! The region is memory that answers at once, so the time is the processor's alone. Hashes are a counter through a
//! bijective mixer, so every run does the same work.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::{Latency, MemoryDisk, PAGE_BYTES, Region};
use flowstone_slickcache::cascade::{Cascade, CascadeConfig, Footprint, Searched, Segments, Tier};
use format::segment::Position;
use runtime::pages::PagePool;
use runtime::sim::Sim;

const POSITION_BITS: u32 = 12;
const CODE_BITS: u32 = 34;
/// Keys of each kind that are looked up.
const LOOKUPS: u64 = 50_000;
/// Look-ups that are timed together, as a single one is too short.
const BATCH: u64 = 50;

/// Segments that all exist.
struct All;

impl Segments for All {
    fn named_by(&self, code: u64) -> Option<(u32, Position)> {
        let position = code as u32 & ((1 << POSITION_BITS) - 1);
        Some((
            (code >> POSITION_BITS) as u32,
            Position::from_bits(position),
        ))
    }

    fn code(&self, number: u32, position: Position) -> Option<u64> {
        Some(u64::from(number) << POSITION_BITS | u64::from(position.bits()))
    }

    fn horizon(&self) -> u32 {
        0
    }

    fn failed_syncs(&self) -> u64 {
        0
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments
        .next()
        .map_or(Ok(2_000_000), |text| text.parse())?;
    let filter_bits: u32 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let config = CascadeConfig {
        filter_bits,
        ..CascadeConfig::new(keys, CODE_BITS)
    };
    let least = (Footprint::of(&config).least_pages() * PAGE_BYTES) as u64;
    let bytes = (least + keys * 40).next_multiple_of(PAGE_BYTES as u64);
    let disk = Arc::new(MemoryDisk::with_latency(bytes, Latency::default()));
    let region = Region::new(disk, 0, bytes)?;
    let pool = Arc::new(PagePool::new(1 << 20));
    let cascade = Arc::new(Cascade::new(
        config,
        region,
        1,
        Arc::new(All),
        &pool,
        &Arc::default(),
    )?);
    Sim::new(1).block_on(async {
        for number in 0..cascade.tiers.partitions() {
            let cascade = Arc::clone(&cascade);
            runtime::spawn_detached(async move { cascade.upkeep(number).run(|| ()).await });
        }
        fill(&cascade, keys).await;
        measure(&cascade, keys).await;
    });
    Ok(())
}

/// Maps each key to a place, and waits until upkeep has nothing left to move.
async fn fill(cascade: &Cascade, keys: u64) {
    for key in 0..keys {
        while cascade.tiers.insert(hash(key), key, false).is_err() {
            runtime::sleep(Duration::from_millis(1)).await;
        }
    }
    runtime::sleep(Duration::from_secs(1)).await;
    println!(
        "{keys} keys in {} partitions: {:.2} bytes of memory each",
        cascade.tiers.partitions(),
        cascade.memory_bytes() as f64 / keys as f64,
    );
}

async fn measure(cascade: &Cascade, keys: u64) {
    let absent = keys..keys + LOOKUPS;
    let mut maybe = 0;
    let batches = (absent.start..absent.end)
        .step_by(BATCH as usize)
        .map(|first| {
            let begin = Instant::now();
            let batch = first..first + BATCH;
            maybe += batch
                .filter(|&key| cascade.tiers.may_be_below(hash(key)))
                .count();
            begin.elapsed().as_nanos() as u64 / BATCH
        });
    let time = median(batches.collect());
    let maybe = maybe as f64 * 100.0 / LOOKUPS as f64;
    println!("may_be_below, absent: {time} ns, {maybe:.1} % perhaps");
    search("absent", cascade, absent, None).await;
    // The entries that left Tier 1 last are spread over a wide range of ages.
    let newer = keys / 10 * 7..keys;
    search("tier 2", cascade, newer, Some(Tier::Two)).await;
    search("tier 3", cascade, 0..LOOKUPS, Some(Tier::Three)).await;
}

/// Measures the look-ups that this tier answers.
async fn search(name: &str, cascade: &Cascade, keys: std::ops::Range<u64>, tier: Option<Tier>) {
    let counters = &cascade.counters;
    let (pages, answered) = match tier {
        Some(Tier::Two) => (&counters.tier2_reads, &counters.tier2_hits),
        Some(Tier::Three) => (&counters.tier3_reads, &counters.tier3_hits),
        Some(Tier::One) | None => (&counters.absent_reads, &counters.absent),
    };
    let count = || [pages, answered].map(|count| count.load(Ordering::Relaxed));
    let before = count();
    let step = ((keys.end - keys.start) / LOOKUPS).max(1);
    let mut times = Vec::new();
    for key in keys.step_by(step as usize) {
        let begin = Instant::now();
        let found = match cascade.searches.search(hash(key)).await {
            Searched::At(_, tier) => Some(tier),
            Searched::Absent | Searched::Unreadable => None,
        };
        if found == tier {
            times.push(begin.elapsed().as_nanos() as u64);
        }
    }
    let [pages, answered] = count();
    println!(
        "search, {name}: {} ns, {:.2} pages read, of {}",
        median(times),
        (pages - before[0]) as f64 / (answered - before[1]).max(1) as f64,
        answered - before[1],
    );
}

/// The median, as the machine may do other work at the same time.
fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

fn hash(key: u64) -> u64 {
    let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}
