//! The cascade against a plain map: whatever is moved, read back or lost, no answer is older than the last change.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Latency, MemoryDisk, PAGE_BYTES, Region};
use format::cascade::NumberedSegment;
use format::segment::Position;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::pages::PagePool;
use runtime::sim::Sim;

use super::*;

const IMAGE: u64 = 0xfeed;
const POSITION_BITS: u32 = 12;
const REGION_PAGES: usize = 3000;

/// Segments as numbers: those in a range are there.
struct Numbers(Mutex<std::ops::Range<u32>>);

impl Segments for Numbers {
    fn named_by(&self, code: u64) -> Option<(u32, Position)> {
        let number = (code >> POSITION_BITS) as u32;
        let position = Position::from_bits(code as u32 & ((1 << POSITION_BITS) - 1));
        self.0
            .lock()
            .contains(&number)
            .then_some((number, position))
    }

    fn code(&self, number: u32, position: Position) -> Option<u64> {
        let is_there = self.0.lock().contains(&number);
        is_there.then_some(u64::from(number) << POSITION_BITS | u64::from(position.bits()))
    }

    fn horizon(&self) -> u32 {
        self.0.lock().start
    }

    fn failed_syncs(&self) -> u64 {
        0
    }
}

fn config() -> CascadeConfig {
    CascadeConfig {
        sizes: Sizes {
            partitions: Some(2),
            direct_blocks: Some(3),
            active_blocks: Some(3),
            ..Sizes::default()
        },
        ..CascadeConfig::new(4000, 34)
    }
}

fn hash_of(key: u64) -> u64 {
    let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

struct Bench {
    disk: Arc<MemoryDisk>,
    numbers: Arc<Numbers>,
    cascade: Arc<Cascade>,
    /// By key, what was last said of it.
    model: HashMap<u64, Option<u64>>,
    next: u64,
}

fn cascade_on(disk: &Arc<MemoryDisk>, numbers: &Arc<Numbers>, config: CascadeConfig) -> Cascade {
    let bytes = (REGION_PAGES * PAGE_BYTES) as u64;
    let disk = Arc::clone(disk);
    let region = Region::new(disk, 0, bytes).expect("whole pages");
    let segments = Arc::clone(numbers) as Arc<dyn Segments>;
    let pool = Arc::new(PagePool::new(1 << 20));
    Cascade::new(config, region, IMAGE, segments, &pool).expect("a cascade")
}

impl Bench {
    fn new(config: CascadeConfig) -> Self {
        let bytes = (REGION_PAGES * PAGE_BYTES) as u64;
        let disk = Arc::new(MemoryDisk::with_latency(bytes, Latency::default()));
        let numbers = Arc::new(Numbers(Mutex::new(0..1)));
        let cascade = Arc::new(cascade_on(&disk, &numbers, config));
        Self {
            disk,
            numbers,
            cascade,
            model: HashMap::new(),
            next: 0,
        }
    }

    /// A new place: segments have a few hundred, and the oldest go.
    fn place(&mut self, segments: u32) -> u64 {
        self.next += 1;
        let number = (self.next / 300) as u32;
        let mut range = self.numbers.0.lock();
        if number >= range.end {
            let start = (number + 1).saturating_sub(segments).max(range.start);
            *range = start..number + 1;
        }
        (u64::from(number) << POSITION_BITS) | (self.next % 300)
    }

    async fn tidy(&self) {
        for number in 0..self.cascade.partitions() {
            while self.cascade.tidy(number).await {}
        }
    }

    async fn insert(&mut self, key: u64, segments: u32) {
        let code = self.place(segments);
        while self.cascade.insert(hash_of(key), code, false).is_err() {
            self.tidy().await;
        }
        self.model.insert(key, Some(code));
    }

    fn bury(&mut self, key: u64) {
        self.cascade.bury(hash_of(key));
        self.model.insert(key, None);
    }

    fn expected(&self, key: u64) -> Option<u64> {
        let code = self.model.get(&key).copied().flatten()?;
        self.numbers.named_by(code).map(|_| code)
    }

    async fn check(&self, key: u64) {
        let found = match self.cascade.search(hash_of(key)).await {
            Searched::At(code, _) => self.numbers.named_by(code).map(|_| code),
            Searched::Absent => None,
            Searched::Unreadable => panic!("key {key}: unreadable"),
        };
        assert_eq!(found, self.expected(key), "key {key}");
    }

    /// Random work on `keys` keys.
    async fn work(&mut self, random: &mut SmallRng, steps: u32, keys: u64, segments: u32) {
        for _ in 0..steps {
            // Some keys are asked for more than others.
            let key = random.random_range(0..keys) * random.random_range(0..keys) / keys;
            match random.random_range(0..10) {
                0..4 => self.insert(key, segments).await,
                4 => self.bury(key),
                _ => self.check(key).await,
            }
            if random.random_range(0..50) == 0 {
                let number = random.random_range(0..self.cascade.partitions());
                self.cascade.tidy(number).await;
            }
        }
    }

    async fn save(&self, is_last: bool) -> Vec<u8> {
        let range = self.numbers.0.lock().clone();
        let segments = move || {
            let numbered = |number: u32| NumberedSegment {
                generation: u64::from(number).into(),
                segment: number.into(),
                number: number.into(),
                items: 0.into(),
            };
            (range.clone().map(numbered).collect(), range.end)
        };
        self.cascade.save(is_last, segments).await.expect("saved")
    }

    async fn load(&mut self, section: &[u8]) {
        self.cascade = Arc::new(cascade_on(&self.disk, &self.numbers, self.cascade.config));
        let loaded = self.cascade.load(section).await.expect("loaded");
        self.cascade.resume(loaded);
    }
}

fn in_simulation<F: Future>(seed: u64, work: impl FnOnce() -> F) -> F::Output {
    Sim::new(seed).block_on(async { work().await })
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let number = |name| {
        let value: Option<String> = std::env::var(name).ok();
        value.map(|value| value.parse().expect("a number"))
    };
    match number("FLOWSTONE_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("FLOWSTONE_CASES").unwrap_or(8),
    }
}

#[test]
fn the_newest_mapping_is_found_in_whatever_tier_it_is() {
    for seed in seeds() {
        for filter_bits in [0, 8] {
            eprintln!("seed {seed}, {filter_bits} bits");
            in_simulation(seed, || async {
                let mut random = SmallRng::seed_from_u64(seed);
                let config = CascadeConfig {
                    filter_bits,
                    ..config()
                };
                let mut bench = Bench::new(config);
                bench.work(&mut random, 60_000, 12_000, 40).await;
                for key in 0..12_000 {
                    bench.check(key).await;
                }
                let counters = &bench.cascade.counters;
                for count in [
                    &counters.tier1_hits,
                    &counters.tier2_hits,
                    &counters.tier3_hits,
                    &counters.compactions,
                ] {
                    assert!(count.load(Ordering::Relaxed) > 5, "{counters:?}");
                }
                assert_eq!(counters.evicted.load(Ordering::Relaxed), 0);
            });
        }
    }
}

#[test]
fn a_peek_finds_what_a_search_finds_and_leaves_no_trace() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        in_simulation(seed, || async {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut bench = Bench::new(config());
            bench.work(&mut random, 60_000, 12_000, 40).await;
            let (cascade, mut tiers) = (&bench.cascade, [0; 3]);
            let before = format!("{:?}", cascade.counters);
            let held = |key| cascade.lookup(hash_of(key));
            let of_tier1: Vec<_> = (0..12_000).map(held).collect();
            for key in 0..12_000 {
                let found = match cascade.peek(hash_of(key)).await {
                    Searched::At(code, tier) => {
                        tiers[tier as usize] += 1;
                        bench.numbers.named_by(code).map(|_| code)
                    }
                    Searched::Absent => None,
                    Searched::Unreadable => panic!("key {key}: unreadable"),
                };
                assert_eq!(found, bench.expected(key), "key {key}");
            }
            assert!(tiers.iter().all(|&found| found > 5), "{tiers:?}");
            assert_eq!(format!("{:?}", cascade.counters), before);
            assert_eq!((0..12_000).map(held).collect::<Vec<_>>(), of_tier1);
        });
    }
}

