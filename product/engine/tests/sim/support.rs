//! Shared by all tests here: seeds, small engines, distinguishable values, plain requests.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::{Disk, Image, Latency, MemoryDisk, MemoryJournal};
use flowstone_engine::format::item::ItemRef;
use flowstone_engine::placement::PlacementKind;
use flowstone_engine::{
    CacheError, Dram, DumpCursor, Engine, EngineConfig, ExactSettings, ItemView, Layout, Lookup,
    MemoryCursor, OpenError, Opening, Peek, Put, ReclaimPolicy, ReclaimSettings, Reserve, Schedule,
    Start, StaticReserve, Stop, Victim, WriteSettings,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

/// Words of a test's journal: few, so that checkpoints are frequent.
pub(crate) const JOURNAL_WORDS: usize = 512 + 16 * 8192;
/// Smallest segment the tests use, in bytes.
pub(crate) const SEGMENT_BYTES: u32 = 256 << 10;

/// Runs `case` with `default_cases` seeds, with `FLOWSTONE_CASES`, or with `FLOWSTONE_SEED` alone; a failure names its seed.
pub(crate) fn for_each_seed(name: &str, default_cases: u64, case: impl Fn(u64)) {
    for_seeds(name, default_cases, || true, case);
}

/// Does the same for a test of an event that only some seeds meet: continues up to `default_cases` seeds until the event
/// `has_happened`, and fails if it never does.
pub(crate) fn for_seeds_until(
    name: &str,
    default_cases: u64,
    has_happened: impl Fn() -> bool,
    case: impl Fn(u64),
) {
    let is_lone = for_seeds(name, default_cases, &has_happened, case);
    assert!(
        is_lone || has_happened(),
        "no seed of {default_cases} has met the event that {name} is about"
    );
}

/// Runs the seeds; returns whether `FLOWSTONE_SEED` was the only one.
fn for_seeds(
    name: &str,
    default_cases: u64,
    has_happened: impl Fn() -> bool,
    case: impl Fn(u64),
) -> bool {
    let number = |variable: &str| {
        std::env::var(variable)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    if let Some(seed) = number("FLOWSTONE_SEED") {
        run_seed(name, seed, &case);
        return true;
    }
    let cases = number("FLOWSTONE_CASES").unwrap_or(default_cases);
    for seed in 1..=cases.max(default_cases) {
        if seed > cases && has_happened() {
            break;
        }
        run_seed(name, seed, &case);
    }
    false
}

fn run_seed(name: &str, seed: u64, case: &impl Fn(u64)) {
    struct NameSeed<'a>(&'a str, u64);
    impl Drop for NameSeed<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "replay with: FLOWSTONE_SEED={} cargo test --manifest-path {}/Cargo.toml --test sim {}",
                    self.1,
                    env!("CARGO_MANIFEST_DIR"),
                    self.0
                );
            }
        }
    }
    let _named = NameSeed(name, seed);
    case(seed);
}

/// Returns the smallest engine: most of its 16 MiB are segment buffers, so that items leave memory early.
pub(crate) fn tight() -> EngineConfig {
    let mut config = EngineConfig {
        memory_bytes: 16 << 20,
        segment_bytes: Some(SEGMENT_BYTES),
        partition_bits: 2,
        max_value_bytes: 200_000,
        ..EngineConfig::default()
    };
    config.writing.buffers = 40;
    config
}

/// Returns an engine with few buffers and more memory for items.
pub(crate) fn roomy() -> EngineConfig {
    let mut config = tight();
    config.writing.buffers = 4;
    config
}

/// Returns a placement with items in slots, and an index of the default size.
pub(crate) fn in_slots() -> Arc<dyn PlacementKind> {
    Arc::new(ExactSettings {
        layout: Layout::Slotted,
        priorities: 1,
    })
}

/// Returns an engine built like Fatcache, in one of its variants.
pub(crate) fn slotted(seed: u64) -> EngineConfig {
    let random = &mut random(!seed);
    let usual = tight();
    let victim = [Victim::Oldest, Victim::FewestValid][random.random_range(0..2)];
    let copies = [false, true][random.random_range(0..2)];
    let max_copy_sixteenths = random.random_range(8..16);
    let schedule = [Schedule::Background, Schedule::OnDemand][random.random_range(0..2)];
    let dram = Dram::WriteBuffers {
        spare_buffers: [None, Some(1), Some(3)][random.random_range(0..3)],
    };
    let writing = WriteSettings {
        writers: random.random_range(1..4),
        write_bytes: Some(4096 << random.random_range(0..8)),
        buffers: random.random_range(2..40),
        ..usual.writing
    };
    let pressing =
        [Some(Victim::Oldest), Some(Victim::LeastRecentlyRead), None][random.random_range(0..3)];
    let policy = match (copies, pressing) {
        (false, _) => ReclaimPolicy::Drop { victim },
        (true, None) => ReclaimPolicy::CopyValid {
            victim,
            max_copy_sixteenths,
        },
        (true, Some(under_pressure)) => ReclaimPolicy::Integrated {
            max_copy_sixteenths,
            under_pressure,
        },
    };
    EngineConfig {
        dram,
        placement: in_slots(),
        reclaim: ReclaimSettings {
            policy,
            reserve: [
                Reserve::ForStop,
                Reserve::Static(StaticReserve::default()),
                Reserve::Heuristic,
                Reserve::Queueing,
            ][random.random_range(0..4)],
            reclaimers: random.random_range(1..4),
            wear_leveling: [None, Some(1)][random.random_range(0..2)],
            schedule,
            bound_copies: true,
        },
        writing,
        ..usual
    }
}

