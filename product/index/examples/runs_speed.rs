//! Measures the index of sorted runs: bits an object, reads of a hit and of a miss, time of a look-up, of building and of
//! adding a run; beside a sliced fuse filter, the second choice.
//!
//! `cargo run --release --manifest-path product/Cargo.toml -p flowstone-index --example runs_speed -- [OBJECTS]`
//!
//! Keys are a counter through a bijective mixer, so every run of it does the same work.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use flowstone_index::runs::{PageBoundaries, RibbonKey, RibbonShape, SlicedRibbon, Solver};

/// Objects of a run.
const RUN: u32 = 2000;
const LOOKUPS: u64 = 2_000_000;
const PAGE_BYTES: u64 = 4080;
const OBJECT_BYTES: u64 = 324;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let objects: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(24_000_000), |text| text.parse())?;
    println!(
        "{objects} objects in runs of {RUN}; pages of {PAGE_BYTES} B, objects of {OBJECT_BYTES} B that may cross them"
    );
    println!(
        "{:>6} {:>4} {:>10} {:>6} {:>10} {:>6} {:>6} {:>23} {:>23} {:>9} {:>9}",
        "",
        "runs",
        "bits a key",
        "left",
        "boundaries",
        "hit",
        "miss",
        "ns absent ovl / dep",
        "ns present ovl / dep",
        "build us",
        "add us"
    );
    for runs in [16_u32, 64, 128] {
        let bits = (4 * runs).next_power_of_two().ilog2();
        let partitions = (objects / u64::from(RUN) / u64::from(runs)).max(1) as usize;
        measure::<SlicedRibbon>("ribbon", partitions, runs, bits)?;
        measure::<SlicedFuse>("fuse", partitions, runs, bits)?;
    }
    Ok(())
}

/// A filter of all runs of a partition.
trait Filter: Sized {
    fn empty(runs: u32, bits: u32) -> Result<Self, Box<dyn std::error::Error>>;
    /// Adds a run of the keys, in the order of their hashes. Returns the keys that it holds and the nanoseconds of the build
    /// and of the addition.
    fn add(&mut self, keys: Vec<RibbonKey>) -> (Vec<RibbonKey>, [u128; 2]);
    /// Returns the number of runs that may hold a key, and that of the newest one.
    fn ask(&self, key: &RibbonKey) -> (u32, Option<u32>);
    fn bits(&self) -> usize;
}

impl Filter for SlicedRibbon {
    fn empty(runs: u32, bits: u32) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Self::new(RibbonShape::new(RUN, bits)?, runs)?)
    }

    fn add(&mut self, mut keys: Vec<RibbonKey>) -> (Vec<RibbonKey>, [u128; 2]) {
        let start = Instant::now();
        let mut solver = Solver::new(self.shape());
        keys.retain(|key| solver.insert(key));
        let solution = solver.solve();
        let built = start.elapsed().as_nanos();
        let start = Instant::now();
        self.publish(&solution);
        (keys, [built, start.elapsed().as_nanos()])
    }

    fn ask(&self, key: &RibbonKey) -> (u32, Option<u32>) {
        let mut candidates = self.candidates(key);
        (candidates.len(), candidates.next())
    }

    fn bits(&self) -> usize {
        self.memory_bytes() * 8
    }
}

/// A sliced filter of three rows a key, of neighbouring parts, solved by peeling; keys that do not peel are left behind.
struct SlicedFuse {
    runs: u32,
    bits: u32,
    /// Rows of whole words.
    rows: Vec<u64>,
    row_words: usize,
    added: u32,
}

impl SlicedFuse {
    const SLOTS: u32 = RUN * 104 / 100;
    const PART: u32 = 32;

    fn slots_of(key: &RibbonKey) -> [usize; 3] {
        let starts = u64::from(Self::SLOTS - 3 * Self::PART);
        let start = ((u64::from(key.order) * starts) >> 32) as u32;
        [0, 1, 2].map(|part| {
            let within = key.coefficients >> (part * 5) & (Self::PART - 1);
            (start + part * Self::PART + within) as usize
        })
    }

