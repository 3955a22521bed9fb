//! SliceIndex as a cache uses it: changes that do not wait, saves of the tables in memory, crashes, and repeated changes since
//! the last save.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::{
    AlignedBuf, Disk, Fault, FaultyDisk, Journal, Latency, Operation, PAGE_BYTES, Tear, When,
};
use flowstone_slices::{HashSettings, InMemory, Known, PagedLog, SliceHash, SliceIndex};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::common::hardware::{Hardware, seeds};
use crate::common::lives::crashed;
use crate::life::{DRIVE_BYTES, small};

const KEYS: u64 = 400;
const INSTANCE: u64 = 0x1234;
/// Bytes of the disk that holds the log.
const LOG_BYTES: u64 = 2 * PAGE_BYTES as u64;

fn words(settings: &HashSettings) -> usize {
    let settings = SliceIndex::settings(settings);
    SliceHash::log_words(&settings, &[DRIVE_BYTES]).expect("the settings can be")
}

/// The owner of an index: the present value of each key, the last save, and the changes since.
#[derive(Default)]
struct Owner {
    now: BTreeMap<u64, u64>,
    saved: Vec<InMemory>,
    since: Vec<(u64, Option<u64>)>,
    /// Values that flushes have reported as gone.
    gone: Arc<Mutex<HashSet<u64>>>,
    next: u64,
}

impl Owner {
    async fn open(
        &mut self,
        hardware: &Hardware,
        settings: &HashSettings,
        is_new: bool,
    ) -> SliceIndex {
        let (disks, _) = hardware.parts();
        let [drive, log_disk] = <[_; 2]>::try_from(disks)
            .map_err(|_| ())
            .expect("two disks");
        let log = match is_new {
            true => PagedLog::create(log_disk, words(settings), INSTANCE),
            false => PagedLog::open(log_disk, words(settings), INSTANCE)
                .await
                .expect("it is there"),
        };
        let log = Arc::new(log);
        let index = match is_new {
            true => SliceIndex::create(drive, log, settings).await,
            false => SliceIndex::open(drive, log, settings).await,
        };
        let index = index.expect("it is there");
        let gone = Arc::clone(&self.gone);
        index.tell_of_gone(move |values| gone.lock().expect("whole").extend(values));
        for (partition, tables) in (0..).zip(&self.saved) {
            let put_back = index.put_back(partition, tables.clone()).await;
            put_back.expect("drives work");
        }
        let keeper = index.clone();
        runtime::spawn_detached(async move { keeper.keep_up().await });
        for &(key, value) in &self.since {
            change(&index, key, value).await;
        }
        index
    }

    async fn change(&mut self, index: &SliceIndex, key: u64, is_delete: bool) {
        self.next += 1;
        let value = (!is_delete).then_some(self.next);
        self.since.push((key, value));
        match value {
            Some(value) => self.now.insert(key, value),
            None => self.now.remove(&key),
        };
        change(index, key, value).await;
    }

    /// Checks the answers of the index for all keys. Values that flushes dropped may be missing if `may_evict`.
    async fn check(&self, index: &SliceIndex, may_evict: bool, what: &str) {
        for key in 0..KEYS {
            let found = index.get(key).await.expect("drives work");
            let expected = self.now.get(&key).copied();
            let is_gone =
                expected.is_some_and(|value| self.gone.lock().expect("whole").contains(&value));
            assert!(
                found == expected || is_gone && may_evict && found.is_none(),
                "{what}: key {key} is {expected:?}, found {found:?}"
            );
        }
    }

    fn save(&mut self, index: &SliceIndex) {
        let partitions = index.shape().partitions;
        self.saved = (0..partitions)
            .map(|partition| index.in_memory(partition))
            .collect();
        self.since.clear();
    }
}

async fn change(index: &SliceIndex, key: u64, value: Option<u64>) {
    loop {
        let caught_up = index.caught_up().listener();
        if !index.is_behind() {
            match value {
                None => {
                    index.bury(key);
                    return;
                }
                Some(value) if index.try_insert(key, value).is_ok() => return,
                Some(_) => {}
            }
        }
        caught_up.await;
    }
}

