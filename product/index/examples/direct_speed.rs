//! Measures [`DirectTable`]: time per operation, pauses, bytes per entry, resident memory.
//!
//! `cargo run --release --manifest-path product/Cargo.toml -p flowstone-index --example direct_speed -- 12000000 [sub-table hint]`
//!
//! Hashes are a counter through a bijective mixer, so every run does the same work.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowstone_index::{DirectConfig, DirectTable};
use runtime::pages::PagePool;

const VALUE_BITS: u32 = 28;
const MIN_BUCKETS: u32 = 8;
const LOOKUPS: u64 = 5_000_000;
const BOUND_FROM: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let entries: u64 = arguments
        .next()
        .map_or(Ok(12_000_000), |text| text.parse())?;
    let hint: u64 = arguments.next().map_or(Ok(entries), |text| text.parse())?;
    let config = DirectConfig {
        value_bits: VALUE_BITS,
        rank_bits: 1,
        max_entries_hint: hint,
        skip_bits: 0,
        min_buckets: MIN_BUCKETS,
    };
    println!(
        "{entries} entries, {hint} expected: {MIN_BUCKETS} buckets at least, {} fingerprint bits",
        config.fingerprint_bits()?
    );
    sizes(config, entries)?;
    pauses(config, entries)?;
    speed(config, entries)
}

/// Pool of the tables: a rebuild takes the memory that the one before has given back.
fn pool() -> Arc<PagePool> {
    Arc::new(PagePool::new(1 << 20))
}

/// Bytes per entry all along the growth, and resident memory.
fn sizes(config: DirectConfig, entries: u64) -> Result<(), Box<dyn std::error::Error>> {
    let resident_before = resident_bytes()?;
    let mut table = DirectTable::new(config, pool())?;
    let (mut worst, mut worst_at) = (0.0, 0);
    for n in 1..=entries {
        table.insert(hash(n), value(n))?;
        let len = table.len() as u64;
        let per_entry = table.memory_bytes() as f64 / len as f64;
        if len > BOUND_FROM && per_entry > worst {
            (worst, worst_at) = (per_entry, len);
        }
        if [3_000_000, 6_000_000, 12_000_000, entries].contains(&n) {
            let resident = resident_bytes()? - resident_before;
            println!(
                "{n:>9} inserted: {per_entry:.3} B/entry asked for, {:.3} B/entry resident, load {:.3}",
                resident as f64 / len as f64,
                table.load()
            );
        }
    }
    println!("most past {BOUND_FROM} entries: {worst:.3} B/entry at {worst_at}");
    Ok(())
}

/// Longest insertions: those that rebuild a sub-table, and the others.
fn pauses(config: DirectConfig, entries: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut table = DirectTable::new(config, pool())?;
    let mut rebuilds = Vec::new();
    let mut longest_other = Duration::ZERO;
    for n in 1..=entries {
        let bytes = table.memory_bytes();
        let start = Instant::now();
        table.insert(hash(n), value(n))?;
        let took = start.elapsed();
        if table.memory_bytes() == bytes {
            longest_other = longest_other.max(took);
        } else {
            rebuilds.push(took);
        }
    }
    let last = rebuilds.split_off(rebuilds.len() * 9 / 10);
    let mut last_sorted = last.clone();
    last_sorted.sort_unstable();
    println!(
        "insertion with rebuild: longest {:?}; of the last tenth ({}): median {:?}, 99% {:?}; longest without: {longest_other:?}",
        last.iter()
            .chain(&rebuilds)
            .max()
            .copied()
            .unwrap_or_default(),
        last.len(),
        last_sorted.get(last.len() / 2).copied().unwrap_or_default(),
        last_sorted
            .get(last.len() * 99 / 100)
            .copied()
            .unwrap_or_default(),
    );
    Ok(())
}

/// Mean time per operation.
fn speed(config: DirectConfig, entries: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut table = build_timed(config, entries)?;
    let len = table.len();
    bare_reads(table.memory_bytes());
    lookups(&table, "hit", entries, 0);
    lookups(&table, "miss", entries, entries);
    let start = Instant::now();
    for n in 0..LOOKUPS {
        black_box(table.access(hash(hash(n) % entries + 1)));
    }
    report("mark recent", start.elapsed(), LOOKUPS);
    let start = Instant::now();
    let mut sum = 0;
    table.for_each(|prefix, entry| sum ^= prefix ^ entry.value);
    black_box(sum);
    report("visit", start.elapsed(), len as u64);
    let start = Instant::now();
    for n in 1..=entries {
        table.remove(hash(n));
    }
    report("remove, while shrinking", start.elapsed(), entries);
    println!(
        "left: {} entries, {} bytes",
        table.len(),
        table.memory_bytes()
    );
    Ok(())
}

fn build_timed(
    config: DirectConfig,
    entries: u64,
) -> Result<DirectTable, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let mut table = DirectTable::new(config, pool())?;
    for n in 1..=entries {
        table.insert(hash(n), value(n))?;
    }
    report("insert, while growing", start.elapsed(), entries);
    Ok(table)
}

/// The yardstick: random reads of one word in an array as large as the table.
fn bare_reads(bytes: u64) {
    let words: Vec<u64> = (1..=bytes / 8).collect();
    let start = Instant::now();
    let mut previous = 0;
    for n in 0..LOOKUPS {
        previous = words[(hash(n + (previous & 2)) % words.len() as u64) as usize];
    }
    report("bare read, one after another", start.elapsed(), LOOKUPS);
    let start = Instant::now();
    for n in 0..LOOKUPS {
        previous ^= words[(hash(n) % words.len() as u64) as usize];
    }
    report("bare read, overlapping", start.elapsed(), LOOKUPS);
    black_box(previous);
}

/// Lookups of random hashes, each waiting for the answer of the one before; then without.
fn lookups(table: &DirectTable, name: &str, entries: u64, offset: u64) {
    let start = Instant::now();
    let mut previous = 0;
    for n in 0..LOOKUPS {
        let random = hash(n + (previous & 2)) % entries + 1 + offset;
        previous = table
            .lookup(hash(random))
            .map_or(0, |entry| entry.value + 1);
    }
    report(
        &format!("{name}, one after another"),
        start.elapsed(),
        LOOKUPS,
    );
    let start = Instant::now();
    let mut found = 0;
    for n in 0..LOOKUPS {
        found += u64::from(table.lookup(hash(hash(n) % entries + 1 + offset)).is_some());
    }
    report(&format!("{name}, overlapping"), start.elapsed(), LOOKUPS);
    println!("{:>28}  {found} of {LOOKUPS} found", "");
    black_box(previous);
}

fn report(name: &str, took: Duration, operations: u64) {
    println!(
        "{name:>28}: {:6.1} ns",
        took.as_nanos() as f64 / operations as f64
    );
}

fn hash(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn value(n: u64) -> u64 {
    n % ((1 << VALUE_BITS) - 1)
}

fn resident_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .ok_or("no VmRSS line")?;
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .ok_or("no VmRSS figure")?
        .parse()?;
    Ok(kib * 1024)
}