    /// Returns the keys that peel, each with the number of the slot that it alone has, in the order of peeling. When no key
    /// has a slot alone, one is left behind.
    fn peel(keys: &[RibbonKey]) -> Vec<(usize, usize)> {
        let mut counts = vec![(0_u32, 0_usize); Self::SLOTS as usize];
        for (number, key) in keys.iter().enumerate() {
            for slot in Self::slots_of(key) {
                counts[slot].0 += 1;
                counts[slot].1 ^= number;
            }
        }
        let mut alone: Vec<usize> = (0..counts.len())
            .filter(|slot| counts[*slot].0 == 1)
            .collect();
        let (mut peeled, mut is_gone) = (Vec::new(), vec![false; keys.len()]);
        for stuck in 0..keys.len() {
            let mut leaving = (!is_gone[stuck]).then_some(stuck);
            loop {
                // Keys that peel go before one is left behind.
                let next = match alone.pop() {
                    Some(slot) if counts[slot].0 == 1 => {
                        peeled.push((counts[slot].1, slot));
                        Some(counts[slot].1)
                    }
                    Some(_) => continue,
                    None => leaving.take().filter(|number| !is_gone[*number]),
                };
                let Some(number) = next else { break };
                is_gone[number] = true;
                for slot in Self::slots_of(&keys[number]) {
                    counts[slot].0 -= 1;
                    counts[slot].1 ^= number;
                    if counts[slot].0 == 1 {
                        alone.push(slot);
                    }
                }
            }
        }
        peeled
    }
}

impl Filter for SlicedFuse {
    fn empty(runs: u32, bits: u32) -> Result<Self, Box<dyn std::error::Error>> {
        let row_words = (runs * bits).div_ceil(64) as usize;
        Ok(Self {
            runs,
            bits,
            rows: vec![0; row_words * Self::SLOTS as usize + 1],
            row_words,
            added: 0,
        })
    }

    fn add(&mut self, keys: Vec<RibbonKey>) -> (Vec<RibbonKey>, [u128; 2]) {
        let start = Instant::now();
        let peeled = Self::peel(&keys);
        let mut values = vec![0_u16; Self::SLOTS as usize];
        for &(number, slot) in peeled.iter().rev() {
            let others = Self::slots_of(&keys[number]).map(|other| values[other]);
            values[slot] ^= others[0] ^ others[1] ^ others[2] ^ keys[number].fingerprint;
        }
        let built = start.elapsed().as_nanos();
        let start = Instant::now();
        for (row, value) in self.rows.chunks_exact_mut(self.row_words).zip(&values) {
            for bit in 0..self.bits {
                let at = bit * self.runs + self.added;
                row[at as usize / 64] |= u64::from(value >> bit & 1) << (at % 64);
            }
        }
        self.added += 1;
        let mut held: Vec<_> = peeled.iter().map(|&(number, _)| keys[number]).collect();
        let added = start.elapsed().as_nanos();
        held.sort_by_key(|key| key.order);
        (held, [built, added])
    }

    fn ask(&self, key: &RibbonKey) -> (u32, Option<u32>) {
        let mut sums = [0; 20];
        for slot in Self::slots_of(key) {
            let row = &self.rows[slot * self.row_words..][..self.row_words];
            for (sum, word) in sums.iter_mut().zip(row) {
                *sum ^= word;
            }
        }
        let mut found = u128::MAX >> (128 - self.runs);
        for bit in 0..self.bits {
            let own = u128::from(key.fingerprint >> bit & 1).wrapping_neg();
            let at = (bit * self.runs) as usize;
            let [low, middle, high] = [0, 1, 2].map(|word| u128::from(sums[at / 64 + word]));
            let shift = at % 64;
            let word = (low | middle << 64) >> shift | high << (64 - shift) << 64;
            found &= !(word ^ own);
        }
        (found.count_ones(), (found != 0).then(|| found.ilog2()))
    }

    fn bits(&self) -> usize {
        (Self::SLOTS * self.runs * self.bits) as usize
    }
}

