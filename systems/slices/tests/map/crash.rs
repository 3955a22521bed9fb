//! The process or the power fails at a random moment, several times in a row; before that, drives are slow or fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use flowstone_slices::{HashSettings, MapSettings, SliceMap};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::hardware::seeds;
use crate::life::{Hardware, key, number, short_ring, small, value};
use crate::model::Model;

const KEYS: u64 = 400;
const TASKS: u64 = 4;
const LIVES: u64 = 4;

/// Changes, reads and syncs keys of this task alone, until the crash.
async fn client(
    map: SliceMap,
    model: Rc<RefCell<Model>>,
    stop: Rc<Cell<bool>>,
    task: u64,
    seed: u64,
    may_go: bool,
) {
    let mut random = SmallRng::seed_from_u64(seed);
    while !stop.get() {
        let of = random.random_range(0..KEYS / TASKS) * TASKS + task;
        match random.random_range(0..100) {
            0..75 => {
                let to = random.random_bool(0.8).then(|| random.random());
                model.borrow_mut().begin(of, to);
                let change = async || match to {
                    Some(to) => map.insert(&key(of), &value(to)).await,
                    None => map.delete(&key(of)).await,
                };
                // A refused change has not been made.
                while change().await.is_err() {
                    runtime::sleep(Duration::from_millis(1)).await;
                }
                model.borrow_mut().acknowledge(of);
            }
            75..97 => {
                let found = number(map.get(&key(of)).await.expect("drives work"));
                let is_right = model.borrow().is_value(of, found);
                assert!(
                    is_right || (may_go && found.is_none()),
                    "seed {seed}, key {of}: {found:?}"
                );
            }
            _ => {
                let acknowledged = model.borrow().acknowledged();
                // A dropped sync goes on, or does not.
                let limit = match random.random_bool(0.3) {
                    true => Duration::from_micros(random.random_range(0..2_000)),
                    false => Duration::from_secs(100_000),
                };
                let synced = runtime::timeout(limit, map.sync()).await;
                if matches!(synced, Ok(Ok(()))) {
                    model.borrow_mut().sync(acknowledged);
                }
            }
        }
        runtime::sleep(Duration::from_micros(random.random_range(0..300))).await;
    }
}

/// Crashes in either way. Returns the hardware afterwards, and whether the power stayed on.
fn crashed(hardware: &Hardware, sim: Sim, random: &mut SmallRng) -> (Hardware, bool) {
    let is_killed = random.random_bool(0.5);
    let left = match is_killed {
        true => hardware.killed(random.random()),
        false => hardware.without_power(random.random()),
    };
    sim.crash();
    (Hardware::of(left, random.random()), is_killed)
}

/// Runs several lives on the same drives, each ended by a crash.
fn live_and_crash(settings: &MapSettings, drives: usize, seed: u64, may_go: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let model = Rc::new(RefCell::new(Model::default()));
    let mut hardware = Hardware::new(settings, drives, seed);
    let mut has_power = true;
    for life in 0..LIVES {
        // Starts that crash themselves.
        while life > 0 && random.random_bool(0.4) {
            let sim = Sim::new(random.random());
            let limit = Duration::from_micros(random.random_range(1..6_000));
            sim.block_on(async {
                let _ = runtime::timeout(limit, hardware.open(settings)).await;
            });
            let is_killed;
            (hardware, is_killed) = crashed(&hardware, sim, &mut random);
            has_power &= is_killed;
        }
        let sim = Sim::new(random.random());
        let until = Duration::from_micros(random.random_range(1..60_000));
        sim.block_on(async {
            let map = match life {
                0 => hardware.create(settings).await,
                _ => hardware.open(settings).await,
            };
            let map = map.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            if random.random_bool(0.7) {
                hardware.trouble(random.random_bool(0.5));
            }
            for of in 0..KEYS {
                let found = number(map.get(&key(of)).await.expect("drives work"));
                model.borrow_mut().check(of, found, has_power, may_go);
            }
            let stop = Rc::new(Cell::new(false));
            for task in 0..TASKS {
                let client = client(
                    map.clone(),
                    Rc::clone(&model),
                    Rc::clone(&stop),
                    task,
                    random.random(),
                    may_go,
                );
                runtime::spawn_detached(client);
            }
            runtime::sleep(until).await;
            if random.random_bool(0.2) {
                // Nothing waits for ever.
                stop.set(true);
                for disk in &hardware.disks {
                    disk.heal();
                }
                runtime::sleep(Duration::from_secs(20)).await;
                let synced = runtime::timeout(Duration::from_secs(60), map.sync()).await;
                let synced = synced.unwrap_or_else(|_| panic!("seed {seed}: a sync hangs"));
                synced.unwrap_or_else(|error| panic!("seed {seed}: healed, {error}"));
            }
        });
        (hardware, has_power) = crashed(&hardware, sim, &mut random);
    }
}

#[test]
fn no_change_is_lost_or_undone() {
    for seed in seeds(40) {
        live_and_crash(&small(40), 1, seed, false);
        live_and_crash(&small(40), 2, seed, false);
        let with_side = MapSettings {
            table: HashSettings {
                side_tables: 3,
                ..small(40).table
            },
            ..small(40)
        };
        live_and_crash(&with_side, 1, seed, false);
    }
}

#[test]
fn what_has_been_written_over_does_not_come_back() {
    for seed in seeds(40) {
        live_and_crash(&short_ring(), 1, seed, true);
        live_and_crash(&short_ring(), 2, seed, true);
    }
}
