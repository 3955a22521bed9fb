//! Opens the state after a crash and reads every key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::format::segment::Position;
use engine::{Engine, Start};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::client::read;
use super::life::Machine;
use super::plan::{Plan, Rates};
use super::report::Report;
use super::watch::CrashPoint;
use crate::values::{key_bytes, tag_of};
use engine::history::{Found, History};

/// Readers during recovery, and the maximum number of keys they read.
const READERS: usize = 4;
const MAX_EARLY_READS: usize = 400;

/// Number of expected items from which a power cut must leave some: torn records kill more items than they
/// should, but not all.
const MANY: usize = 20;

/// Rates that take no crash points.
const NONE: Rates = Rates {
    stores: 1,
    accesses: 1,
    reads: 0,
    operations: 1,
    most: 0,
};
/// Rates that take one crash point early in the recovery.
const ONE: Rates = Rates {
    stores: 8,
    accesses: 4,
    reads: 10,
    operations: 1,
    most: 1,
};

/// Opens a crash point and dies in its recovery, or shortly after. Returns the state after that crash.
pub(super) fn stumble(seed: u64, plan: &Plan, point: &CrashPoint) -> Result<CrashPoint, String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let machine = Machine::new(&mut random, plan, point.clone());
    machine.watch.enter(ONE);
    let outcome = machine.sim.block_on(async {
        let _engine = machine.open(plan).await?;
        runtime::sleep(Duration::from_micros(random.random_range(1..5000))).await;
        if machine.watch.state.lock().points.is_empty() {
            machine.watch.take(true, "recovered");
        }
        machine.journal.observe(|_| {});
        Ok::<(), String>(())
    });
    machine.sim.crash();
    outcome?;
    let mut points = std::mem::take(&mut machine.watch.state.lock().points);
    Ok(points.pop().expect("one was taken"))
}

/// Opens a crash point and reads every key, both during recovery and after it.
pub(super) fn verify(
    seed: u64,
    plan: &Plan,
    point: &CrashPoint,
    report: &mut Report,
) -> Result<(), String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let machine = Machine::new(&mut random, plan, point.clone());
    machine.watch.enter(NONE);
    let mut expected: HashMap<u64, u64> = point.facts.expected.iter().copied().collect();
    let mut lost = 0;
    let outcome = machine.sim.block_on(async {
        let engine = machine.open(plan).await?;
        if matches!(engine.start(), Start::Empty(_)) {
            // An empty start that `open` allowed: nothing is expected.
            expected.clear();
            report.empty_starts += 1;
        }
        let expected_items = expected.len();
        let mut unnamed = HashMap::new();
        let seen = read_early(&mut random, plan, &machine, &engine).await?;
        engine.recovered().await;
        for key in 0..plan.keys {
            let found = read(&engine, &key_bytes(key)).await;
            let found = look(&machine.history.lock(), key, found)
                .map_err(|wrong| format!("{wrong}; {:?}", engine.start()))?;
            report.reads += 1;
            let expected = expected.remove(&key);
            report.expected += u64::from(expected.is_some());
            let Some(write) = found else {
                let Some(tag) = expected else {
                    if let Some(certain) = machine.history.lock().certain(key)
                        && certain.expiry == 0
                        && certain.is_untouched
                    {
                        unnamed.insert(
                            hash_of(&engine, key),
                            Stored {
                                key,
                                tag: certain.tag,
                            },
                        );
                    }
                    continue;
                };
                let is_evicted =
                    point.facts.has_dropped && plan.config.placement.describe().drops_pages;
                let may_be_lost = point.facts.is_cut || plan.places_again() || is_evicted;
                match (is_all_there(&machine, &engine), may_be_lost) {
                    (false, _) => report.excused += 1,
                    (true, true) => lost += 1,
                    (true, false) => {
                        let told = machine.history.lock().tell(key);
                        let what = format!("key {key}: value {tag} is not found again");
                        return Err(format!("{what}\n  {told}"));
                    }
                }
                continue;
            };
            report.hits += 1;
            if let (Some(&Some(first)), Some(then)) = (seen.get(&key), write) {
                let history = machine.history.lock();
                history
                    .follows(key, first, then)
                    .map_err(|wrong| format!("{wrong}\n  {}", history.tell(key)))?;
            }
        }
        // A torn record kills more items than it should.
        if point.facts.is_whole
            && !point.facts.is_cut
            && !point.facts.has_dropped
            && !plan.forgets_written()
            && let Some(Stored { key, tag }) = lying_there(&engine, &unnamed).await
            && is_all_there(&machine, &engine)
        {
            let told = machine.history.lock().tell(key);
            return Err(format!(
                "key {key}: value {tag} lies on flash and is not found
  {told}"
            ));
        }
        report.lost += lost;
        let may_be_flushed = machine.history.lock().is_flush_in_doubt();
        let is_any_left = lost < expected_items as u64 || plan.places_again();
        if expected_items >= MANY && !is_any_left && !may_be_flushed {
            return Err(format!("none of {expected_items} values is found again"));
        }
        machine.check_device(&engine)?;
        report.digest(runtime::now().as_nanos());
        report.digest(report.hits);
        Ok(())
    });
    machine.sim.crash();
    report.crashes += 1;
    report.rotten += u64::from(point.facts.may_be_empty);
    report.crashes_on_nand += u64::from(machine.watch.media.is_flash());
    outcome
}

