//! The simulation: one engine, many clients, crashes at random moments.
//!
//! A run is a few lives of one cache. In each life clients change and read a small set of keys, so that
//! segments fill, are reclaimed and checkpoints are written. At random stores of the journal and
//! accesses of the disk the state of both is kept, with the history up to then: crash points. After the
//! life every crash point is opened by an engine of its own and every key is read. One of them is what
//! the next life begins with.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::{FaultyDisk, Image, Latency, MemoryDisk, MemoryJournal, Tear};
use engine::{Amend, Change, Engine, EngineConfig, ItemView, Lookup, Peek, Put};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::{EPOCH_UNIX_SECONDS, Sim};

use crate::history::{Asked, Effect, History, Seen, Wrong};
use crate::values::{tag_of, value_of};

/// Words of the journal: sixteen of the smallest chunks.
const JOURNAL_WORDS: usize = 512 + 16 * 8192;
/// What a power cut may undo at most: the sync interval, and the time a sync takes.
const SYNC_INTERVAL: Duration = Duration::from_millis(5);
const UNSETTLED_NANOS: u64 = 20_000_000;
/// A crash point is taken at one store of the journal, and one operation, in so many.
const STORES_PER_CRASH: u32 = 3000;
const OPERATIONS_PER_CRASH: u32 = 400;
/// An effect that explains nothing: no write has its tag.
const NOTHING: Effect = Effect::Value { tag: 0, expiry: 0 };

/// How to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Lives of the cache.
    pub lives: usize,
    /// Clients at once.
    pub clients: usize,
    /// Operations of each client in each life.
    pub operations: usize,
    /// Crash points looked at in each life.
    pub crashes: usize,
    /// Keys.
    pub keys: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lives: 3,
            clients: 6,
            operations: 400,
            crashes: 12,
            keys: 150,
        }
    }
}

/// What a simulation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations answered.
    pub operations: u64,
    /// Crash points looked at.
    pub crashes: u64,
    /// Keys read at them.
    pub reads: u64,
    /// Of them, found.
    pub hits: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Segments reclaimed.
    pub reclaimed: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.crashes += more.crashes;
        self.reads += more.reads;
        self.hits += more.hits;
        self.checkpoints += more.checkpoints;
        self.reclaimed += more.reclaimed;
    }
}

/// What was found wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// When.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.what)
    }
}

impl std::error::Error for Failure {}

/// What a crash leaves, and what had been done by then.
struct CrashPoint {
    image: Image,
    words: Vec<u64>,
    history: History,
    /// What was answered before this is beyond a power cut.
    settled: u64,
    unix_seconds: u32,
    label: String,
}

/// Runs one seed.
///
/// # Errors
/// The first thing found wrong.
pub fn simulate(seed: u64, options: &Options) -> Result<Report, Failure> {
    let mut random = SmallRng::seed_from_u64(seed);
    let config = any_config(&mut random);
    let image_bytes = (1 << 20) + random.random_range(24..80) * 65_536;
    let mut left = CrashPoint {
        image: Image::new(image_bytes),
        words: vec![0; JOURNAL_WORDS],
        history: History::default(),
        settled: u64::MAX,
        unix_seconds: EPOCH_UNIX_SECONDS,
        label: "new".to_owned(),
    };
    let mut report = Report::default();
    let failure = |what: String| Failure { seed, what };
    for life in 0..options.lives {
        let points = live(&mut random, options, &config, left, &mut report)
            .map_err(|wrong| failure(format!("life {life}: {wrong}")))?;
        let next = random.random_range(0..points.len());
        let mut kept = None;
        for (number, point) in points.into_iter().enumerate() {
            verify(random.random(), &config, options, &point, &mut report)
                .map_err(|wrong| failure(format!("life {life}, {}: {wrong}", point.label)))?;
            if number == next {
                kept = Some(point);
            }
        }
        left = kept.expect("there is at least one");
        left.history.crash(left.settled);
    }
    Ok(report)
}

fn any_config(random: &mut SmallRng) -> EngineConfig {
    EngineConfig {
        memory_bytes: 16 << 20,
        segment_bytes: Some(64 << 10),
        partition_bits: random.random_range(0..3),
        buffers: 8,
        max_value_bytes: 20_000,
        index_percent: 10,
        max_copy_sixteenths: random.random_range(0..16),
        discard: random.random(),
        sync_interval: SYNC_INTERVAL,
        ..EngineConfig::default()
    }
}

