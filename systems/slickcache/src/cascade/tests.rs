//! The cascade against a plain map: after any move, reload or loss no answer is older than the last change.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{AlignedBuf, Disk as _, Latency, MemoryDisk, PAGE_BYTES, Region, SharedBuf};
use format::segment::Position;
use on_flash::NumberedSegment;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::pages::PagePool;
use runtime::sim::Sim;

use super::*;

mod moves;
mod region;

const IMAGE: u64 = 0xfeed;
const POSITION_BITS: u32 = 12;
const REGION_PAGES: usize = 3000;

/// Segments as numbers: those in a range exist.
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
    /// The last change of each key.
    model: HashMap<u64, Option<u64>>,
    next: u64,
}

fn cascade_on(disk: &Arc<MemoryDisk>, numbers: &Arc<Numbers>, config: CascadeConfig) -> Cascade {
    let bytes = (REGION_PAGES * PAGE_BYTES) as u64;
    let disk = Arc::clone(disk);
    let region = Region::new(disk, 0, bytes).expect("whole pages");
    let segments = Arc::clone(numbers) as Arc<dyn Segments>;
    let pool = Arc::new(PagePool::new(1 << 20));
    Cascade::new(config, region, IMAGE, segments, &pool, &Arc::default()).expect("a cascade")
}

impl Bench {
    fn new(config: CascadeConfig) -> Self {
        Self::with_latency(config, Latency::default())
    }