/// Reads keys during recovery. Returns the writes that were seen.
async fn read_early(
    random: &mut SmallRng,
    plan: &Plan,
    machine: &Machine,
    engine: &Arc<Engine>,
) -> Result<HashMap<u64, Option<usize>>, String> {
    let mut keys: Vec<u64> = (0..plan.keys).collect();
    keys.shuffle(random);
    keys.truncate(MAX_EARLY_READS);
    let seen: Arc<Mutex<HashMap<u64, Option<usize>>>> = Arc::default();
    let mut readers = Vec::new();
    for part in keys.chunks(keys.len().div_ceil(READERS)) {
        let part = part.to_vec();
        let (engine, seen) = (Arc::clone(engine), Arc::clone(&seen));
        let history = Arc::clone(&machine.history);
        readers.push(runtime::spawn(async move {
            for key in part {
                let found = read(&engine, &key_bytes(key)).await;
                if let Some(write) = look(&history.lock(), key, found)? {
                    seen.lock().insert(key, write);
                }
            }
            Ok::<(), String>(())
        }));
    }
    for reader in readers {
        reader
            .await
            .expect("nobody ends it")
            .map_err(|wrong| format!("{wrong}; before {:?} was recovered", engine.start()))?;
    }
    let seen = std::mem::take(&mut *seen.lock());
    Ok(seen)
}

/// Checks the result of a read. Returns `None` for a miss, else the write that stored the value, if only one
/// write explains it.
fn look(history: &History, key: u64, found: Found) -> Result<Option<Option<usize>>, String> {
    let found = found.map_err(|tag| format!("key {key}: value {tag} is damaged"))?;
    let Some(seen) = found else { return Ok(None) };
    let write = history
        .look(key, seen)
        .map_err(|wrong| format!("{wrong}\n  {}", history.tell(key)))?;
    Ok(Some(write))
}

fn hash_of(engine: &Engine, key: u64) -> u64 {
    engine.key(&key_bytes(key)).expect("a key").hash().0
}

/// Returns whether no item found since the start has been dropped: no segment has been reclaimed, and no
/// mapping has been evicted for lack of space. Items dropped because of damage are no excuse: nothing is
/// damaged here.
fn is_all_there(machine: &Machine, engine: &Engine) -> bool {
    let stats = engine.stats();
    let index = engine.index_stats();
    let gone = [
        "mappings_evicted",
        "index_displaced_hot",
        "index_displaced_ghosts",
        "index_removed_unread",
        "index_removed_shared",
    ];
    let gone: u64 = gone.iter().map(|name| index.get(name)).sum();
    let dropped = gone + engine.recovery().items_unnamed + stats.placement.index_full;
    machine.watch.is_unreclaimed(engine) && dropped == 0
}

/// A key, and the tag of its value.
#[derive(Clone, Copy)]
struct Stored {
    key: u64,
    tag: u64,
}

/// Returns one of `values`, given by the hash of its key, that lies in a written segment and never had an
/// expiry: the index should name it.
async fn lying_there(engine: &Engine, values: &HashMap<u64, Stored>) -> Option<Stored> {
    let store = engine.store();
    for record in store.pool().written() {
        let (Some(pin), Ok(entries)) = (
            store.table().pin(record.segment, record.sequence),
            store.reader().read_summary(&record).await,
        ) else {
            continue;
        };
        for entry in entries.iter().filter(|entry| entry.expiry.get() == 0) {
            let Some(&value) = values.get(&entry.hash.get()) else {
                continue;
            };
            let position = Position::from_bits(entry.position.get());
            if let Ok(item) = store.reader().read(&pin, position).await
                && tag_of(item.item().value) == Some(value.tag)
            {
                return Some(value);
            }
        }
    }
    None
}