/// What clients and crash points share.
struct World {
    engine: Arc<Engine>,
    history: Arc<Mutex<History>>,
    wrong: Arc<Mutex<Option<Wrong>>>,
    next_tag: AtomicU64,
    keys: u64,
}

/// Takes crash points.
struct Watch {
    medium: Arc<MemoryDisk>,
    disk: Arc<FaultyDisk>,
    journal: Weak<MemoryJournal>,
    history: Arc<Mutex<History>>,
    random: Mutex<SmallRng>,
    points: Mutex<Vec<CrashPoint>>,
    most: usize,
}

impl Watch {
    /// Takes a crash point, if this moment is one of those drawn.
    fn look(&self, one_in: u32, label: &str) {
        let drawn = self.random.lock().random_ratio(1, one_in);
        if drawn && self.points.lock().len() < self.most {
            self.take(label);
        }
    }

    fn take(&self, label: &str) {
        let Some(journal) = self.journal.upgrade() else {
            return;
        };
        let mut random = self.random.lock();
        let nanos = runtime::now().as_nanos();
        let point = if random.random_ratio(2, 3) {
            CrashPoint {
                image: self.medium.snapshot(),
                words: journal.crash(),
                settled: u64::MAX,
                history: self.history.lock().clone(),
                unix_seconds: runtime::unix_seconds(),
                label: format!("killed at {nanos} ns, {label}"),
            }
        } else {
            let tears = [Tear::Writes, Tear::Pages, Tear::Sectors];
            let tear = tears[random.random_range(0..tears.len())];
            CrashPoint {
                image: self.disk.crash(random.random(), tear),
                words: journal.power_cut(random.random()),
                settled: nanos.saturating_sub(UNSETTLED_NANOS),
                history: self.history.lock().clone(),
                unix_seconds: runtime::unix_seconds(),
                label: format!("power cut at {nanos} ns, {label}"),
            }
        };
        drop(random);
        self.points.lock().push(point);
    }
}

/// One life of a cache; what crashes at random moments of it leave, at least one.
fn live(
    random: &mut SmallRng,
    options: &Options,
    config: &EngineConfig,
    left: CrashPoint,
    report: &mut Report,
) -> Result<Vec<CrashPoint>, String> {
    let sim = Sim::new(random.random());
    sim.shift_wall_clock(i64::from(left.unix_seconds) - i64::from(EPOCH_UNIX_SECONDS));
    let latency = Latency {
        read: Duration::from_micros(random.random_range(20..200)),
        write: Duration::from_micros(random.random_range(20..2000)),
        ..Latency::default()
    };
    let medium = Arc::new(MemoryDisk::from_image(left.image.clone(), latency));
    let disk = Arc::new(FaultyDisk::with_base(
        medium.clone(),
        left.image,
        random.random(),
    ));
    let journal = Arc::new(MemoryJournal::from_words(left.words));
    let history = Arc::new(Mutex::new(left.history));
    let before = history.lock().operations();
    let wrong: Arc<Mutex<Option<Wrong>>> = Arc::default();
    let watch = Arc::new(Watch {
        medium,
        disk: Arc::clone(&disk),
        journal: Arc::downgrade(&journal),
        history: Arc::clone(&history),
        random: Mutex::new(SmallRng::seed_from_u64(random.random())),
        points: Mutex::default(),
        most: options.crashes,
    });
    let outcome = sim.block_on(async {
        let in_store = Arc::clone(&watch);
        journal.observe(move |number| in_store.look(STORES_PER_CRASH, &format!("store {number}")));
        let log = Arc::clone(&journal);
        let engine = Engine::open(disk.clone(), move || Ok(log), config.clone())
            .await
            .map_err(|error| format!("cannot be opened: {error}"))?;
        // Hardly any memory is left for items: they leave it soon.
        let limit = engine.stats().dram_limit_bytes;
        engine.lend_memory(limit.saturating_sub(random.random_range(20_000..200_000)));
        engine.start_background(|task| runtime::spawn_detached(async move { task().await }));
        let world = Arc::new(World {
            engine: Arc::clone(&engine),
            history: Arc::clone(&history),
            wrong: Arc::clone(&wrong),
            next_tag: AtomicU64::new(1 + (u64::from(random.random::<u32>()) << 24)),
            keys: options.keys,
        });
        let mut clients = Vec::new();
        for _ in 0..options.clients {
            let random = SmallRng::seed_from_u64(random.random());
            let (world, watch) = (Arc::clone(&world), Arc::clone(&watch));
            clients.push(runtime::spawn(client(
                world,
                watch,
                random,
                options.operations,
            )));
        }
        for client in clients {
            client.await;
        }
        watch.take("the end");
        journal.observe(|_| {});
        report.reclaimed += engine.stats().placement.segments_reclaimed;
        report.checkpoints += engine.checkpoint_stats().written;
        Ok::<(), String>(())
    });
    sim.crash();
    outcome?;
    if let Some(wrong) = wrong.lock().take() {
        return Err(wrong.to_string());
    }
    report.operations += history.lock().operations() - before;
    let points = std::mem::take(&mut *watch.points.lock());
    Ok(points)
}

