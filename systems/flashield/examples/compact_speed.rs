//! Measures the compact index: filters of several shapes, and time per operation.
//!
//! `cargo run --release -p flowstone-flashield --example compact_speed -- 4096`
//!
//! The argument is the number of segments, of 2 MiB with objects of 257 bytes. Hashes are a counter through a bijective
//! mixer, so every run does the same work.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use flowstone_flashield::compact::{
    CompactConfig, CompactEntry, CompactTable, FILTER_BITS_PER_100_KEYS, FILTER_KEY_BITS, Location,
    Rank, SegmentFilter, SegmentFilters, SegmentId, candidates, last_collided,
};
use on_flash::bloom::mix;

/// Objects of 257 bytes in a segment of 2 MiB.
const KEYS: u64 = 8160;
const LOOKUPS: u64 = 4_000_000;
/// Number of rounds, of which the fastest counts, since other programs run on the machine.
const ROUNDS: u64 = 80;
/// Numbers of keys that no segment has.
const ABSENT: u64 = 1 << 60;
const LOAD: f64 = 0.94;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let segments: u32 = arguments.next().map_or(Ok(4096), |text| text.parse())?;
    println!("filters of {KEYS} keys, and of 256 times as many");
    println!(
        "shape           bits a key  bits of a key  false positives  of a large one  ns, absent  ns, there"
    );
    for bits_per_100_keys in [965, 1000] {
        for lines in [1, 2, 3] {
            let shape = Lines {
                lines,
                bits_per_100_keys,
            };
            measure(&shape, segments);
        }
    }
    measure(&Unblocked, segments);
    table(segments)
}

/// A layout of the bits of keys in a filter.
trait Shape {
    type Filter;
    fn name(&self) -> String;
    fn bits_per_100_keys(&self) -> usize;
    fn build(&self, hashes: &[u64]) -> Self::Filter;
    fn contains(&self, filter: &Self::Filter, hash: u64) -> bool;
}

/// [`FILTER_KEY_BITS`] of a key in this many lines of 64 bytes.
struct Lines {
    lines: usize,
    bits_per_100_keys: usize,
}

impl Lines {
    fn bits(&self, all_lines: usize, hash: u64) -> impl Iterator<Item = usize> {
        const G: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = mix(hash);
        let (lines, in_line) = (self.lines, mix(!mixed));
        (0..FILTER_KEY_BITS).map(move |bit| {
            let of_line =
                mixed.wrapping_mul(G.wrapping_pow((bit * lines / FILTER_KEY_BITS) as u32));
            let line = (u128::from(of_line) * all_lines as u128) >> 64;
            let at = in_line.wrapping_mul(G.wrapping_pow(bit as u32)) >> 55;
            line as usize * 512 + at as usize
        })
    }
}

impl Shape for Lines {
    type Filter = Box<[u64]>;

    fn name(&self) -> String {
        format!("{} line(s)", self.lines)
    }

    fn bits_per_100_keys(&self) -> usize {
        self.bits_per_100_keys
    }

    fn build(&self, hashes: &[u64]) -> Box<[u64]> {
        let lines = (hashes.len() * self.bits_per_100_keys).div_ceil(51_200);
        let mut words = vec![0; lines * 8];
        for bit in hashes.iter().flat_map(|&hash| self.bits(lines, hash)) {
            words[bit / 64] |= 1 << (bit % 64);
        }
        words.into()
    }

    fn contains(&self, filter: &Box<[u64]>, hash: u64) -> bool {
        let mut bits = self.bits(filter.len() / 8, hash);
        bits.all(|bit| filter[bit / 64] >> (bit % 64) & 1 == 1)
    }
}

/// The filter of the index.
struct Unblocked;

impl Shape for Unblocked {
    type Filter = SegmentFilter;

    fn name(&self) -> String {
        "unblocked".to_owned()
    }

    fn bits_per_100_keys(&self) -> usize {
        FILTER_BITS_PER_100_KEYS
    }

    fn build(&self, hashes: &[u64]) -> SegmentFilter {
        SegmentFilter::build(hashes)
    }

    fn contains(&self, filter: &SegmentFilter, hash: u64) -> bool {
        filter.contains(hash)
    }
}

/// Measures the false positives of one shape, and the time to probe a random filter.
fn measure<S: Shape>(shape: &S, segments: u32) {
    let filters: Vec<S::Filter> = (0..segments)
        .map(|segment| shape.build(&keys(segment)))
        .collect();
    let filter = |n: u64| below(n + 7, segments.into()) as usize;
    let (absent_ns, found) = best(|n| shape.contains(&filters[filter(n)], hash(ABSENT + n)).into());
    let (there_ns, there) = best(|n| {
        let segment = filter(n);
        let key = segment as u64 * KEYS + n % KEYS;
        shape.contains(&filters[segment], hash(key)).into()
    });
    assert_eq!(there, LOOKUPS);
    let large: Vec<u64> = (0..KEYS << 8).map(hash).collect();
    let large = shape.build(&large);
    let of_large = (0..LOOKUPS).filter(|n| shape.contains(&large, hash(ABSENT + n)));
    println!(
        "{:<14}{:>7.2} bits a key{:>9.4} %, {:.4} % of a large one, ns: {absent_ns:.0} absent, {there_ns:.0} there",
        shape.name(),
        shape.bits_per_100_keys() as f64 / 100.0,
        100.0 * found as f64 / LOOKUPS as f64,
        100.0 * of_large.count() as f64 / LOOKUPS as f64,
    );
}