/// Returns settings with tables of about 60 entries.
fn tables(incarnations: u32) -> HashSettings {
    HashSettings {
        fill: 0.95,
        ..small(incarnations, false)
    }
}

fn live_and_crash(settings: &HashSettings, seed: u64, may_evict: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut owner = Owner::default();
    let mut hardware = Hardware::empty(1, &[DRIVE_BYTES, LOG_BYTES], seed);
    for life in 0..4 {
        let sim = Sim::new(random.random());
        sim.block_on(async {
            let index = owner.open(&hardware, settings, life == 0).await;
            owner
                .check(&index, may_evict, &format!("seed {seed}, life {life}"))
                .await;
            for _ in 0..random.random_range(1..900) {
                let key = random.random_range(0..KEYS);
                owner.change(&index, key, random.random_ratio(1, 5)).await;
                let pause = random.random_range(0..200);
                runtime::sleep(Duration::from_micros(pause)).await;
                if random.random_ratio(1, 60) {
                    owner.save(&index);
                    if random.random_ratio(1, 10) {
                        break;
                    }
                }
            }
            owner
                .check(
                    &index,
                    may_evict,
                    &format!("seed {seed}, at the end of life {life}"),
                )
                .await;
        });
        (hardware, _) = crashed(&hardware, sim, &mut random);
    }
}

#[test]
fn what_was_saved_and_what_has_changed_since_is_all_there_is() {
    for seed in seeds(60) {
        live_and_crash(&tables(40), seed, false);
        live_and_crash(&tables(3), seed, true);
    }
}

fn with_index(incarnations: u32, test: impl AsyncFnOnce(Hardware, SliceIndex)) {
    let hardware = Hardware::empty(1, &[DRIVE_BYTES, LOG_BYTES], 1);
    Sim::new(1).block_on(async {
        let (disks, _) = hardware.parts();
        let settings = tables(incarnations);
        let log = PagedLog::create(Arc::clone(&disks[1]), words(&settings), INSTANCE);
        let index = SliceIndex::create(Arc::clone(&disks[0]), Arc::new(log), &settings).await;
        test(hardware, index.expect("drives work")).await;
    });
}

/// Thousands of removed keys take no memory beside the tables, which are flushed as they become full. If a flush fails, the
/// removal returns an error and changes nothing.
#[test]
fn keys_that_are_removed_take_no_memory_beside_the_tables() {
    with_index(3, async |hardware, index| {
        for key in 0..50 {
            let inserted = index.try_insert(key, key + 1);
            assert_eq!(inserted, Ok(None));
        }
        let at_first = index.memory().tables;
        for key in 0..5_000 {
            let before = index.remove(key).await.expect("drives work");
            let known = (key < 50).then_some(Known::Value(key + 1));
            assert_eq!(before.map(|before| before.known), known, "{key}");
            // At most two tables for each partition, and nothing else.
            let has = index.memory().tables;
            assert!(has <= 2 * at_first, "{has} bytes, and {at_first} at first");
        }
        assert!(index.stats().flushes > 10);
        for key in 0..5_000 {
            assert_eq!(index.get(key).await.expect("drives work"), None);
        }
        hardware.disks[0].set_full(true);
        let mut key = 5_000;
        while index.remove(key).await.is_ok() {
            key += 1;
        }
        assert_eq!(index.known(key), None);
        hardware.disks[0].set_full(false);
        runtime::sleep(Duration::from_secs(6)).await;
        assert!(index.remove(key).await.is_ok());
    });
}

