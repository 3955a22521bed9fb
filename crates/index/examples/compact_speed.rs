//! Measures the compact index: filters of several shapes, and time per operation.
//!
//! `cargo run --release -p flowstone-index --example compact_speed -- 4096`
//!
//! The argument is the number of segments, of 2 MiB with objects of 257 bytes. Hashes are a counter through a bijective
//! mixer, so every run does the same work.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use flowstone_index::compact::{
    CompactConfig, CompactEntry, CompactTable, FILTER_KEY_BITS, Location, Rank, SegmentFilter,
    SegmentFilters, candidates, last_collided,
};
use format::mapping::bloom::mix;
use format::segment::SegmentId;

/// Objects of 257 bytes in a segment of 2 MiB.
const KEYS: u64 = 8160;
const LOOKUPS: u64 = 2_000_000;
const LOAD: f64 = 0.94;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let segments: u32 = arguments.next().map_or(Ok(4096), |text| text.parse())?;
    println!("filters of {KEYS} keys, and of 256 times as many");
    println!(
        "shape           bits a key  bits of a key  false positives  of a large one  ns, absent  ns, there"
    );
    for bits_per_10_keys in [96, 97, 100, 104] {
        for lines in [1, 2, 4] {
            let key_bits = if bits_per_10_keys < 100 { 6 } else { 7 };
            measure(&Lines::new(lines, key_bits, bits_per_10_keys), segments);
        }
    }
    measure(&Unblocked, segments);
    table(segments)
}

/// A way to lay bits of keys out in a filter.
trait Shape {
    type Filter;
    fn name(&self) -> String;
    fn bits_per_10_keys(&self) -> u64;
    fn key_bits(&self) -> u32;
    fn build(&self, hashes: &[u64]) -> Self::Filter;
    fn contains(&self, filter: &Self::Filter, hash: u64) -> bool;
}

/// Bits of a key in so many lines of 64 bytes.
struct Lines {
    lines: u32,
    key_bits: u32,
    bits_per_10_keys: u64,
}

impl Lines {
    fn new(lines: u32, key_bits: u32, bits_per_10_keys: u64) -> Self {
        Self {
            lines,
            key_bits,
            bits_per_10_keys,
        }
    }

    fn bits(&self, all_lines: usize, hash: u64) -> impl Iterator<Item = usize> {
        const G: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = mix(hash);
        let lines = self.lines;
        let in_line = mix(!mixed);
        (0..self.key_bits).map(move |bit| {
            let of_line = mixed.wrapping_mul(G.wrapping_pow(bit * lines / self.key_bits));
            let line = (u128::from(of_line) * all_lines as u128) >> 64;
            let at = in_line.wrapping_mul(G.wrapping_pow(bit)) >> 55;
            line as usize * 512 + at as usize
        })
    }
}

impl Shape for Lines {
    type Filter = Box<[u64]>;

    fn name(&self) -> String {
        format!("{} line(s)", self.lines)
    }

    fn bits_per_10_keys(&self) -> u64 {
        self.bits_per_10_keys
    }

    fn key_bits(&self) -> u32 {
        self.key_bits
    }

