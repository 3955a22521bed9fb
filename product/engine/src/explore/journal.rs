//! Appends, syncs, failed syncs, checkpoints and the end of the process, on a ring that has lapped: a start finds every
//! acknowledged record, or finds that the journal is void.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use device::{DeviceError, IoFuture, Journal as Log, MemoryJournal, Origin};
use shuttle::thread::JoinHandle;

use super::{explore, join, start};
use crate::durability::journal::{ChunkRecords, Damaged, Journal, chunks};
use crate::format::journal::{HEAD_WORDS, Record, VOID_WORD, chunk_words};
use crate::sync::turn;

const IMAGE: u64 = 7;
const PARTITIONS: u32 = 1;
const CHUNKS: usize = 8;
const NOW: u32 = 1_800_000_000;

/// A journal in memory. Each load, store, clear and sync is a step of the schedule.
struct Stepped(MemoryJournal);

impl Log for Stepped {
    fn words(&self) -> usize {
        self.0.words()
    }

    fn origin(&self) -> Origin {
        self.0.origin()
    }

    fn load(&self, word: usize) -> u64 {
        turn();
        self.0.load(word)
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        self.0.read(start, words)
    }

    fn store(&self, word: usize, value: u64) {
        turn();
        self.0.store(word, value);
    }

    fn clear(&self, words: Range<usize>) {
        turn();
        self.0.clear(words);
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        turn();
        Box::pin(async {
            let synced = self.0.sync().await;
            if synced.is_err() {
                // The operating system reports an error once.
                self.0.set_sync_fails(false);
            }
            synced
        })
    }

    fn let_go(&self, words: Range<usize>) {
        self.0.let_go(words);
    }
}

/// Records, by their numbers.
type Numbers = BTreeSet<u64>;

/// State known besides the journal. Its lock is the system's, so it is never held at a point where another thread may
/// get its turn.
#[derive(Clone, Default)]
struct Known {
    /// Records appended, or being appended.
    begun: Numbers,
    acknowledged: Numbers,
    /// Records acknowledged before the begin of a sync that succeeded.
    synced: Numbers,
    /// Records in the checkpoint. `first` is the first chunk behind it.
    checkpoint: Numbers,
    first: u64,
    /// Whether the superblock says that the journal is void.
    is_void: bool,
    /// Whether a sync may have failed.
    has_failed: bool,
}

struct Cache {
    journal: Journal,
    log: Arc<Stepped>,
    known: Mutex<Known>,
}

impl Cache {
    /// Returns a cache whose journal has begun its second lap.
    fn new() -> Self {
        let words = HEAD_WORDS + CHUNKS * chunk_words(PARTITIONS);
        let log = Arc::new(Stepped(MemoryJournal::new(words)));
        let segments = Arc::new(crate::sync::atomic::AtomicU64::new(1));
        let ring = Arc::clone(&log) as Arc<dyn Log>;
        let cache = Self {
            journal: Journal::take_over(ring, IMAGE, 1, PARTITIONS, 1..1, segments),
            log,
            known: Mutex::new(Known {
                first: 1,
                ..Known::default()
            }),
        };
        for number in 0..CHUNKS as u64 {
            cache.append(number);
            cache.journal.cut();
            cache.write_down(number.max(1));
        }
        cache
    }

    fn append(&self, number: u64) {
        self.known.lock().unwrap().begun.insert(number);
        let location = number;
        self.journal.append(Record::Dead {
            location,
            generation: 1,
        });
        self.known.lock().unwrap().acknowledged.insert(number);
    }

    /// Syncs the journal like the engine.
    async fn sync(&self, seed: u64) -> bool {
        let before = self.known.lock().unwrap().acknowledged.clone();
        let is_synced = self.journal.sync(NOW).await.is_ok();
        let is_void = self.journal.is_void();
        let mut known = self.known.lock().unwrap();
        known.is_void |= is_void;
        if is_synced {
            known.synced.extend(before);
        }
        drop(known);
        self.check(seed);
        is_synced
    }

    /// Makes the next sync fail.
    fn fail(&self) {
        self.known.lock().unwrap().has_failed = true;
        self.log.0.set_sync_fails(true);
    }

    /// Makes the superblock name a checkpoint with the records before chunk `end`.
    fn write_down(&self, end: u64) {
        let found = self.journal.before(end);
        let found = found.and_then(|chunks| records(&*self.log, chunks));
        let found = found.expect("nothing rots");
        let mut known = self.known.lock().unwrap();
        known.checkpoint.extend(found);
        known.first = end;
        drop(known);
        self.journal.retire(end);
    }