/// If a start dies after it has flushed some or all of the tables put back, the next start puts back everything that was saved.
/// This includes tables with more entries than values may fill, and tables with more than their slots.
#[test]
fn what_was_saved_is_put_back_as_often_as_starts_die() {
    for seed in seeds(60) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut owner = Owner::default();
        let mut hardware = Hardware::empty(1, &[DRIVE_BYTES, LOG_BYTES], seed);
        for life in 0..5 {
            let sim = Sim::new(random.random());
            sim.block_on(async {
                let index = owner.open(&hardware, &tables(40), life == 0).await;
                if life == 0 {
                    for key in 0..KEYS {
                        owner.change(&index, key, false).await;
                    }
                    runtime::sleep(Duration::from_secs(1)).await;
                    // Faster than flushes write the entries.
                    for key in 0..random.random_range(KEYS..3 * KEYS) {
                        if random.random_ratio(1, 2) {
                            owner.now.remove(&key);
                            index.bury(key);
                        }
                    }
                    owner.save(&index);
                    return;
                }
                owner
                    .check(&index, false, &format!("seed {seed}, life {life}"))
                    .await;
                runtime::sleep(Duration::from_micros(random.random_range(0..9000))).await;
            });
            let left = hardware.killed(random.random());
            sim.crash();
            hardware = Hardware::of(left, random.random());
        }
    }
}

/// Nothing is flushed, since `keep_up` does not run.
#[test]
fn values_are_refused_by_a_full_table_and_deletes_are_not() {
    with_index(3, async |_, index| {
        let most = index.shape().table_entries as usize;
        let mut set = Vec::new();
        let mut was_behind_at = None;
        for key in 0.. {
            if index.is_behind() && was_behind_at.is_none() {
                was_behind_at = Some(set.len());
            }
            match index.try_insert(key, key + 1) {
                Ok(before) => assert_eq!(before, None),
                Err(before) => {
                    assert_eq!(before, None);
                    break;
                }
            }
            set.push(key);
        }
        assert!(
            was_behind_at.is_some_and(|at| at + 32 <= set.len()),
            "{was_behind_at:?}"
        );
        assert!(set.len() >= most && !index.is_full());
        for key in 10_000..11_000 {
            assert_eq!(index.bury(key), None);
            assert_eq!(index.known(key), Some(Known::Deleted));
        }
        assert!(index.is_full());
        let before = index.bury(set[0]).map(|before| before.known);
        assert_eq!(before, Some(Known::Value(1)));
        assert!(!index.replace_if(set[1], 77, None), "it has another value");
        assert!(index.replace_if(set[1], 2, None));
        assert!(index.replace_if(set[2], 3, Some(9)));
        for (key, expected) in [
            (0, None),
            (1, None),
            (2, Some(9)),
            (3, Some(4)),
            (10_500, None),
        ] {
            let key = set.get(key).copied().unwrap_or(key as u64);
            let found = index.get(key).await.expect("it is in memory");
            assert_eq!(found, expected);
        }
        let keeper = index.clone();
        runtime::spawn_detached(async move { keeper.keep_up().await });
        while index.is_full() || index.is_behind() {
            index.caught_up().listener().await;
        }
        assert_eq!(index.get(10_500).await.expect("drives work"), None);
        assert_eq!(index.get(set[3]).await.expect("drives work"), Some(4));
    });
}

/// If a power cut takes one place of a page, or all of its contents, the other place still has the page.
#[test]
fn a_page_of_the_log_has_two_places() {
    const WORDS: usize = 700;
    for seed in seeds(40) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut hardware = Hardware::empty(1, &[4 * LOG_BYTES], seed);
        let (mut durable, mut now) = (vec![0; WORDS], vec![0; WORDS]);
        for life in 0..8 {
            let sim = Sim::new(random.random());
            sim.block_on(async {
                let (mut disks, _) = hardware.parts();
                let disk = disks.remove(0);
                let log = match life {
                    0 => PagedLog::create(disk, WORDS, INSTANCE),
                    _ => {
                        let log = PagedLog::open(disk, WORDS, INSTANCE).await;
                        let log =
                            log.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                        for word in 0..WORDS {
                            let found = log.load(word);
                            // A sync that had not returned may have completed.
                            assert!(
                                found == durable[word] || found == now[word],
                                "seed {seed}, life {life}, word {word}: {found}"
                            );
                            durable[word] = found;
                            now[word] = found;
                        }
                        log
                    }
                };
                for _ in 0..random.random_range(1..5) {
                    for _ in 0..random.random_range(0..4) {
                        let word = random.random_range(0..WORDS);
                        now[word] = random.random();
                        log.store(word, now[word]);
                    }
                    log.sync().await.expect("the disk works");
                    durable.clone_from(&now);
                }
                let word = random.random_range(0..WORDS);
                now[word] = random.random();
                log.store(word, now[word]);
                let patience = Duration::from_micros(random.random_range(0..900));
                if let Ok(synced) = runtime::timeout(patience, log.sync()).await {
                    synced.expect("the disk works");
                    durable.clone_from(&now);
                }
            });
            let left = hardware.without_power(random.random());
            sim.crash();
            hardware = Hardware::of(left, random.random());
        }
    }
}

