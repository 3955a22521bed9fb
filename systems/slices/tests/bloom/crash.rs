//! The process or the power fails at a random moment, several times in a row.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use flowstone_slices::{BloomSettings, BloomShape, SliceBloom};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::hardware::{Hardware, seeds};
use crate::common::lives::live_and_crash;
use crate::common::structure::{check_all, missing};
use crate::life::{PLACEMENTS, key, small};

const TASKS: u64 = 4;
/// Words of a filter in memory: a page.
const HALF_WORDS: usize = 512;
/// Lowest number of keys that are never inserted.
const ABSENT: u64 = 1 << 40;

/// Keys that a filter must have, each with the number of its last acknowledged, or synced, insert.
#[derive(Default)]
struct Model {
    inserts: u64,
    acknowledged: HashMap<u64, u64>,
    synced: HashMap<u64, u64>,
}

impl Model {
    fn acknowledge(&mut self, number: u64) {
        self.acknowledged.insert(number, self.inserts);
        self.inserts += 1;
    }

    /// Returns the keys that must be present after a crash, among the last `kept` inserts, and forgets the other keys.
    fn crash(&mut self, has_power: bool, kept: u64) -> Vec<u64> {
        let from = self.inserts.saturating_sub(kept);
        if !has_power {
            self.acknowledged.clone_from(&self.synced);
        }
        self.acknowledged.retain(|_, &mut at| at >= from);
        self.synced.retain(|_, &mut at| at >= from);
        self.acknowledged.keys().copied().collect()
    }
}

/// Inserts, looks up and syncs keys of this task alone, until the crash.
async fn client(
    filter: SliceBloom,
    model: Rc<RefCell<Model>>,
    task: u64,
    first: u64,
    seed: u64,
    kept: u64,
) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut next = first;
    loop {
        match random.random_range(0..100) {
            0..75 => {
                // Inserts some keys for the second time.
                let again = next > first && random.random_bool(0.1);
                let number = match again {
                    true => random.random_range(first..next),
                    false => next,
                };
                next = next.max(number + 1);
                let number = number * TASKS + task;
                filter.insert(&key(number)).await.expect("drives work");
                model.borrow_mut().acknowledge(number);
            }
            75..97 if next > first => {
                let number = random.random_range(first..next) * TASKS + task;
                let at = model.borrow().acknowledged[&number];
                let found = filter.may_contain(&key(number)).await.expect("drives work");
                let is_kept = model.borrow().inserts - at < kept;
                assert!(found || !is_kept, "seed {seed}: {number} is denied");
            }
            97.. => {
                let all = model.borrow().acknowledged.clone();
                filter.sync().await.expect("drives work");
                model.borrow_mut().synced.extend(all);
            }
            _ => {}
        }
        runtime::sleep(Duration::from_micros(random.random_range(0..300))).await;
    }
}

/// Checks that no filter in memory has more bits than its keys can set, whatever crashes have left in it.
fn check_fill(hardware: &Hardware, shape: BloomShape, seed: u64) {
    let words = hardware.journal.crash();
    let halves = words.len() - 2 * shape.partitions as usize * HALF_WORDS;
    for half in words[halves..].chunks_exact(HALF_WORDS) {
        // The last word vouches for the others.
        let bits = half[..HALF_WORDS - 1].iter();
        let ones: u32 = bits.map(|word| word.count_ones()).sum();
        let most = shape.keys * shape.functions;
        assert!(ones <= most, "seed {seed}: {ones} bits, {most} at most");
    }
}

/// Runs several lives on the same drives, each ended by a crash. None of the last `kept` inserts is evicted.
fn inserts_survive(settings: &BloomSettings, drives: usize, seed: u64, kept: u64) {
    let model = Rc::new(RefCell::new(Model::default()));
    live_and_crash(
        settings,
        drives,
        seed,
        async |filter, hardware, life, random| {
            let left = model.borrow_mut().crash(life.has_power, kept);
            let crash = if life.has_power {
                "killed"
            } else {
                "power cut"
            };
            let when = format!("seed {seed}, life {}, {crash}", life.number);
            check_all(&filter, left, &when).await;
            let wrong = 200 - missing(&filter, ABSENT..ABSENT + 200).await;
            let rate = filter.shape().false_positive_rate();
            assert!(
                wrong as f64 <= 200.0 * rate + 15.0,
                "{when}: {wrong} false positives, {rate}"
            );
            for task in 0..TASKS {
                let (filter, model, first) = (filter.clone(), Rc::clone(&model), life.number << 20);
                let client = client(filter, model, task, first, random.random(), kept);
                runtime::spawn_detached(client);
            }
            let until = Duration::from_micros(random.random_range(1..80_000));
            runtime::sleep(until).await;
            check_fill(hardware, *filter.shape(), seed);
        },
    );
}

#[test]
fn no_insert_is_lost() {
    for seed in seeds(40) {
        for placement in PLACEMENTS {
            // Enough incarnations that nothing is evicted: a missing key is lost.
            inserts_survive(&small(40, placement), 1, seed, u64::MAX);
            inserts_survive(&small(40, placement), 2, seed, u64::MAX);
        }
    }
}

#[test]
fn only_the_oldest_is_evicted() {
    for seed in seeds(40) {
        for placement in PLACEMENTS {
            // The last 100 inserts are in at most two filters of each partition.
            inserts_survive(&small(3, placement), 2, seed, 100);
        }
    }
}