    fn with_latency(config: CascadeConfig, latency: Latency) -> Self {
        let bytes = (REGION_PAGES * PAGE_BYTES) as u64;
        let disk = Arc::new(MemoryDisk::with_latency(bytes, latency));
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

    /// Returns a new place. Segments have a few hundred places, and the oldest segments go.
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

    /// Maps these keys to new places, one after the other.
    async fn insert_all(&mut self, keys: impl Iterator<Item = u64>) {
        for key in keys {
            self.insert(key, u32::MAX).await;
            self.tidy().await;
        }
    }

    async fn check_all(&self, keys: std::ops::Range<u64>) {
        for key in keys {
            self.check(key).await;
        }
    }

    async fn tidy(&self) {
        for number in 0..self.cascade.tiers.partitions() {
            while self.cascade.upkeep(number).tidy().await {}
        }
    }

    async fn insert(&mut self, key: u64, segments: u32) {
        let code = self.place(segments);
        while self
            .cascade
            .tiers
            .insert(hash_of(key), code, false)
            .is_err()
        {
            self.tidy().await;
        }
        self.model.insert(key, Some(code));
    }

    fn bury(&mut self, key: u64) {
        self.cascade.tiers.bury(hash_of(key));
        self.model.insert(key, None);
    }

    fn expected(&self, key: u64) -> Option<u64> {
        let code = self.model.get(&key).copied().flatten()?;
        self.numbers.named_by(code).map(|_| code)
    }

    async fn check(&self, key: u64) {
        let found = match self.cascade.searches.search(hash_of(key)).await {
            Searched::At(code, _) => self.numbers.named_by(code).map(|_| code),
            Searched::Absent => None,
            Searched::Unreadable => panic!("key {key}: unreadable"),
        };
        assert_eq!(found, self.expected(key), "key {key}");
    }

    /// Random work on `keys` keys.
    async fn work(&mut self, random: &mut SmallRng, steps: u32, keys: u64, segments: u32) {
        for _ in 0..steps {
            // Some keys are asked for more often than others.
            let key = random.random_range(0..keys) * random.random_range(0..keys) / keys;
            match random.random_range(0..10) {
                0..4 => self.insert(key, segments).await,
                4 => self.bury(key),
                _ => self.check(key).await,
            }
            if random.random_range(0..50) == 0 {
                let number = random.random_range(0..self.cascade.tiers.partitions());
                self.cascade.upkeep(number).tidy().await;
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
        self.cascade
            .checkpoints
            .save(is_last, segments)
            .await
            .expect("saved")
    }

    async fn load(&mut self, section: &[u8]) {
        self.cascade = Arc::new(cascade_on(&self.disk, &self.numbers, self.cascade.config));
        let loaded = self
            .cascade
            .checkpoints
            .load(section)
            .await
            .expect("loaded");
        self.cascade.checkpoints.resume(loaded);
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

/// Settings to test: filters in memory, jump lists of two and of more blocks, none, whole blocks, other replacements.
fn variant(seed: u64) -> CascadeConfig {
    let with = |filter_bits, change: fn(&mut CascadeConfig)| {
        let mut config = CascadeConfig {
            filter_bits,
            ..config()
        };
        change(&mut config);
        config
    };
    let all = [
        with(8, |_| ()),
        with(0, |_| ()),
        with(0, |config| config.jump_lists = false),
        with(0, |config| {
            config.sizes.active_blocks = Some(11);
            config.sizes.page_entries = Some(40);
            config.sizes.active_pages = Some(2);
        }),
        with(0, |config| {
            config.whole_blocks = true;
            config.batch = 2;
            config.sizes.direct_pages = Some(3);
            config.sizes.active_pages = Some(2);
        }),
        with(5, |config| {
            config.whole_blocks = true;
            config.replacement = Replacement::Lru;
        }),
        with(8, |config| config.replacement = Replacement::Fifo),
    ];
    all[seed as usize % all.len()]
}

#[test]
fn the_newest_mapping_is_found_in_whatever_tier_it_is() {
    for seed in seeds() {
        let config = variant(seed);
        eprintln!("seed {seed}, {config:?}");
        assert_eq!(config.check(), Ok(()));
        in_simulation(seed, || async {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut bench = Bench::new(config);
            bench.work(&mut random, 30_000, 12_000, 40).await;
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
                assert!(count.load(Ordering::Relaxed) > 3, "{counters:?}");
            }
            assert_eq!(counters.evicted.load(Ordering::Relaxed), 0);
        });
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
            let held = |key| cascade.tiers.lookup(hash_of(key));
            let of_tier1: Vec<_> = (0..12_000).map(held).collect();
            for key in 0..12_000 {
                let found = match cascade.searches.peek(hash_of(key)).await {
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
        // All segments but the last five go.
        {
            let mut range = bench.numbers.0.lock();
            range.start = range.end - 5;
        }
        bench.cascade.trim();
        let left = bench.cascade.usage();
        let filter = &bench.cascade.tiers.layouts.active.page_filter;
        for partition in &bench.cascade.tiers.partitions {
            let partition = partition.lock();
            for bucket in partition.lists.iter().flat_map(|list| &list.buckets) {
                assert!(!bucket.lacks_filters(filter), "what is left has its own");
            }
        }
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
fn filters_are_for_the_pages_that_were_read() {
    in_simulation(1, || async {
        let mut random = SmallRng::seed_from_u64(1);
        let mut bench = Bench::new(config());
        bench.work(&mut random, 60_000, 12_000, 1000).await;
        bench.tidy().await;
        let filter = &bench.cascade.tiers.layouts.active.page_filter;
        let partition = &mut *bench.cascade.tiers.partitions[0].lock();
        let mut buckets = partition
            .lists
            .iter_mut()
            .flat_map(|list| &mut list.buckets);
        let bucket = buckets.find(|bucket| bucket.pages.len() > 1);
        let bucket = bucket.expect("a bucket of several pages");
        let read: Vec<_> = bucket.pages.iter().map(|page| page.page).collect();
        let filters = vec![0; read.len() * filter.bytes];
        bucket.set_filters(&read, Vec::new());
        // The oldest page is dropped while the pages are read.
        bucket.drop_oldest(filter, 1);
        bucket.set_filters(&read, filters.clone());
        assert!(bucket.lacks_filters(filter), "read again");
        bucket.set_filters(&read[1..], filters[filter.bytes..].to_vec());
        assert!(!bucket.lacks_filters(filter));
    });
}

#[test]
fn who_stores_waits_where_tombstones_or_an_earlier_run_have_filled_tier_1() {
    in_simulation(1, || async {
        let mut random = SmallRng::seed_from_u64(1);
        let mut bench = Bench::new(CascadeConfig {
            spare_bytes: 0,
            ..config()
        });
        bench.work(&mut random, 60_000, 12_000, 1000).await;
        bench.tidy().await;
        assert!(!bench.cascade.tiers.brake.is_pressed());
        for key in 0..12_000 {
            bench.cascade.tiers.bury(hash_of(key));
            bench.model.insert(key, None);
        }
        assert!(
            bench.cascade.tiers.brake.is_pressed(),
            "what is placed now would be refused"
        );
        let section = bench.save(false).await;
        bench.cascade.checkpoints.saved(Some(false));
        bench.load(&section).await;
        assert!(
            bench.cascade.tiers.brake.is_pressed(),
            "nor would a recovery find space"
        );
        bench.tidy().await;
        assert!(!bench.cascade.tiers.brake.is_pressed());
        for key in 0..12_000 {
            bench.check(key).await;
        }
    });
}

#[test]
fn what_is_saved_is_as_it_was() {
    for seed in seeds() {
        let config = variant(seed);
        eprintln!("seed {seed}, {config:?}");
        in_simulation(seed, || async {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut bench = Bench::new(config);
            for _ in 0..3 {
                bench.work(&mut random, 5_000, 6000, 40).await;
                let section = bench.save(random.random()).await;
                bench.cascade.checkpoints.saved(Some(true));
                let model = bench.model.clone();
                // Later changes are lost, and harm nothing.
                bench.work(&mut random, 5_000, 6000, 1000).await;
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

/// One list of up to 64 blocks of a page, and next to nothing above it.
fn long_list() -> CascadeConfig {
    CascadeConfig {
        filter_bits: 0,
        sizes: Sizes {
            partitions: Some(1),
            direct_blocks: Some(1),
            direct_pages: Some(1),
            lists: Some(1),
            active_blocks: Some(64),
            active_pages: Some(1),
            ratio: Some(4),
            hot_entries: Some(40),
            page_entries: Some(40),
        },
        ..CascadeConfig::new(4000, 34)
    }
}

impl Bench {
    /// A list of 63 blocks.
    async fn with_a_long_list(config: CascadeConfig) -> Self {
        let mut bench = Self::new(config);
        let blocks = |bench: &Self| {
            bench.cascade.tiers.partitions[0].lock().lists[0]
                .blocks
                .len()
        };
        for key in 0.. {
            bench.insert(key, 1000).await;
            bench.tidy().await;
            if blocks(&bench) == 63 {
                return bench;
            }
        }
        unreachable!("keys do not end");
    }

    /// Average number of pages that a look-up of these keys reads.
    async fn reads(&self, keys: std::ops::Range<u64>) -> f64 {
        let counters = &self.cascade.counters;
        let read = || {
            let [two, three, absent] = [
                &counters.tier2_reads,
                &counters.tier3_reads,
                &counters.absent_reads,
            ]
            .map(|reads| reads.load(Ordering::Relaxed));
            two + three + absent
        };
        let (before, count) = (read(), keys.end - keys.start);
        for key in keys {
            self.check(key).await;
        }
        (read() - before) as f64 / count as f64
    }
}

/// Section 4.1.3: no more than twice the root of the list's length.
#[test]
fn a_jump_list_is_walked_in_twice_the_root_of_its_length() {
    in_simulation(1, || async {
        let bench = Bench::with_a_long_list(long_list()).await;
        let walked = Bench::with_a_long_list(CascadeConfig {
            jump_lists: false,
            ..long_list()
        })
        .await;
        let absent = 1_000_000..1_000_500;
        // 7 filters, 7 blocks that no filter covers yet, a block of Tier 2.
        let with = bench.reads(absent.clone()).await;
        assert!((14.0..16.5).contains(&with), "{with} pages");
        let without = walked.reads(absent).await;
        assert!(without > 60.0, "{without} pages");
        // The oldest: all filters, and their blocks.
        let oldest = bench.reads(0..200).await;
        assert!(oldest < 25.0, "{oldest} pages");
        let oldest = walked.reads(0..200).await;
        assert!(oldest > 55.0, "{oldest} pages");
    });
}

#[test]
fn a_torn_filter_of_a_list_denies_nothing() {
    in_simulation(1, || async {
        let bench = Bench::with_a_long_list(long_list()).await;
        let pages: Vec<_> = {
            let partition = bench.cascade.tiers.partitions[0].lock();
            let blocks = partition.lists[0].blocks.iter();
            blocks
                .flat_map(|block| block.jump_pages().to_vec())
                .collect()
        };
        assert_eq!(pages.len(), 7);
        for page in pages {
            let offset = u64::from(page.0) * PAGE_BYTES as u64;
            let torn = bench.disk.read(offset, AlignedBuf::new(PAGE_BYTES)).await;
            let mut torn = torn.expect("read");
            torn[PAGE_BYTES / 2..].fill(0);
            let torn = SharedBuf::new(Arc::new(torn), 0..PAGE_BYTES);
            bench.disk.write(offset, torn).await.expect("written");
        }
        let pages = bench.reads(0..200).await;
        assert!(pages > 55.0, "{pages} pages");
        let damaged = &bench.cascade.counters.damaged_pages;
        assert_eq!(damaged.load(Ordering::Relaxed), 0, "no mapping was on them");
    });
}

#[test]
fn a_start_finds_filters_of_lists() {
    in_simulation(1, || async {
        let mut bench = Bench::with_a_long_list(long_list()).await;
        let section = bench.save(true).await;
        bench.cascade.checkpoints.saved(Some(true));
        bench.load(&section).await;
        let pages = bench.reads(0..200).await;
        assert!(pages < 25.0, "{pages} pages");
    });
}

#[test]
fn settings_out_of_range_are_refused() {
    let sizes = |sizes| CascadeConfig { sizes, ..config() };
    let wrong = [
        (
            CascadeConfig {
                batch: 0,
                ..config()
            },
            "batch",
        ),
        (
            CascadeConfig {
                hot_percent: 0,
                ..config()
            },
            "hot_percent",
        ),
        (
            CascadeConfig {
                filter_bits: 33,
                ..config()
            },
            "filter_bits",
        ),
        (
            sizes(Sizes {
                partitions: Some(3),
                ..Sizes::default()
            }),
            "partitions",
        ),
        (
            sizes(Sizes {
                direct_blocks: Some(0),
                ..Sizes::default()
            }),
            "direct_blocks",
        ),
        (
            sizes(Sizes {
                active_pages: Some(257),
                ..Sizes::default()
            }),
            "active_pages",
        ),
        (
            sizes(Sizes {
                ratio: Some(0),
                ..Sizes::default()
            }),
            "ratio",
        ),
    ];
    for (config, name) in wrong {
        assert_eq!(config.check().map_err(|error| error.name), Err(name));
    }
    assert_eq!(CascadeConfig::default().check(), Ok(()));
}

/// More searches than read at once, upkeep, and changes, all at the same time: an answer must have been right at some
/// moment between question and answer.
#[test]
fn what_is_found_was_so_meanwhile() {
    const SEARCHES: u64 = 80;
    const KEYS: u64 = 6000;
    let latency = Latency {
        read: Duration::from_micros(80),
        write: Duration::from_micros(200),
        ..Latency::default()
    };
    for seed in seeds() {
        let config = variant(seed);
        eprintln!("seed {seed}, {config:?}");
        in_simulation(seed, || async {
            let mut bench = Bench::with_latency(config, latency);
            let mut random = SmallRng::seed_from_u64(seed);
            bench.work(&mut random, 6000, KEYS, 1000).await;
            let said = |code: &Option<u64>| vec![*code];
            let said = bench.model.iter().map(|(&key, code)| (key, said(code)));
            // All values that each key has had.
            let said: Arc<Mutex<HashMap<u64, Vec<Option<u64>>>>> =
                Arc::new(Mutex::new(said.collect()));
            for number in 0..bench.cascade.tiers.partitions() {
                let cascade = Arc::clone(&bench.cascade);
                runtime::spawn_detached(async move { cascade.upkeep(number).run(|| ()).await });
            }
            let searches = (0..SEARCHES).map(|number| {
                let (cascade, said) = (Arc::clone(&bench.cascade), Arc::clone(&said));
                let mut random = SmallRng::seed_from_u64(seed << 8 | number);
                runtime::spawn(async move {
                    for _ in 0..200 {
                        let key =
                            random.random_range(0..KEYS) * random.random_range(0..KEYS) / KEYS;
                        let count =
                            |said: &HashMap<u64, Vec<_>>| said.get(&key).map_or(0, Vec::len);
                        let before = count(&said.lock());
                        let found = match cascade.searches.search(hash_of(key)).await {
                            Searched::At(code, _) => Some(code),
                            Searched::Absent => None,
                            Searched::Unreadable => panic!("key {key}: unreadable"),
                        };
                        let said = said.lock();
                        let of_key = said.get(&key).map_or(&[][..], Vec::as_slice);
                        let meanwhile = &of_key[before.saturating_sub(1)..];
                        let is_new = before == 0 && found.is_none();
                        assert!(
                            is_new || meanwhile.contains(&found),
                            "key {key}: {found:?}, {meanwhile:?}"
                        );
                    }
                })
            });
            let searches: Vec<_> = searches.collect();
            for _ in 0..20_000 {
                let key = random.random_range(0..KEYS) * random.random_range(0..KEYS) / KEYS;
                let new = if random.random_range(0..4) == 0 {
                    bench.cascade.tiers.bury(hash_of(key));
                    None
                } else {
                    let code = bench.place(1000);
                    while bench
                        .cascade
                        .tiers
                        .insert(hash_of(key), code, false)
                        .is_err()
                    {
                        runtime::sleep(Duration::from_micros(50)).await;
                    }
                    Some(code)
                };
                said.lock().entry(key).or_default().push(new);
                if random.random_range(0..4) == 0 {
                    runtime::sleep(Duration::from_micros(random.random_range(1..60))).await;
                }
            }
            for search in searches {
                search.await.expect("it ends");
            }
            let counters = &bench.cascade.counters;
            assert!(
                counters.promoted.load(Ordering::Relaxed) > 50,
                "{counters:?}"
            );
            assert!(
                counters.compactions.load(Ordering::Relaxed) > 0,
                "{counters:?}"
            );
        });
    }
}

/// A look-up finds an entry that left Tier 1 and is not on flash yet, and inserts it into Tier 1 as clean. A checkpoint
/// at that moment has to save it as dirty, or an older mapping would be found once it has moved down.
#[test]
fn a_checkpoint_keeps_what_was_found_on_its_way_down() {
    in_simulation(1, || async {
        const KEY: u64 = 7;
        let mut bench = Bench::new(config());
        let fill = async |bench: &mut Bench, keys: std::ops::Range<u64>| {
            for key in keys {
                let code = bench.place(u32::MAX);
                let inserted = bench.cascade.tiers.insert(hash_of(key), code, true);
                inserted.expect("there is space");
                bench.tidy().await;
            }
        };
        fill(&mut bench, KEY..10_000).await;
        let newest = bench.place(u32::MAX);
        let inserted = bench.cascade.tiers.insert(hash_of(KEY), newest, true);
        inserted.expect("there is space");
        let is_on_its_way = |bench: &Bench| {
            let key = hash_of(KEY) & bench.cascade.tiers.kept;
            let partition = &mut *bench.cascade.tiers.lock(key);
            bench.cascade.upkeep(0).demote(partition);
            partition.find_demoted(key).is_some()
        };
        while !is_on_its_way(&bench) {}
        let found = bench.cascade.searches.search(hash_of(KEY)).await;
        assert_eq!(found, Searched::At(newest, Tier::One));
        let section = bench.save(true).await;
        bench.cascade.checkpoints.saved(Some(true));
        bench.load(&section).await;
        fill(&mut bench, 10_000..20_000).await;
        let found = bench.cascade.searches.search(hash_of(KEY)).await;
        assert!(
            matches!(found, Searched::At(code, _) if code == newest),
            "{found:?}, not {newest}"
        );
    });
}

/// With more entries its filter, which is made for a fixed number, would let more keys pass.
#[test]
fn a_block_of_a_list_has_no_more_entries_than_its_filter_is_made_for() {
    in_simulation(1, || async {
        let sizes = Sizes {
            partitions: Some(1),
            lists: Some(8),
            active_pages: Some(1),
            active_blocks: Some(64),
            ..Sizes::default()
        };
        let mut bench = Bench::new(CascadeConfig {
            sizes,
            ..CascadeConfig::new(60_000, 34)
        });
        for key in 0..60_000 {
            let code = bench.place(u32::MAX);
            let inserted = bench.cascade.tiers.insert(hash_of(key), code, true);
            inserted.expect("there is space");
            if key % 64 == 0 {
                bench.tidy().await;
            }
        }
        let partition = bench.cascade.tiers.lock(0);
        let blocks = partition.lists.iter().flat_map(|list| &list.blocks);
        let entries: Vec<usize> = blocks.map(|block| block.entries as usize).collect();
        let most = bench.cascade.tiers.shape.buffered();
        assert!(entries.len() > 50, "{} blocks", entries.len());
        assert!(
            entries.iter().all(|&of_block| of_block <= most),
            "{entries:?}"
        );
    });
}