#[test]
fn what_names_nothing_any_more_is_let_go_of_where_memory_is_short() {
    in_simulation(1, || async {
        let mut random = SmallRng::seed_from_u64(1);
        let mut bench = Bench::new(config());
        bench.work(&mut random, 60_000, 12_000, 1000).await;
        bench.tidy().await;
        let full = bench.cascade.usage();
        bench.cascade.trim();
        assert_eq!(bench.cascade.usage(), full, "all are there");
        // All segments but the last two go.
        {
            let mut range = bench.numbers.0.lock();
            range.start = range.end - 2;
        }
        bench.cascade.trim();
        let left = bench.cascade.usage();
        assert!(
            left.below_bytes * 4 < full.below_bytes * 3,
            "{left:?} {full:?}"
        );
        assert!(left.pages_used * 2 < full.pages_used, "{left:?} {full:?}");
        for key in 0..12_000 {
            bench.check(key).await;
        }
        bench.work(&mut random, 20_000, 12_000, 40).await;
    });
}

#[test]
fn what_is_saved_is_as_it_was() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        in_simulation(seed, || async {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut bench = Bench::new(config());
            for _ in 0..4 {
                bench.work(&mut random, 10_000, 6000, 40).await;
                let section = bench.save(random.random()).await;
                bench.cascade.saved(Some(true));
                let model = bench.model.clone();
                // What comes later is lost, and harms nothing.
                bench.work(&mut random, 10_000, 6000, 1000).await;
                bench.tidy().await;
                bench.model = model;
                bench.load(&section).await;
                for key in 0..6000 {
                    bench.check(key).await;
                }
            }
        });
    }
}
