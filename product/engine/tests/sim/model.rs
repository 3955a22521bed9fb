//! Random operations with clean restarts in between, against a plain map.
//!
//! An answer is the map's exact item, or a miss if the cache may evict. If flash has space for
//! all items the cache must not evict, and every answer must be the map's.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use flowstone_engine::format::item::ItemRef;
use flowstone_engine::{
    Amend, Change, DumpCursor, Engine, EngineConfig, ItemView, MemoryCursor, Modified, Peek, Put,
    Start, Stop,
};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::support::{
    self, Media, Seen, any_len, get_item, is_warm, memory_disk, random, seen, simulate, start,
    value,
};

/// Whether the cache may miss items that the map has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misses {
    Never,
    Allowed,
    /// An index that has lost an item may find it again at a start.
    MayComeBack,
}

/// A cache, and the map that it is compared with.
struct Bench {
    disk: Media,
    config: EngineConfig,
    engine: Arc<Engine>,
    misses: Misses,
    items: HashMap<Vec<u8>, Seen>,
    /// The last CAS unique chosen by the cache, by key: none may occur twice.
    last_unique: HashMap<Vec<u8>, u64>,
    /// Deadline of a future flush.
    flush: Option<u32>,
    random: SmallRng,
    next_tag: u64,
    missed: u64,
}

impl Bench {
    async fn new(seed: u64, config: EngineConfig, disk: Media, misses: Misses) -> Self {
        let engine = start(&disk, &config).await;
        assert_eq!(engine.start(), Start::New);
        Self {
            disk,
            config,
            engine,
            misses,
            items: HashMap::new(),
            last_unique: HashMap::new(),
            flush: None,
            random: random(seed),
            next_tag: 0,
            missed: 0,
        }
    }

    /// Removes expired and flushed items from the map.
    fn settle(&mut self) -> u32 {
        let now = runtime::unix_seconds();
        if self.flush.is_some_and(|deadline| deadline <= now) {
            self.flush = None;
            self.items.clear();
        }
        self.items
            .retain(|_, item| item.expiry == 0 || item.expiry > now);
        now
    }

    /// Compares an item found in the cache with the map.
    fn compare(&mut self, key: &[u8], found: Option<Seen>) {
        let expected = self.items.get(key);
        if found.is_none() && expected.is_some() && self.misses != Misses::Never {
            if self.misses == Misses::Allowed {
                // Gone for good: the item must not come back.
                self.items.remove(key);
            }
            self.missed += 1;
            return;
        }
        assert_eq!(
            found.as_ref().map(brief),
            expected.map(brief),
            "key {:?}",
            String::from_utf8_lossy(key)
        );
        assert_eq!(found.as_ref(), expected);
    }

    fn any_key(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        match random.random_range(0..10) {
            0 | 1 => vec![random.random_range(b'a'..=b'e')],
            2..5 => format!("hot-{}", random.random_range(0..12)).into_bytes(),
            5 => {
                let mut key = format!("long-{}-", random.random_range(0..40)).into_bytes();
                key.resize(250, b'k');
                key
            }
            _ => format!("cold-{}", random.random_range(0..2500)).into_bytes(),
        }
    }

    fn any_value(&mut self) -> Vec<u8> {
        self.next_tag += 1;
        let len = any_len(&mut self.random, self.config.max_value_bytes as usize);
        value(self.next_tag, len)
    }

    fn any_expiry(&mut self, now: u32) -> u32 {
        match self.random.random_range(0..10) {
            0 => now + self.random.random_range(1..30),
            1 => now.saturating_sub(self.random.random_range(0..2)),
            2 => now + 100_000,
            _ => 0,
        }
    }