async fn client(world: Arc<World>, watch: Arc<Watch>, mut random: SmallRng, operations: usize) {
    for _ in 0..operations {
        if world.wrong.lock().is_some() {
            return;
        }
        match random.random_range(0..1000) {
            0..400 => world.set(&mut random).await,
            400..700 => world.get(&mut random).await,
            700..800 => world.delete(&mut random).await,
            800..880 => world.touch(&mut random).await,
            880..960 => world.rewrite(&mut random).await,
            960..962 => world.flush(),
            962..966 => {
                world.engine.checkpoint_now().await;
            }
            966..975 => runtime::sleep(Duration::from_millis(random.random_range(1..400))).await,
            _ => runtime::sleep(Duration::from_micros(random.random_range(1..3000))).await,
        }
        watch.look(OPERATIONS_PER_CRASH, "between operations");
    }
}

impl World {
    fn any_key(&self, random: &mut SmallRng) -> (u64, Vec<u8>) {
        // Half of the operations go to a few keys.
        let keys = if random.random() {
            self.keys / 8
        } else {
            self.keys
        };
        let number = random.random_range(0..keys.max(1));
        (number, key_bytes(number))
    }

    fn any_effect(&self, random: &mut SmallRng) -> Effect {
        Effect::Value {
            tag: self.next_tag.fetch_add(1, Ordering::Relaxed),
            expiry: any_expiry(random),
        }
    }

    fn answer(&self, asked: Asked, effect: Option<Effect>) {
        let nanos = runtime::now().as_nanos();
        self.history.lock().answer(asked, effect, nanos);
    }

    async fn set(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let effect = self.any_effect(random);
        let asked = self.history.lock().ask(number, effect);
        let put = put_of(effect, any_len(random));
        let key = self.engine.key(&bytes).expect("a key");
        let stored = self.engine.set(key, runtime::unix_seconds(), &put).await;
        // What cannot be stored takes the old value with it.
        let effect = if stored.is_ok() { effect } else { Effect::Gone };
        self.answer(asked, Some(effect));
    }

    async fn get(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let asked = self.history.lock().tick();
        let seen = read(&self.engine, &bytes).await;
        let checked = match seen {
            Ok(seen) => self.history.lock().check(number, asked, seen),
            Err(tag) => Err(Wrong::Invented { key: number, tag }),
        };
        if let Err(wrong) = checked {
            self.wrong.lock().get_or_insert(wrong);
        }
    }

    async fn delete(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let asked = self.history.lock().ask(number, Effect::Gone);
        let key = self.engine.key(&bytes).expect("a key");
        let now = runtime::unix_seconds();
        if random.random() {
            self.engine.remove(key, now);
        } else {
            let removed = self
                .engine
                .modify(key, now, |found| (Change::Remove, found.is_some()))
                .await;
            // It is gone either way.
            let _ = removed;
        }
        self.answer(asked, Some(Effect::Gone));
    }

    async fn touch(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let asked = self.history.lock().ask(number, NOTHING);
        let expiry = any_expiry(random);
        let key = self.engine.key(&bytes).expect("a key");
        let touched = self
            .engine
            .modify(key, runtime::unix_seconds(), |found| {
                let Some(found) = found else {
                    return (Change::Keep, None);
                };
                let effect = Effect::Value {
                    tag: tag_of(found.value).unwrap_or(0),
                    expiry,
                };
                self.history.lock().foresee(asked, effect);
                let amend = Amend {
                    expiry: Some(expiry),
                    ..Amend::default()
                };
                (Change::Amend(amend), Some(effect))
            })
            .await;
        match touched {
            Ok(touched) => self.answer(asked, touched.result),
            // It may have been there, and is not any more.
            Err(_) => self.answer(asked, Some(Effect::Gone)),
        }
    }

