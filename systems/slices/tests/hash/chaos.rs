//! Dropped operations, drives that fail for a while, and crashes, all at random.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::{HashSettings, SliceHash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::hardware::seeds;
use crate::life::{Hardware, small, with_side};

/// A key's values, and the indexes from which on a value is allowed.
#[derive(Clone, Default)]
struct Past {
    values: Vec<Option<u64>>,
    acknowledged: usize,
    synced: usize,
}

type Model = Rc<RefCell<HashMap<u64, Past>>>;

const KEYS: u64 = 600;
const TASKS: u64 = 6;

async fn client(
    table: SliceHash,
    model: Model,
    stop: Rc<std::cell::Cell<bool>>,
    task: u64,
    seed: u64,
    may_evict: bool,
) {
    let mut random = SmallRng::seed_from_u64(seed);
    while !stop.get() {
        let key = random.random_range(0..KEYS / TASKS) * TASKS + task;
        let limit = match random.random_bool(0.4) {
            true => Duration::from_micros(random.random_range(0..400)),
            false => Duration::from_secs(100_000),
        };
        match random.random_range(0..100) {
            0..70 => {
                let value = random.random_bool(0.8).then(|| random.random());
                let number = {
                    let mut model = model.borrow_mut();
                    let past = model.get_mut(&key).expect("all are there");
                    past.values.push(value);
                    past.values.len() - 1
                };
                let change = async {
                    match value {
                        Some(value) => table.insert(key, value).await,
                        None => table.delete(key).await,
                    }
                };
                match runtime::timeout(limit, change).await {
                    Ok(Ok(())) => {
                        model
                            .borrow_mut()
                            .get_mut(&key)
                            .expect("it is")
                            .acknowledged = number;
                    }
                    // A dropped or refused change has not been made, and never will be.
                    _ => {
                        model
                            .borrow_mut()
                            .get_mut(&key)
                            .expect("it is")
                            .values
                            .remove(number);
                    }
                }
            }
            70..93 => {
                if let Ok(Ok(found)) = runtime::timeout(limit, table.get(key)).await {
                    let model = model.borrow();
                    let past = &model[&key];
                    assert!(
                        past.values[past.acknowledged] == found || may_evict && found.is_none(),
                        "seed {seed}, key {key}: {found:?} of {:?} from {}",
                        past.values,
                        past.acknowledged
                    );
                }
            }
            93..96 => {
                // Each flush takes an incarnation, and their number is limited.
                if !may_evict && random.random_bool(0.95) {
                    continue;
                }
                let _ = runtime::timeout(limit, table.flush()).await;
            }
            _ => {
                let begun: Vec<(u64, usize)> = model
                    .borrow()
                    .iter()
                    .map(|(&key, past)| (key, past.acknowledged))
                    .collect();
                if matches!(runtime::timeout(limit, table.sync()).await, Ok(Ok(()))) {
                    let mut model = model.borrow_mut();
                    for (key, acknowledged) in begun {
                        let past = model.get_mut(&key).expect("it is");
                        past.synced = past.synced.max(acknowledged);
                    }
                }
            }
        }
        runtime::sleep(Duration::from_micros(random.random_range(0..200))).await;
    }
}