/// Pages at another place, and pages of another log, are rejected.
#[test]
fn a_log_is_its_own() {
    let hardware = Hardware::empty(1, &[2 * LOG_BYTES], 1);
    Sim::new(1).block_on(async {
        let disk = hardware.parts().0.remove(0);
        let log = PagedLog::create(Arc::clone(&disk), 600, INSTANCE);
        log.sync().await.expect("the disk works");
        let open = |instance| PagedLog::open(Arc::clone(&disk), 600, instance);
        assert!(open(INSTANCE).await.is_ok());
        assert!(open(INSTANCE + 1).await.is_err());
        let first = disk.read(0, AlignedBuf::new(2 * PAGE_BYTES)).await;
        let first = first.expect("the disk works");
        let written = disk.write(LOG_BYTES, first.into()).await;
        written.expect("the disk works");
        assert!(open(INSTANCE).await.is_err());
    });
}

/// The writes of a dead process are readable but not yet durable. They must not replace a durable page.
#[test]
fn a_power_cut_after_the_death_of_a_process_leaves_what_a_start_has_found() {
    for seed in 0..200 {
        Sim::new(seed).block_on(async {
            let disk = Arc::new(FaultyDisk::in_memory(LOG_BYTES, seed));
            let log = PagedLog::create(Arc::clone(&disk) as Arc<dyn Disk>, 500, INSTANCE);
            let store = |log: &PagedLog, value| (0..500).for_each(|word| log.store(word, value));
            for value in 1..=2 {
                store(&log, value);
                log.sync().await.expect("the disk works");
            }
            let begin = async |log: PagedLog, value| {
                store(&log, value);
                let slow = Fault::Slow(Duration::from_secs(9));
                disk.script(When::next(Operation::Sync), slow);
                let given_up = runtime::timeout(Duration::from_secs(1), log.sync()).await;
                assert!(given_up.is_err());
            };
            begin(log, 3).await;
            let log = PagedLog::open(Arc::clone(&disk) as Arc<dyn Disk>, 500, INSTANCE).await;
            let log = log.expect("it is there");
            assert_eq!(log.load(7), 3);
            begin(log, 4).await;
            let left = disk.crash(seed, Tear::Sectors);
            let left = FaultyDisk::from_image(left, Latency::default(), seed);
            let log = PagedLog::open(Arc::new(left), 500, INSTANCE).await;
            let log = log.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = log.load(7);
            assert!((3..=4).contains(&found), "seed {seed}: {found}");
        });
    }
}

/// A sync that was dropped has not made its stores durable.
#[test]
fn what_a_sync_that_was_given_up_had_to_write_is_written_by_the_next() {
    Sim::new(1).block_on(async {
        let disk = Arc::new(FaultyDisk::in_memory(LOG_BYTES, 1));
        let log = PagedLog::create(Arc::clone(&disk) as Arc<dyn Disk>, 500, INSTANCE);
        log.sync().await.expect("the disk works");
        log.store(3, 30);
        let slow = Fault::Slow(Duration::from_secs(9));
        disk.script(When::next(Operation::Write), slow);
        let given_up = runtime::timeout(Duration::from_secs(1), log.sync()).await;
        assert!(given_up.is_err());
        log.sync().await.expect("the disk works");
        let left = disk.crash(1, Tear::Sectors);
        let left = FaultyDisk::from_image(left, Latency::default(), 1);
        let log = PagedLog::open(Arc::new(left), 500, INSTANCE).await;
        assert_eq!(log.expect("it is there").load(3), 30);
    });
}