fn measure<F: Filter>(
    name: &str,
    partitions: usize,
    runs: u32,
    bits: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut filters = Vec::new();
    let (mut held_keys, mut boundary_bits, mut times, mut pages) = (0, 0, [0; 2], 0);
    // Some of the keys that are held: their partition, and the run.
    let mut present = Vec::new();
    let mut next = 0;
    for partition in 0..partitions {
        let mut filter = F::empty(runs, bits)?;
        for run in 0..runs {
            let mut keys: Vec<_> = (next..next + u64::from(RUN)).map(key).collect();
            next += u64::from(RUN);
            keys.sort_unstable_by_key(|key| key.order);
            let (held, spent) = filter.add(keys);
            held_keys += held.len();
            times = [times[0] + spent[0], times[1] + spent[1]];
            let boundaries = boundaries(&held);
            boundary_bits += boundaries.memory_bytes() * 8;
            for key in held.iter().step_by(97) {
                pages += boundaries.pages_of(key.order).count();
                present.push((partition, *key, run));
            }
        }
        filters.push(filter);
    }
    let (mut wrong, mut lost) = (0, 0);
    for (partition, key, run) in &present {
        let (found, _) = filters[*partition].ask(key);
        // Half of the other answers come before the right one.
        wrong += u64::from(found) - 1;
        lost += u64::from(found == 0);
        black_box(run);
    }
    assert_eq!(lost, 0, "a key that is held is found");
    let absent: Vec<_> = (0..LOOKUPS)
        .map(|number| {
            let mixed = mix(number ^ 1 << 60);
            (mixed as usize % partitions, key(number | 1 << 61))
        })
        .collect();
    let misses: u64 = absent
        .iter()
        .map(|(partition, key)| u64::from(filters[*partition].ask(key).0))
        .sum();
    let present: Vec<_> = (0..LOOKUPS)
        .map(|number| present[mix(number) as usize % present.len()])
        .map(|(partition, key, _)| (partition, key))
        .collect();
    let [absent_ns, present_ns] = [&absent, &present].map(|keys| {
        [false, true].map(|waits| {
            (0..3)
                .map(|_| look_up(&filters, keys, waits))
                .fold(f64::MAX, f64::min)
        })
    });
    let added = (partitions as u32 * runs) as f64;
    let total_bits: usize = filters.iter().map(F::bits).sum();
    println!(
        "{name:>6} {runs:4} {:10.2} {:5.1}% {:10.2} {:6.3} {:6.3} {:11.0} / {:<9.0} {:11.0} / {:<9.0} {:9.1} {:9.1}",
        total_bits as f64 / held_keys as f64,
        100.0 - 100.0 * held_keys as f64 / (added * f64::from(RUN)),
        boundary_bits as f64 / held_keys as f64,
        1.0 + wrong as f64 / 2.0 / (held_keys as f64 / 97.0),
        misses as f64 / LOOKUPS as f64,
        absent_ns[0],
        absent_ns[1],
        present_ns[0],
        present_ns[1],
        times[0] as f64 / added / 1e3,
        times[1] as f64 / added / 1e3,
    );
    let pages = pages as f64 / (held_keys as f64 / 97.0);
    println!("{:>28} pages a read {pages:.3}", "");
    Ok(())
}

/// Nanoseconds of a look-up; each waits for the one before if `waits`.
fn look_up<F: Filter>(filters: &[F], keys: &[(usize, RibbonKey)], waits: bool) -> f64 {
    let start = Instant::now();
    let mut last = 0;
    for (partition, key) in keys {
        let mut key = *key;
        if waits {
            key.order = key.order.wrapping_add(last >> 10);
        }
        let (found, newest) = filters[*partition].ask(&key);
        last = if waits {
            (found + newest.unwrap_or(0)) & 1023
        } else {
            last | found
        };
    }
    black_box(last);
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

/// The boundaries of the pages of a run.
fn boundaries(keys: &[RibbonKey]) -> PageBoundaries {
    let mut found = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let end = (number as u64 + 1) * OBJECT_BYTES;
        while (found.len() as u64 + 1) * PAGE_BYTES < end {
            found.push(key.order);
        }
    }
    PageBoundaries::new(keys.len() as u32, &found)
}

fn key(number: u64) -> RibbonKey {
    let (low, high) = (mix(number), mix(number ^ 0x5bf0_3635_dcf9_1e27));
    RibbonKey {
        order: low as u32,
        coefficients: (low >> 32) as u32,
        fingerprint: high as u16,
    }
}

fn mix(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