/// Time of each operation at a load of [`LOAD`], with nothing removed before.
fn table(segments: u32) -> Result<(), Box<dyn std::error::Error>> {
    let objects = u64::from(segments) * KEYS;
    let mut table = CompactTable::new(CompactConfig {
        slots: (objects as f64 * 0.97) as usize,
        segment_bits: CompactConfig::segment_bits_for(segments.into()),
        skip_bits: 0,
    })?;
    let mut filters = SegmentFilters::new(segments as usize);
    for segment in 0..segments {
        let filter = SegmentFilter::build(&keys(segment));
        filters.set(SegmentId(segment), Some(filter));
    }
    let mut inserted = 0;
    while table.load() < LOAD {
        table.insert(hash(inserted), entry(inserted), last_collided);
        inserted += 1;
    }
    println!("{} entries, load {:.3}", table.len(), table.load());
    yardstick(table.memory_bytes());
    let filter_of = |segment| filters.get(segment);
    let (ns, entries) = best(|n| table.entries(hash(ABSENT + n)).count() as u64);
    println!("entries of a key: {ns:.0} ns, {:.2} of them", mean(entries));
    let (ns, reads) = best(|n| candidates(&table, filter_of, hash(ABSENT + n)).count() as u64);
    println!("look-up, a miss: {ns:.0} ns, {:.4} reads", mean(reads));
    // Of look-ups that find their key: one that does not counts no reads.
    let at = |n| {
        let key = below(n + 3, inserted);
        let own = entry(key).location;
        let mut candidates = candidates(&table, filter_of, hash(key));
        candidates.position(|(_, entry)| entry.location == own)
    };
    let (ns, found) = best(|n| at(n).is_some().into());
    let reads: usize = (0..LOOKUPS).filter_map(|n| Some(at(n)? + 1)).sum();
    println!(
        "look-up of what was inserted: {ns:.0} ns, {:.4} of it found, {:.4} reads",
        mean(found),
        reads as f64 / found as f64
    );
    let mut next = inserted;
    let (ns, _) = best(|_| {
        next += 1;
        let inserted = table.insert(hash(next), entry(next % objects), last_collided);
        inserted.displaced.is_some().into()
    });
    println!("insert, load {:.3}: {ns:.0} ns", table.load());
    let slots = table.slots();
    let begun = Instant::now();
    table.advance_hand(slots, |_, _| std::ops::ControlFlow::Continue(()));
    println!("hand: {:.1} ns a slot", ns_each(begun, slots as u64));
    let begun = Instant::now();
    table.sweep_segment(SegmentId(0), 0..slots, |slot, _| black_box(slot).0 > 0);
    println!("sweep: {:.1} ns a slot", ns_each(begun, slots as u64));
    Ok(())
}

/// Time of random reads of words of an array as large as a table, in groups of 16 independent reads.
fn yardstick(bytes: u64) {
    let words: Vec<u64> = (0..bytes / 8).collect();
    let (ns, sum) = best(|n| {
        let of = |probe| words[below(n << 4 | probe, words.len() as u64) as usize];
        (0..16).map(of).fold(0, u64::wrapping_add)
    });
    black_box(sum);
    println!("yardstick, 16 random words: {ns:.0} ns");
}

/// Mean time of [`LOOKUPS`] operations in the fastest of [`ROUNDS`], and the sum of their results.
fn best(mut operation: impl FnMut(u64) -> u64) -> (f64, u64) {
    let mut fastest = f64::INFINITY;
    let mut sum = 0u64;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let numbers = round * LOOKUPS / ROUNDS..(round + 1) * LOOKUPS / ROUNDS;
        sum = numbers.map(&mut operation).fold(sum, u64::wrapping_add);
        fastest = fastest.min(ns_each(begun, LOOKUPS / ROUNDS));
    }
    (fastest, sum)
}

fn mean(sum: u64) -> f64 {
    sum as f64 / LOOKUPS as f64
}

fn entry(key: u64) -> CompactEntry {
    let location = Location {
        segment: SegmentId((key / KEYS) as u32),
        function: (key % 16) as u8,
    };
    CompactEntry {
        location,
        rank: Rank::READ,
    }
}

fn keys(segment: u32) -> Vec<u64> {
    let first = u64::from(segment) * KEYS;
    (first..first + KEYS).map(hash).collect()
}

fn hash(n: u64) -> u64 {
    mix(n ^ 0x5851_f42d_4c95_7f2d)
}

/// A random number below `limit`.
fn below(n: u64, limit: u64) -> u64 {
    ((u128::from(mix(n)) * u128::from(limit)) >> 64) as u64
}

fn ns_each(begun: Instant, count: u64) -> f64 {
    begun.elapsed().as_nanos() as f64 / count as f64
}