/// Returns an engine built like DIDACache.
pub(crate) fn didacache() -> EngineConfig {
    let usual = tight();
    EngineConfig {
        dram: Dram::WriteBuffers {
            spare_buffers: None,
        },
        placement: in_slots(),
        reclaim: ReclaimSettings {
            policy: ReclaimPolicy::Integrated {
                max_copy_sixteenths: 8,
                under_pressure: Victim::LeastRecentlyRead,
            },
            reserve: Reserve::Queueing,
            wear_leveling: Some(2),
            reclaimers: 4,
            schedule: Schedule::Background,
            bound_copies: false,
        },
        writing: WriteSettings {
            buffers: 8,
            writers: 6,
            ..usual.writing
        },
        write_back: None,
        ..usual
    }
}

/// Storage that outlives an engine: its disk and its journal.
#[derive(Clone)]
pub(crate) struct Media {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Arc<MemoryJournal>,
    /// Placement to use instead of the configuration's.
    pub(crate) placement: Option<Arc<dyn PlacementKind>>,
}

impl Media {
    /// Returns a disk with an empty journal.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            journal: Arc::new(MemoryJournal::new(JOURNAL_WORDS)),
            placement: None,
        }
    }

    /// Returns a disk with a journal that holds `words`.
    pub(crate) fn with_words(disk: Arc<dyn Disk>, words: Vec<u64>) -> Self {
        Self {
            disk,
            journal: Arc::new(MemoryJournal::from_words(words)),
            placement: None,
        }
    }

    pub(crate) async fn open(&self, config: &EngineConfig) -> Result<Arc<Engine>, OpenError> {
        let (disk, journal) = (Arc::clone(&self.disk), Arc::clone(&self.journal));
        let mut config = config.clone();
        if let Some(placement) = &self.placement {
            config.placement = Arc::clone(placement);
        }
        Opening::new(disk, config).open(move || Ok(journal)).await
    }
}

/// State left behind by an engine: an image and a journal.
#[derive(Clone, PartialEq)]
pub(crate) struct Left {
    pub(crate) image: Image,
    pub(crate) words: Vec<u64>,
}

impl Left {
    pub(crate) fn new(image: Image) -> Self {
        let words = vec![0; JOURNAL_WORDS];
        Self { image, words }
    }

    /// Returns the state after a clean stop with `count` items.
    pub(crate) fn stopped(image_bytes: u64, count: u64) -> Self {
        simulate(1, async {
            let (disk, media) = Self::new(Image::new(image_bytes)).media();
            let engine = start(&media, &tight()).await;
            fill(&engine, count, 3000).await;
            assert_eq!(engine.stop().await, Stop::Complete { objects: count });
            Self::of(&disk, &media)
        })
    }

    pub(crate) fn media(&self) -> (Arc<MemoryDisk>, Media) {
        let disk = Arc::new(MemoryDisk::from_image(
            self.image.clone(),
            Latency::default(),
        ));
        let media = Media::with_words(disk.clone(), self.words.clone());
        (disk, media)
    }

    pub(crate) fn of(disk: &MemoryDisk, media: &Media) -> Self {
        Self {
            image: disk.snapshot(),
            words: media.journal.crash(),
        }
    }
}

/// Opens an engine, starts its background work and waits for the end of recovery.
pub(crate) async fn start(media: &Media, config: &EngineConfig) -> Arc<Engine> {
    let engine = media.open(config).await.unwrap();
    run_background(&engine);
    engine.recovered().await;
    engine
}

/// Returns whether the engine found the items of a clean stop.
pub(crate) fn is_warm(engine: &Engine) -> bool {
    matches!(engine.start(), Start::Warm { orderly: true, .. })
}

/// Returns the number of objects on flash that the index names.
pub(crate) fn objects(engine: &Engine) -> u64 {
    engine.flash_stats().objects
}

/// Starts an engine from `left`.
pub(crate) async fn started(left: &Left) -> Arc<Engine> {
    start(&left.media().1, &tight()).await
}