fn live(settings: &HashSettings, drives: usize, seed: u64, may_evict: bool, faults: bool) {
    let mut random = SmallRng::seed_from_u64(seed);
    let model: Model = Rc::new(RefCell::new(
        (0..KEYS)
            .map(|key| {
                (
                    key,
                    Past {
                        values: vec![None],
                        ..Past::default()
                    },
                )
            })
            .collect(),
    ));
    let mut hardware = Hardware::new(settings, drives, seed);
    let (mut is_made, mut is_durable) = (false, true);
    for life in 0..5 {
        // Starts that are killed themselves. If everything is durable, the power may fail instead.
        while is_made && random.random_bool(0.4) {
            let sim = Sim::new(random.random());
            let limit = Duration::from_micros(random.random_range(1..4_000));
            sim.block_on(async {
                let _ = runtime::timeout(limit, hardware.open(settings)).await;
            });
            if is_durable && random.random_bool(0.5) {
                let left = hardware.without_power(random.random());
                sim.crash();
                hardware = Hardware::of(left, random.random());
            } else {
                let left = hardware.killed(random.random());
                sim.crash();
                hardware = Hardware::of(left, random.random());
                is_durable = false;
            }
        }
        let sim = Sim::new(random.random());
        let until = Duration::from_micros(random.random_range(1..80_000));
        sim.block_on(async {
            let table = match is_made {
                false => hardware.create(settings).await,
                true => hardware.open(settings).await,
            };
            let table = table.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            is_made = true;
            for key in 0..KEYS {
                let found = table.get(key).await.expect("drives work");
                let mut model = model.borrow_mut();
                let past = model.get_mut(&key).expect("it is");
                let from = past.acknowledged;
                assert!(
                    past.values[from..].contains(&found) || may_evict && found.is_none(),
                    "seed {seed}, life {life}, key {key}: {found:?} of {:?} from {from}",
                    past.values
                );
                // The start has synced the value.
                *past = Past {
                    values: vec![found],
                    ..Past::default()
                };
            }
            if settings.side_tables > 0 {
                hardware.slow_down();
            }
            if faults {
                for disk in &hardware.disks {
                    disk.set_rates(vec![
                        (Operation::Write, Fault::Error, 0.1),
                        (Operation::Sync, Fault::Error, 0.1),
                    ]);
                }
            }
            let stop = Rc::new(std::cell::Cell::new(false));
            for task in 0..TASKS {
                let client = client(
                    table.clone(),
                    Rc::clone(&model),
                    Rc::clone(&stop),
                    task,
                    random.random(),
                    may_evict,
                );
                runtime::spawn_detached(client);
            }
            runtime::sleep(until).await;
            for disk in &hardware.disks {
                disk.heal();
            }
            // All clients end once the drives work again.
            if random.random_bool(0.5) {
                stop.set(true);
                runtime::sleep(Duration::from_secs(20)).await;
                let flushed = runtime::timeout(Duration::from_secs(60), table.flush()).await;
                flushed
                    .unwrap_or_else(|_| panic!("seed {seed}: a flush hangs"))
                    .unwrap_or_else(|error| panic!("seed {seed}: healed, {error}"));
            }
        });
        match random.random_range(0..3) {
            0..2 => {
                is_durable = false;
                let left = hardware.killed(random.random());
                sim.crash();
                hardware = Hardware::of(left, random.random());
            }
            _ => {
                is_durable = true;
                let left = hardware.without_power(random.random());
                sim.crash();
                hardware = Hardware::of(left, random.random());
                for past in model.borrow_mut().values_mut() {
                    past.acknowledged = past.synced;
                }
            }
        }
    }
}

#[test]
fn operations_are_given_up() {
    for seed in seeds(40) {
        live(&small(40, false), 1, seed, false, false);
        live(&small(40, false), 2, seed, false, false);
        live(&small(40, true), 3, seed, false, false);
        let filtered = HashSettings {
            filter_bytes: 1_000,
            partitions: Some(6),
            spare_regions: 1,
            ..small(40, false)
        };
        live(&filtered, 2, seed, false, false);
        live(&small(2, true), 3, seed, true, false);
        live(&with_side(40, false), 2, seed, false, false);
        live(&with_side(2, false), 1, seed, true, false);
        live(&small(1, false), 1, seed, true, false);
    }
}

#[test]
fn operations_are_given_up_and_drives_fail() {
    for seed in seeds(40) {
        live(&small(40, false), 1, seed, false, true);
        live(&small(40, false), 2, seed, false, true);
        live(&small(40, true), 3, seed, false, true);
        let filtered = HashSettings {
            filter_bytes: 1_000,
            partitions: Some(6),
            spare_regions: 1,
            ..small(40, false)
        };
        live(&filtered, 2, seed, false, true);
        live(&small(2, true), 3, seed, true, true);
        live(&with_side(40, false), 2, seed, false, true);
    }
}