    /// Stores a new value where there is an old one.
    async fn rewrite(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let effect = self.any_effect(random);
        let asked = self.history.lock().ask(number, effect);
        let put = put_of(effect, any_len(random));
        let key = self.engine.key(&bytes).expect("a key");
        let rewritten = self
            .engine
            .modify(key, runtime::unix_seconds(), |found| match found {
                Some(_) => (Change::Put(put.clone()), true),
                None => (Change::Keep, false),
            })
            .await;
        match rewritten {
            Ok(rewritten) => self.answer(asked, rewritten.result.then_some(effect)),
            Err(_) => self.answer(asked, Some(Effect::Gone)),
        }
    }

    fn flush(&self) {
        let asked = self.history.lock().ask_flush();
        self.engine.flush_all(runtime::unix_seconds());
        self.answer(asked, Some(Effect::Gone));
    }
}

/// Opens a crash point and reads every key, while recovery goes on and after it.
fn verify(
    seed: u64,
    config: &EngineConfig,
    options: &Options,
    point: &CrashPoint,
    report: &mut Report,
) -> Result<(), String> {
    let sim = Sim::new(seed);
    sim.shift_wall_clock(i64::from(point.unix_seconds) - i64::from(EPOCH_UNIX_SECONDS));
    let latency = Latency {
        read: Duration::from_micros(80),
        ..Latency::default()
    };
    let disk = Arc::new(MemoryDisk::from_image(point.image.clone(), latency));
    let journal = Arc::new(MemoryJournal::from_words(point.words.clone()));
    let outcome = sim.block_on(async {
        let engine = Engine::open(disk, move || Ok(journal), config.clone())
            .await
            .map_err(|error| format!("cannot be opened: {error}"))?;
        engine.start_background(|task| runtime::spawn_detached(async move { task().await }));
        for pass in 0..2 {
            for number in 0..options.keys {
                let seen = read(&engine, &key_bytes(number)).await;
                let seen = seen.map_err(|tag| format!("key {number}: value {tag} is damaged"))?;
                report.reads += pass;
                let Some(seen) = seen else { continue };
                report.hits += pass;
                point
                    .history
                    .check_after_crash(number, seen, point.settled)
                    .map_err(|wrong| {
                        let told = point.history.tell(number);
                        format!("{wrong}; pass {pass}, {:?}\n  {told}", engine.start())
                    })?;
            }
            engine.recovered().await;
        }
        Ok(())
    });
    sim.crash();
    report.crashes += 1;
    outcome
}

fn key_bytes(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn any_expiry(random: &mut SmallRng) -> u32 {
    if random.random_ratio(1, 4) {
        runtime::unix_seconds() + random.random_range(1..10)
    } else {
        0
    }
}

fn any_len(random: &mut SmallRng) -> usize {
    match random.random_range(0..20) {
        0..12 => random.random_range(16..600),
        12..19 => random.random_range(600..6000),
        _ => random.random_range(6000..20_000),
    }
}

fn put_of(effect: Effect, len: usize) -> Put<'static> {
    match effect {
        Effect::Value { tag, expiry } => Put {
            value: Cow::Owned(value_of(tag, len)),
            expiry,
            ..Put::default()
        },
        Effect::Gone => Put::default(),
    }
}

/// Reads a key as a request does. The error is what a damaged value says of itself.
async fn read(engine: &Arc<Engine>, key: &[u8]) -> Result<Option<Seen>, u64> {
    let now = runtime::unix_seconds();
    let key = engine.key(key).expect("a key");
    let view = |item: &ItemView<'_>| match tag_of(item.value) {
        Some(tag) => Ok(Some(Seen {
            tag,
            expiry: Some(item.expiry),
            now,
        })),
        None => Err(item.value.get(..8).map_or(0, |tag| {
            u64::from_le_bytes(tag.try_into().expect("eight bytes"))
        })),
    };
    match engine.lookup(key, now, Peek::No, view) {
        Lookup::Hit(seen) => seen,
        Lookup::Miss => Ok(None),
        Lookup::Flash(read) => match engine.read_flash(key, read, now, Peek::No).await {
            Some(hit) => view(&hit.view()),
            None => Ok(None),
        },
    }
}