    fn build(&self, hashes: &[u64]) -> Box<[u64]> {
        let lines = (hashes.len() as u64 * self.bits_per_10_keys).div_ceil(5120) as usize;
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

/// What the index has.
struct Unblocked;

impl Shape for Unblocked {
    type Filter = SegmentFilter;

    fn name(&self) -> String {
        "unblocked".to_owned()
    }

    fn bits_per_10_keys(&self) -> u64 {
        flowstone_index::compact::FILTER_BITS_PER_10_KEYS as u64
    }

    fn key_bits(&self) -> u32 {
        FILTER_KEY_BITS as u32
    }

    fn build(&self, hashes: &[u64]) -> SegmentFilter {
        SegmentFilter::build(hashes)
    }

    fn contains(&self, filter: &SegmentFilter, hash: u64) -> bool {
        filter.contains(hash)
    }
}

/// False positives of one shape, and the time of a probe of a random one of all filters.
fn measure<S: Shape>(shape: &S, segments: u32) {
    let filters: Vec<S::Filter> = (0..segments)
        .map(|segment| shape.build(&keys(segment)))
        .collect();
    let random = |n: u64| ((mix(n + 7) as u128 * u128::from(segments)) >> 64) as usize;
    let absent = LOOKUPS << 40;
    let begun = Instant::now();
    let found = (absent..absent + LOOKUPS)
        .filter(|&n| shape.contains(&filters[random(n)], hash(n)))
        .count();
    let absent_ns = ns(begun);
    let begun = Instant::now();
    let there = (0..LOOKUPS).filter(|&n| {
        let segment = random(n);
        let key = segment as u64 * KEYS + n % KEYS;
        shape.contains(&filters[segment], hash(key))
    });
    assert_eq!(there.count() as u64, LOOKUPS);
    let there_ns = ns(begun);
    let large: Vec<u64> = (0..KEYS << 8).map(hash).collect();
    let large = shape.build(&large);
    let of_large = (absent..absent + LOOKUPS).filter(|&n| shape.contains(&large, hash(n)));
    println!(
        "{:<16}{:>10}{:>15}{:>15.4} %{:>14.4} %{absent_ns:>12.0}{there_ns:>11.0}",
        shape.name(),
        shape.bits_per_10_keys() as f64 / 10.0,
        shape.key_bits(),
        100.0 * found as f64 / LOOKUPS as f64,
        100.0 * of_large.count() as f64 / LOOKUPS as f64,
    );
}

/// Time of each operation at a load of [`LOAD`], from which nothing has been removed.
fn table(segments: u32) -> Result<(), Box<dyn std::error::Error>> {
    let objects = u64::from(segments) * KEYS;
    let mut table = CompactTable::new(CompactConfig {
        slots: (objects as f64 * 0.97) as usize,
        segment_bits: CompactConfig::segment_bits_for(segments.into()),
        skip_bits: 0,
    })?;
    let mut filters = SegmentFilters::new(segments as usize);
    let begun = Instant::now();
    for segment in 0..segments {
        filters.set(
            SegmentId(segment),
            Some(SegmentFilter::build(&keys(segment))),
        );
    }
    let build_ns = ns_each(begun, objects);
    let begun = Instant::now();
    let mut n = 0;
    while table.load() < LOAD {
        let location = Location {
            segment: SegmentId((n / KEYS) as u32),
            function: (n % 16) as u8,
        };
        let entry = CompactEntry {
            location,
            rank: Rank::READ,
        };
        table.insert(hash(n), entry, last_collided);
        n += 1;
    }
    println!("{} entries, load {:.3}", table.len(), table.load());
    println!(
        "ns: filter, a key {build_ns:.0}, insert {:.0}",
        ns_each(begun, n)
    );
    let filter_of = |segment| filters.get(segment);
    let begun = Instant::now();
    let reads: usize = (0..LOOKUPS)
        .map(|n| candidates(&table, filter_of, hash(LOOKUPS << 40 | n)).count())
        .sum();
    println!(
        "ns: look-up, miss {:.0}, {:.4} reads",
        ns(begun),
        reads as f64 / LOOKUPS as f64
    );
    let begun = Instant::now();
    let (mut reads, mut found) = (0, 0);
    for draw in 0..LOOKUPS {
        let key = ((mix(draw + 3) as u128 * u128::from(n)) >> 64) as u64;
        let segment = SegmentId((key / KEYS) as u32);
        let mut candidates = candidates(&table, filter_of, hash(key));
        if let Some(at) = candidates.position(|(_, entry)| entry.location.segment == segment) {
            (reads, found) = (reads + at + 1, found + 1);
        }
    }
    println!(
        "ns: look-up of what was inserted {:.0}, {:.4} of it found, {:.4} reads",
        ns(begun),
        f64::from(found) / LOOKUPS as f64,
        reads as f64 / f64::from(found)
    );
    let begun = Instant::now();
    let entries: usize = (0..LOOKUPS).map(|n| table.entries(hash(n)).count()).sum();
    println!("ns: entries of a key {:.0}, {entries} in all", ns(begun));
    let begun = Instant::now();
    let slots = table.slots();
    table.advance_hand(slots, |_, _| std::ops::ControlFlow::Continue(()));
    println!("ns: hand, a slot {:.1}", ns_each(begun, slots as u64));
    let begun = Instant::now();
    table.sweep_segment(SegmentId(0), 0..slots, |slot, _| black_box(slot).0 > 0);
    println!("ns: sweep, a slot {:.1}", ns_each(begun, slots as u64));
    Ok(())
}

fn keys(segment: u32) -> Vec<u64> {
    let first = u64::from(segment) * KEYS;
    (first..first + KEYS).map(hash).collect()
}

fn hash(n: u64) -> u64 {
    mix(n ^ 0x5851_f42d_4c95_7f2d)
}

fn ns(begun: Instant) -> f64 {
    ns_each(begun, LOOKUPS)
}

fn ns_each(begun: Instant, count: u64) -> f64 {
    begun.elapsed().as_nanos() as f64 / count as f64
}