    /// Makes a checkpoint like the engine.
    async fn checkpoint(&self, seed: u64) {
        if !self.journal.is_void() {
            let losses = self.journal.losses();
            let end = self.journal.cut();
            if self.journal.losses() == losses {
                self.write_down(end);
            }
            return;
        }
        let end = self.journal.restart();
        let losses = self.journal.losses();
        if !self.sync(seed).await {
            return;
        }
        // The index knows every death, including those being recorded.
        let held = self.known.lock().unwrap().begun.clone();
        if self.journal.losses() != losses {
            return;
        }
        let mut known = self.known.lock().unwrap();
        known.checkpoint.extend(held);
        known.first = end;
        known.is_void = false;
        drop(known);
        self.journal.retire(end);
        self.journal.heal(losses);
    }

    /// Checks that a start, after the end of the process or a power cut at this moment, finds the records that it must
    /// find, or finds the journal void. It may be void only if a sync has failed.
    fn check(&self, seed: u64) {
        let known = self.known.lock().unwrap().clone();
        let left = [
            (self.log.0.crash(), &known.acknowledged),
            (self.log.0.power_cut(seed), &known.synced),
        ];
        for (words, needed) in left {
            let log = MemoryJournal::from_words(words);
            let chunks = chunks(&log, IMAGE, PARTITIONS, known.first);
            let found = chunks.and_then(|chunks| records(&log, chunks));
            let is_void = known.is_void || log.load(VOID_WORD) != 0;
            let Ok(mut found) =
                found.and_then(|found| if is_void { Err(Damaged) } else { Ok(found) })
            else {
                assert!(
                    known.has_failed,
                    "no sync has failed, and the journal is void"
                );
                continue;
            };
            found.extend(&known.checkpoint);
            let missing: Vec<&u64> = needed.difference(&found).collect();
            assert!(missing.is_empty(), "records {missing:?} are lost");
        }
    }
}

fn records(log: &dyn Log, chunks: Vec<ChunkRecords>) -> Result<Numbers, Damaged> {
    let mut found = Numbers::new();
    for chunk in chunks {
        chunk.each(log, |record| {
            if let Record::Dead { location, .. } = record {
                found.insert(location);
            }
        })?;
    }
    Ok(found)
}

#[test]
fn what_was_acknowledged_is_found_whatever_is_synced_and_retired_meanwhile() {
    let name = "what_was_acknowledged_is_found_whatever_is_synced_and_retired_meanwhile";
    explore(name, 100, async |seed| {
        let cache = Arc::new(Cache::new());
        let appender = |first| {
            let cache = Arc::clone(&cache);
            start(async move || {
                for number in first..first + 3 {
                    while !cache.journal.has_space() {
                        shuttle::thread::yield_now();
                    }
                    cache.append(number);
                }
            })
        };
        let syncer = || syncer(&cache, seed);
        let mut threads = vec![appender(100), appender(200), syncer(), syncer()];
        let checkpointing = Arc::clone(&cache);
        threads.push(start(async move || {
            for _ in 0..2 {
                checkpointing.checkpoint(seed).await;
            }
        }));
        let ending = Arc::clone(&cache);
        threads.push(start(async move || {
            turn();
            ending.check(seed);
        }));
        let failing = Arc::clone(&cache);
        threads.push(start(async move || {
            for _ in 0..seed / 2 % 3 {
                turn();
                failing.fail();
            }
        }));
        join(threads);
        cache.check(seed);
        while cache.journal.is_dirty() {
            cache.sync(seed).await;
        }
        // The journal is not dirty: all acknowledged records are durable.
        let mut known = cache.known.lock().unwrap();
        known.synced = known.acknowledged.clone();
        drop(known);
        cache.check(seed);
    });
}

#[test]
fn no_sync_succeeds_before_what_another_has_lost_is_known() {
    let name = "no_sync_succeeds_before_what_another_has_lost_is_known";
    explore(name, 20, async |seed| {
        let cache = Arc::new(Cache::new());
        cache.fail();
        join([syncer(&cache, seed), syncer(&cache, seed)]);
    });
}

fn syncer(cache: &Arc<Cache>, seed: u64) -> JoinHandle<()> {
    let cache = Arc::clone(cache);
    start(async move || {
        for _ in 0..2 {
            cache.sync(seed).await;
        }
    })
}
