//! Keys with values, through crashes, drives that fail, and operations that are given up.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::SliceError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::lives::live_and_crash;
use crate::common::structure::{Settings, Structure};
use crate::model::Model;

const KEYS: u64 = 600;
const TASKS: u64 = 4;

/// A structure of numbered keys and values.
pub(crate) trait Keyed: Structure {
    /// Inserts the key with a value, or deletes it.
    async fn change(&self, key: u64, value: Option<u64>) -> Result<(), SliceError>;

    async fn value(&self, key: u64) -> Result<Option<u64>, SliceError>;
}

/// Rates of faults of every drive.
pub(crate) type Rates = Vec<(Operation, Fault, f64)>;

/// The events of a life, beside its crash.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// Whether values may be evicted.
    pub(crate) may_evict: bool,
    /// Whether operations are dropped before they end.
    pub(crate) gives_up: bool,
    /// Each life has one of these, if there are any.
    pub(crate) troubles: Vec<Rates>,
}

/// Returns rates with which flushes are so slow that others wait.
pub(crate) fn slow(milliseconds: u64, rate: f64) -> Rates {
    let slow = Fault::Slow(Duration::from_millis(milliseconds));
    vec![(Operation::Write, slow, rate)]
}

/// Returns rates with which writes and syncs fail.
pub(crate) fn failing() -> Rates {
    vec![
        (Operation::Write, Fault::Error, 0.1),
        (Operation::Sync, Fault::Error, 0.1),
    ]
}

/// Changes, reads, flushes and syncs keys of this task alone, until the crash or `stop`.
async fn client<S: Keyed>(
    structure: S,
    model: Rc<RefCell<Model>>,
    stop: Rc<Cell<bool>>,
    task: u64,
    seed: u64,
    plan: Plan,
) {
    let mut random = SmallRng::seed_from_u64(seed);
    while !stop.get() {
        let key = random.random_range(0..KEYS / TASKS) * TASKS + task;
        let limit = match plan.gives_up && random.random_bool(0.4) {
            true => Duration::from_micros(random.random_range(0..400)),
            false => Duration::from_secs(100_000),
        };
        match random.random_range(0..1000) {
            0..740 => {
                let value = random.random_bool(0.8).then(|| random.random());
                model.borrow_mut().begin(key, value);
                match runtime::timeout(limit, structure.change(key, value)).await {
                    Ok(Ok(())) => model.borrow_mut().acknowledge(key),
                    // A dropped or refused change has not been made, and never will be.
                    Ok(Err(error)) => {
                        assert!(!plan.troubles.is_empty(), "seed {seed}: {error}");
                        model.borrow_mut().withdraw(key);
                    }
                    Err(_) => model.borrow_mut().withdraw(key),
                }
            }
            740..965 => {
                if let Ok(found) = runtime::timeout(limit, structure.value(key)).await {
                    let found = found.expect("drives can be read");
                    let is_right = model.borrow().is_value(key, found);
                    assert!(
                        is_right || plan.may_evict && found.is_none(),
                        "seed {seed}, key {key}: {found:?}"
                    );
                }
            }
            // Each flush takes an incarnation, and their number is limited.
            965..970 if plan.may_evict || random.random_bool(0.1) => {
                let _ = runtime::timeout(limit, structure.flush()).await;
            }
            _ => {
                let acknowledged = model.borrow().acknowledged();
                match runtime::timeout(limit, structure.sync()).await {
                    Ok(Ok(())) => model.borrow_mut().sync(acknowledged),
                    Ok(Err(error)) => {
                        assert!(!plan.troubles.is_empty(), "seed {seed}: {error}");
                    }
                    Err(_) => {}
                }
            }
        }
        runtime::sleep(Duration::from_micros(random.random_range(0..300))).await;
    }
}

/// Runs several lives on the same drives. No acknowledged change is lost to a kill, no synced one to a power cut, and no older
/// value comes back.
pub(crate) fn changes_survive<T: Settings<Structure: Keyed>>(
    settings: &T,
    drives: usize,
    seed: u64,
    plan: &Plan,
) {
    let model = Rc::new(RefCell::new(Model::default()));
    live_and_crash(
        settings,
        drives,
        seed,
        async |table, hardware, life, random| {
            let when = format!("seed {seed}, life {}", life.number);
            let disks = &hardware.disks;
            for key in 0..KEYS {
                let found = table.value(key).await.expect("drives work");
                let mut model = model.borrow_mut();
                model.check(key, found, life.has_power, plan.may_evict, &when);
            }
            if !plan.troubles.is_empty() {
                let rates = &plan.troubles[random.random_range(0..plan.troubles.len())];
                disks.iter().for_each(|disk| disk.set_rates(rates.clone()));
            }
            let stop = Rc::new(Cell::new(false));
            for task in 0..TASKS {
                let (table, model, stop) = (table.clone(), Rc::clone(&model), Rc::clone(&stop));
                let client = client(table, model, stop, task, random.random(), plan.clone());
                runtime::spawn_detached(client);
            }
            let until = Duration::from_micros(random.random_range(1..80_000));
            runtime::sleep(until).await;
            if random.random_bool(0.3) {
                // Nothing waits for ever once the drives work again.
                stop.set(true);
                disks.iter().for_each(|disk| disk.heal());
                runtime::sleep(Duration::from_secs(20)).await;
                let flushed = runtime::timeout(Duration::from_secs(60), table.flush()).await;
                flushed
                    .unwrap_or_else(|_| panic!("{when}: a flush hangs"))
                    .unwrap_or_else(|error| panic!("{when}: healed, {error}"));
            }
        },
    );
}