pub(crate) fn run_background(engine: &Arc<Engine>) {
    engine.start_background(|task| {
        runtime::spawn(async move { task().await });
    });
}

pub(crate) fn memory_disk(len_bytes: u64) -> Media {
    Media::new(Arc::new(MemoryDisk::new(len_bytes)))
}

/// Runs `work` on a new simulation.
pub(crate) fn simulate<F: Future>(seed: u64, work: F) -> F::Output {
    Sim::new(seed).block_on(work)
}

pub(crate) fn random(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Returns a value of `len` bytes that follows from `tag`: another tag gives other bytes.
pub(crate) fn value(tag: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut word = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < len {
        bytes.extend_from_slice(&word.to_le_bytes());
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    bytes.truncate(len);
    bytes
}

/// Returns a length from zero to the largest; short ones and those around a page are more frequent.
pub(crate) fn any_len(random: &mut SmallRng, max: usize) -> usize {
    let len = match random.random_range(0..20) {
        0 => 0,
        1..7 => random.random_range(1..200),
        7..11 => random.random_range(200..3000),
        11..15 => random.random_range(3900..4300),
        15..19 => random.random_range(8_000..40_000),
        _ => random.random_range(40_000..=200_000),
    };
    len.min(max)
}

/// Owned copy of an item as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) value: Vec<u8>,
    pub(crate) client_flags: u32,
    pub(crate) expiry: u32,
    pub(crate) cas_unique: u64,
    pub(crate) stale: bool,
    pub(crate) won: bool,
    pub(crate) binary_key: bool,
}

pub(crate) fn seen(item: &ItemView<'_>) -> Seen {
    Seen {
        value: item.value.to_vec(),
        client_flags: item.client_flags,
        expiry: item.expiry,
        cas_unique: item.cas_unique,
        stale: item.stale,
        won: item.won,
        binary_key: item.binary_key,
    }
}

/// Reads an item like a request.
pub(crate) async fn get_item(engine: &Arc<Engine>, key: &[u8], peek: Peek) -> Option<Seen> {
    let now = runtime::unix_seconds();
    let key = engine.key(key).unwrap();
    match engine.lookup(key, now, peek, seen) {
        Lookup::Hit(item) => Some(item),
        Lookup::Miss => None,
        Lookup::Flash(read) => {
            let hit = engine.read_flash(key, read).await;
            hit.map(|hit| {
                assert_eq!(ItemView::of_flash(&hit).key, key.bytes());
                seen(&ItemView::of_flash(&hit))
            })
        }
    }
}

/// Returns how many of the numbered items are found.
pub(crate) async fn survivors(engine: &Arc<Engine>, numbers: impl Iterator<Item = u64>) -> usize {
    let mut found = 0;
    for number in numbers {
        found += usize::from(get(engine, &numbered(number)).await.is_some());
    }
    found
}

pub(crate) async fn get(engine: &Arc<Engine>, key: &[u8]) -> Option<Vec<u8>> {
    get_item(engine, key, Peek::No).await.map(|item| item.value)
}

pub(crate) async fn set(engine: &Arc<Engine>, key: &[u8], value: &[u8]) -> Result<u64, CacheError> {
    let put = Put {
        value: Cow::Borrowed(value),
        ..Put::default()
    };
    let now = runtime::unix_seconds();
    engine.set(engine.key(key).unwrap(), now, &put).await
}

/// Removes a numbered item.
pub(crate) async fn remove(engine: &Arc<Engine>, number: u64) {
    let name = numbered(number);
    let key = engine.key(&name).unwrap();
    engine.remove(key, runtime::unix_seconds()).await.unwrap();
}

/// Returns the key of a number.
pub(crate) fn numbered(number: u64) -> Vec<u8> {
    format!("item-{number:06}").into_bytes()
}

/// Fills an engine with `count` numbered items of `len` bytes.
pub(crate) async fn fill(engine: &Arc<Engine>, count: u64, len: usize) {
    for number in 0..count {
        set(engine, &numbered(number), &value(number, len))
            .await
            .unwrap();
    }
}

/// Returns the keys and values that a dump lists; no key may occur twice.
#[allow(dead_code, reason = "for the placements of the systems")]
pub(crate) async fn dump(engine: &Arc<Engine>) -> HashMap<Vec<u8>, Vec<u8>> {
    let mut listed = HashMap::new();
    let mut visited = 0;
    let mut visit = |item: ItemRef<'_>| {
        let twice = listed.insert(item.key.to_vec(), item.value.to_vec());
        assert_eq!(twice, None, "{} twice", String::from_utf8_lossy(item.key));
        visited += 1;
        // The dump is interrupted and continued.
        if visited % 100 == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut cursor = MemoryCursor::default();
    while engine.dump_memory(&mut cursor, &mut visit) {}
    let mut cursor = DumpCursor::default();
    while engine.dump_flash(&mut cursor, &mut visit).await {}
    listed
}