    fn any_put(&mut self, now: u32) -> Put<'static> {
        Put {
            value: Cow::Owned(self.any_value()),
            client_flags: self.random.random(),
            expiry: self.any_expiry(now),
            cas_unique: self
                .random
                .random_bool(0.1)
                .then(|| self.random.random::<u64>() | 1 << 63),
            stale: self.random.random_bool(0.1),
            won: self.random.random_bool(0.1),
            fetched: false,
            binary_key: self.random.random_bool(0.1),
        }
    }

    /// Records a CAS unique that the cache has chosen.
    fn note_unique(&mut self, key: &[u8], chosen: Option<u64>, given: u64) {
        if let Some(chosen) = chosen {
            assert_eq!(given, chosen);
            return;
        }
        let last = self.last_unique.insert(key.to_vec(), given).unwrap_or(0);
        assert!(given > last, "CAS unique {given} after {last}");
    }

    fn store(&mut self, key: &[u8], put: &Put<'_>, cas_unique: u64) {
        self.note_unique(key, put.cas_unique, cas_unique);
        let item = Seen {
            value: put.value.to_vec(),
            client_flags: put.client_flags,
            expiry: put.expiry,
            cas_unique,
            stale: put.stale,
            won: put.won,
            binary_key: put.binary_key,
        };
        self.items.insert(key.to_vec(), item);
    }

    async fn set(&mut self) {
        let now = self.settle();
        let (key, put) = (self.any_key(), self.any_put(now));
        let hashed = self.engine.key(&key).unwrap();
        let cas_unique = self.engine.set(hashed, now, &put).await.unwrap();
        self.store(&key, &put, cas_unique);
    }

    async fn get(&mut self) {
        self.settle();
        let key = self.any_key();
        let peek = if self.random.random_bool(0.8) {
            Peek::No
        } else {
            Peek::Yes
        };
        let found = get_item(&self.engine, &key, peek).await;
        self.compare(&key, found);
    }

    async fn remove(&mut self) {
        let now = self.settle();
        let key = self.any_key();
        self.engine
            .remove(self.engine.key(&key).unwrap(), now)
            .await
            .unwrap();
        self.items.remove(&key);
    }

    fn any_change(&mut self, now: u32) -> Change<'static> {
        match self.random.random_range(0..10) {
            0 => Change::Keep,
            1 => Change::Use,
            2 => Change::Remove,
            3..6 => Change::Put(self.any_put(now)),
            _ => {
                let expiry = self.any_expiry(now);
                let random = &mut self.random;
                Change::Amend(Amend {
                    expiry: random.random_bool(0.5).then_some(expiry),
                    stale: random.random_bool(0.3).then(|| random.random()),
                    won: random.random_bool(0.3).then(|| random.random()),
                    cas_unique: match random.random_range(0..4) {
                        0 => Some(None),
                        1 => Some(Some(random.random::<u64>() | 1 << 63)),
                        _ => None,
                    },
                    access: random.random(),
                })
            }
        }
    }

    async fn modify(&mut self) {
        let now = self.settle();
        let key = self.any_key();
        let change = self.any_change(now);
        let hashed = self.engine.key(&key).unwrap();
        let decide = |item: Option<&ItemView<'_>>| (change.clone(), item.map(seen));
        let Modified { result, cas_unique } =
            self.engine.modify(hashed, now, decide).await.unwrap();
        let is_lost = result.is_none() && self.misses == Misses::MayComeBack;
        self.compare(&key, result);
        let present = self.items.contains_key(&key) && !is_lost;
        match change {
            Change::Keep | Change::Use => {
                let item = self.items.get(&key).filter(|_| present);
                assert_eq!(cas_unique, item.map_or(0, |item| item.cas_unique));
            }
            Change::Remove => {
                assert_eq!(cas_unique, 0);
                self.items.remove(&key);
            }
            Change::Put(put) => self.store(&key, &put, cas_unique),
            Change::Amend(_) if !present => assert_eq!(cas_unique, 0),
            Change::Amend(amend) => self.amend(&key, &amend, cas_unique),
        }
    }

    fn amend(&mut self, key: &[u8], amend: &Amend, cas_unique: u64) {
        let item = self.items.get_mut(key).unwrap();
        item.expiry = amend.expiry.unwrap_or(item.expiry);
        item.stale = amend.stale.unwrap_or(item.stale);
        item.won = amend.won.unwrap_or(item.won);
        if let Some(chosen) = amend.cas_unique {
            item.cas_unique = cas_unique;
            self.note_unique(key, chosen, cas_unique);
        } else {
            assert_eq!(cas_unique, item.cas_unique, "an amendment keeps it");
        }
    }

    async fn flush(&mut self) {
        let now = self.settle();
        let delay = if self.random.random_bool(0.5) {
            0
        } else {
            self.random.random_range(1..20)
        };
        self.engine.flush_all(now + delay).await;
        self.flush = Some(now + delay);
        self.settle();
    }

    async fn advance(&mut self) {
        let seconds = self.random.random_range(1..25);
        runtime::sleep(Duration::from_secs(seconds)).await;
    }

    async fn reopen(&mut self) {
        let stopped = self.engine.stop().await;
        let Stop::Complete { objects } = stopped else {
            panic!("{stopped:?} {:#?}", self.engine.stats());
        };
        assert_eq!(self.engine.stop().await, Stop::Already);
        // Settings that may differ between two runs of one image.
        self.config.memory_bytes = [16 << 20, 17 << 20][self.random.random_range(0..2)];
        self.config.writing.buffers = self.random.random_range(36..=40);
        self.engine = start(&self.disk, &self.config).await;
        assert!(is_warm(&self.engine), "{:?}", self.engine.start());
        // Expired and flushed items are not there any more.
        let found = support::objects(&self.engine);
        // An index without keys has to read items before it knows that they are superseded.
        let unread = self.engine.index_stats().get("index_dead_keys");
        assert!(found <= objects + unread || self.misses == Misses::MayComeBack);
    }

    /// Compares all keys ever used.
    async fn compare_all(&mut self) {
        self.settle();
        let mut keys: Vec<Vec<u8>> = self.last_unique.keys().cloned().collect();
        keys.extend(self.items.keys().cloned());
        keys.sort();
        keys.dedup();
        for key in keys {
            let found = get_item(&self.engine, &key, Peek::Yes).await;
            self.compare(&key, found);
        }
    }

    /// Compares the items of a dump with the map.
    async fn compare_dump(&mut self) {
        self.settle();
        let mut dumped: HashMap<Vec<u8>, u64> = HashMap::new();
        // A dump is interrupted and continued repeatedly.
        let mut visited = 0;
        let mut visit = |item: ItemRef<'_>| {
            let key = item.key;
            let twice = dumped.insert(key.to_vec(), item.cas_unique);
            assert_eq!(twice, None, "{:?} twice", String::from_utf8_lossy(key));
            visited += 1;
            if visited % 3 == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let mut cursor = MemoryCursor::default();
        while self.engine.dump_memory(&mut cursor, &mut visit) {}
        let mut cursor = DumpCursor::default();
        while self.engine.dump_flash(&mut cursor, &mut visit).await {}
        let expected: HashMap<Vec<u8>, u64> = self
            .items
            .iter()
            .map(|(key, item)| (key.clone(), item.cas_unique))
            .collect();
        if self.misses == Misses::Never {
            assert_eq!(dumped.len(), expected.len());
        }
        for (key, cas_unique) in dumped {
            assert_eq!(
                expected.get(&key),
                Some(&cas_unique),
                "{:?} of {cas_unique}",
                String::from_utf8_lossy(&key)
            );
        }
    }

    async fn step(&mut self) {
        match self.random.random_range(0..1000) {
            0..350 => self.set().await,
            350..700 => self.get().await,
            700..930 => self.modify().await,
            930..985 => self.remove().await,
            985..996 => self.advance().await,
            996 => self.flush().await,
            997 => self.compare_dump().await,
            _ => self.reopen().await,
        }
    }
}

fn brief(item: &Seen) -> (usize, u64, u32) {
    (item.value.len(), item.cas_unique, item.expiry)
}

pub(crate) fn run(seed: u64, config: EngineConfig, flash_bytes: u64, misses: Misses, steps: usize) {
    run_on(seed, config, memory_disk(flash_bytes), misses, steps);
}

pub(crate) fn run_on(seed: u64, config: EngineConfig, disk: Media, misses: Misses, steps: usize) {
    simulate(seed, async {
        let config = EngineConfig {
            partition_bits: [0, 1, 2, 4, 6][(seed % 5) as usize],
            ..config
        };
        let mut bench = Bench::new(seed, config, disk, misses).await;
        for _ in 0..steps {
            bench.step().await;
        }
        bench.compare_all().await;
        bench.reopen().await;
        bench.compare_dump().await;
        bench.compare_all().await;
        let stats = bench.engine.stats();
        if misses == Misses::Never {
            assert_eq!(stats.placement.segments_reclaimed, 0, "{stats:#?}");
            assert_eq!(bench.missed, 0);
        }
    });
}
