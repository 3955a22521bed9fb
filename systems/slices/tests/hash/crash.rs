//! The process or the power fails at a random moment, several times over.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flowstone_slices::{HashSettings, SliceHash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::hardware::seeds;
use crate::life::{Hardware, small, with_side};
use crate::model::Model;

const KEYS: u64 = 900;
const TASKS: u64 = 4;
const LIVES: u64 = 4;

/// Changes, reads and syncs keys of this task alone, until the crash.
async fn client(
    table: SliceHash,
    model: Rc<RefCell<Model>>,
    task: u64,
    seed: u64,
    may_evict: bool,
) {
    let mut random = SmallRng::seed_from_u64(seed);
    loop {
        let key = random.random_range(0..KEYS / TASKS) * TASKS + task;
        match random.random_range(0..100) {
            0..75 => {
                let value = random.random_bool(0.8).then(|| random.random());
                model.borrow_mut().begin(key, value);
                let changed = match value {
                    Some(value) => table.insert(key, value).await,
                    None => table.delete(key).await,
                };
                changed.expect("drives work");
                model.borrow_mut().acknowledge(key);
            }
            75..97 => {
                let found = table.get(key).await.expect("drives work");
                let is_right = model.borrow().is_value(key, found);
                assert!(
                    is_right || (may_evict && found.is_none()),
                    "seed {seed}, key {key}: {found:?}"
                );
            }
            _ => {
                let acknowledged = model.borrow().acknowledged();
                table.sync().await.expect("drives work");
                model.borrow_mut().sync(acknowledged);
            }
        }
        runtime::sleep(Duration::from_micros(random.random_range(0..300))).await;
    }
}

/// Runs several lives on the same drives, each ended by a crash.
fn live_and_crash(settings: &HashSettings, drives: usize, seed: u64, may_evict: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let model = Rc::new(RefCell::new(Model::default()));
    let mut hardware = Hardware::new(settings, drives, seed);
    let mut has_power = true;
    for life in 0..LIVES {
        // Starts that crash themselves. A power cut may take stores that an earlier kill has left in the page cache.
        while life > 0 && random.random_bool(0.4) {
            let sim = Sim::new(random.random());
            let limit = Duration::from_micros(random.random_range(1..4_000));
            sim.block_on(async {
                let _ = runtime::timeout(limit, hardware.open(settings)).await;
            });
            let is_killed = random.random_bool(0.5);
            has_power &= is_killed;
            let left = match is_killed {
                true => hardware.killed(random.random()),
                false => hardware.without_power(random.random()),
            };
            sim.crash();
            hardware = Hardware::of(left, random.random());
        }
        let sim = Sim::new(random.random());
        let until = Duration::from_micros(random.random_range(1..60_000));
        sim.block_on(async {
            let table = match life {
                0 => hardware.create(settings).await,
                _ => hardware.open(settings).await,
            };
            let table = table.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            if settings.side_tables > 0 {
                hardware.slow_down();
            }
            for key in 0..KEYS {
                let found = table.get(key).await.expect("drives work");
                model.borrow_mut().check(key, found, has_power, may_evict);
            }
            for task in 0..TASKS {
                let seed = random.random();
                runtime::spawn_detached(client(
                    table.clone(),
                    Rc::clone(&model),
                    task,
                    seed,
                    may_evict,
                ));
            }
            runtime::sleep(until).await;
        });
        has_power = random.random_bool(0.5);
        let left = match has_power {
            true => hardware.killed(random.random()),
            false => hardware.without_power(random.random()),
        };
        sim.crash();
        hardware = Hardware::of(left, random.random());
    }
}

#[test]
fn no_change_is_lost_or_undone() {
    for seed in seeds(40) {
        // Enough incarnations that nothing is evicted: a missing value is lost.
        live_and_crash(&small(40, false), 1, seed, false);
        live_and_crash(&small(40, false), 2, seed, false);
        live_and_crash(&small(40, true), 3, seed, false);
        live_and_crash(&with_side(40, false), 1, seed, false);
        live_and_crash(&with_side(40, false), 2, seed, false);
        live_and_crash(&with_side(40, true), 3, seed, false);
    }
}

#[test]
fn what_has_been_evicted_does_not_come_back() {
    for seed in seeds(40) {
        live_and_crash(&small(3, false), 2, seed, true);
        live_and_crash(&small(2, true), 3, seed, true);
        live_and_crash(&with_side(3, false), 2, seed, true);
        live_and_crash(&with_side(2, true), 3, seed, true);
    }
}
