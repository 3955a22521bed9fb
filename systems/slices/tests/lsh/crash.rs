//! The process or the power fails at a random moment, several times in a row.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flowstone_slices::{LshSettings, SliceLsh, VectorId};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};

use crate::common::hardware::seeds;
use crate::common::lives::live_and_crash;
use crate::life::{Hardware, opened, small, used, vector};
use crate::model::Model;

const TASKS: u64 = 4;

/// Inserts, deletes, queries and syncs until the crash. Deletes only vectors that this task has inserted.
async fn client(index: SliceLsh, model: Rc<RefCell<Model>>, settings: LshSettings, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut own: Vec<VectorId> = Vec::new();
    loop {
        match random.random_range(0..100) {
            0..70 => {
                let number = random.random_range(0..1_000_000);
                let id = index.insert(&vector(number)).await.expect("drives work");
                model.borrow_mut().insert(id, number);
                own.push(id);
            }
            70..80 => {
                if let Some(nth) = (0..own.len()).choose(&mut random) {
                    let id = own.swap_remove(nth);
                    // The vector may have gone with its generation.
                    index.delete(id);
                    model.borrow_mut().delete(id);
                }
            }
            80..97 => {
                let near = model.borrow().live().choose(&mut random);
                let number = near.map_or(0, |(_, number)| number);
                let asked = vector(number);
                // Vectors inserted or deleted during the query may be in the answer or not.
                let before = model.borrow().clone();
                let answer = index.query(&asked, 5).await.expect("drives work");
                for near in &answer {
                    assert!(
                        !before.is_deleted(near.id),
                        "seed {seed}: {:?} was deleted",
                        near.id
                    );
                    if let Some(number) = model.borrow().number(near.id) {
                        let distance = settings.family.distance(&asked, &vector(number));
                        assert_eq!(near.distance, distance, "seed {seed}");
                    }
                }
            }
            97 if random.random_bool(0.2) => index.flush().await.expect("drives work"),
            _ => {
                let acknowledged = model.borrow().acknowledged();
                index.sync().await.expect("drives work");
                model.borrow_mut().sync(&acknowledged);
            }
        }
        runtime::sleep(Duration::from_micros(random.random_range(0..300))).await;
    }
}

/// Runs several lives on the same drives, each ended by a crash.
fn vectors_survive(settings: &LshSettings, drives: usize, seed: u64, may_evict: bool) {
    let model = Rc::new(RefCell::new(Model::default()));
    live_and_crash(settings, drives, seed, async |index, _, life, random| {
        if may_evict {
            // A flush that the start continues evicts.
            runtime::sleep(Duration::from_millis(200)).await;
        }
        let mut known = model.borrow().clone();
        known.check_crash(&index, life.has_power, may_evict).await;
        let when = format!("seed {seed}, life {}", life.number);
        check_found(&index, &known, settings, &when).await;
        *model.borrow_mut() = known;
        for _ in 0..TASKS {
            let (index, model) = (index.clone(), Rc::clone(&model));
            let client = client(index, model, settings.clone(), random.random());
            runtime::spawn_detached(client);
        }
        let until = Duration::from_micros(random.random_range(1..60_000));
        runtime::sleep(until).await;
        let stats = index.stats();
        assert_eq!((stats.damaged, stats.pages_lost), (0, 0), "seed {seed}");
    });
}

/// With one table, each vector has one entry: it is found after a crash at any moment of a flush.
#[test]
fn a_flush_that_a_crash_cuts_short_goes_on() {
    let settings = LshSettings {
        tables: 1,
        fill: 0.3,
        table_bytes: 2_000,
        partitions: Some(3),
        ..small(8)
    };
    for step in 0..60 {
        for has_power in [true, false] {
            let mut ids = Vec::new();
            let insert = async |index: &SliceLsh, ids: &mut Vec<VectorId>| {
                for _ in 0..20 {
                    let number = 8 * ids.len() as u64;
                    ids.push(index.insert(&vector(number)).await.expect("drives work"));
                }
            };
            let (hardware, sim) = used(&settings, 1, step, async |index, _| {
                insert(&index, &mut ids).await;
                index.flush().await.expect("drives work");
                insert(&index, &mut ids).await;
                index.sync().await.expect("drives work");
                runtime::spawn_detached(async move { index.flush().await.expect("drives work") });
                runtime::sleep(Duration::from_micros(200 * step)).await;
            });
            let left = match has_power {
                true => hardware.killed(step),
                false => hardware.without_power(step),
            };
            sim.crash();
            let hardware = Hardware::of(left, step);
            opened(&hardware, &settings, step, async |index| {
                for round in 0..2 {
                    insert(&index, &mut ids).await;
                    index.flush().await.expect("drives work");
                    for (nth, &id) in ids.iter().enumerate() {
                        let asked = vector(8 * nth as u64);
                        let answer = index.query(&asked, 1).await.expect("drives work");
                        assert_eq!(answer[0].id, id, "step {step}, round {round}");
                    }
                }
                let stats = index.stats();
                assert_eq!((stats.full, stats.crowded), (0, 0), "{stats:?}");
            });
        }
    }
}

/// Checks that each present vector is its own nearest neighbour, whichever tables it has reached.
async fn check_found(index: &SliceLsh, model: &Model, settings: &LshSettings, when: &str) {
    let mut missing = 0;
    for (id, number) in model.live() {
        let asked = vector(number);
        let answer = index.query(&asked, 1_000).await.expect("drives work");
        model.check_answer(settings.family, &asked, &answer);
        missing += usize::from(answer.iter().all(|near| near.id != id));
    }
    assert_eq!(missing, 0, "{when}");
}

#[test]
fn no_vector_is_lost_and_no_delete_undone() {
    for seed in seeds(25) {
        // Enough incarnations that nothing is evicted: a missing vector is lost.
        vectors_survive(&small(90), 1, seed, false);
        vectors_survive(&small(90), 3, seed, false);
    }
}

#[test]
fn what_has_been_evicted_does_not_come_back() {
    for seed in seeds(25) {
        vectors_survive(&small(3), 1, seed, true);
        vectors_survive(&small(2), 2, seed, true);
    }
}
