//! A run under virtual time, on an emulated or modelled device: one thread, and the same result each time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use engine::Engine;
use engine::config::journal_bytes;
use runtime::sim::Sim;

use super::clients::{Client, Run, Seen, Trouble};
use super::counters::{Machine, detail, row};
use super::plan::Plan;
use super::row::ratio;
use super::storage::Storage;
use super::{CompareError, Outcome, Progress};
use crate::cpu::{CpuTable, Cpus};
use crate::presets::Preset;
use crate::words::Words;

pub(super) fn run(
    plan: &Plan,
    preset: &'static Preset,
    device: (Storage, String),
    progress: Progress,
) -> Result<Outcome, CompareError> {
    let sim = Sim::new(plan.seed());
    let outcome = sim.block_on(on(plan, preset, device, progress));
    sim.crash();
    outcome
}

async fn on(
    plan: &Plan,
    preset: &'static Preset,
    (storage, device): (Storage, String),
    progress: Progress,
) -> Result<Outcome, CompareError> {
    let cpus = Cpus::new(
        plan.cpus as usize,
        CpuTable::frozen().with_copies_times(plan.copy_scale),
        plan.cpu_scale,
    );
    let engine = open(plan, preset, &storage).await?;
    let metered = Rc::clone(&cpus);
    engine.start_background(|task| {
        runtime::spawn_detached(metered.meter(async move { task().await }));
    });
    let machine = Machine { engine, storage };
    let counts = (plan.loaded_keys(), plan.warmup, plan.end());
    let run = Run::new(machine, plan.workload.clone(), counts, progress);
    let run = Arc::new(run.paced(plan));
    let seen = Rc::new(RefCell::new(Seen::new()));
    let streams = plan.workload.clients()?;
    let clients: Vec<_> = (0..u64::from(plan.clients))
        .map(|number| {
            let (cpus, seen) = (Some(Rc::clone(&cpus)), Rc::clone(&seen));
            let client = Client::new(Arc::clone(&run), streams.client(number), cpus, seen);
            runtime::spawn(metered.meter(client.work()))
        })
        .collect();
    for client in clients {
        client.await;
    }
    if let Some(trouble) = run.trouble() {
        return Err(explain(plan, preset, trouble));
    }
    let seen = seen.borrow();
    let row = row(plan, preset, &run, &seen);
    let mut detail = detail(&run, &seen);
    let seconds = runtime::now().since(run.begun_at()).as_secs_f64();
    let busy_ns = cpus.busy_ns() - run.busy_ns_before();
    detail.cpu_busy = ratio(busy_ns as f64 / 1e9, seconds * f64::from(plan.cpus));
    Ok(Outcome {
        row,
        curve: run.finish(),
        refused_sets: seen.refused_sets,
        device,
        detail,
    })
}

async fn open(
    plan: &Plan,
    preset: &'static Preset,
    storage: &Storage,
) -> Result<Arc<Engine>, CompareError> {
    let config = (preset.config)(plan.sizes(storage));
    let journal = journal_bytes(storage.bytes(), config.memory_bytes, config.partition_bits);
    let journal = Arc::new(Words::new(journal as usize / size_of::<u64>()));
    let opened = Engine::open(storage.medium(), move || Ok(journal as _), config).await;
    opened.map_err(|source| CompareError::Open {
        preset: preset.name,
        device: plan.device.to_string(),
        source,
    })
}

/// A client's trouble as the end of the run.
pub(super) fn explain(plan: &Plan, preset: &Preset, trouble: Trouble) -> CompareError {
    match trouble {
        Trouble::Trace(error) => error.into(),
        Trouble::WrongValue(key) => CompareError::WrongValue {
            preset: preset.name,
            key,
            seed: plan.seed(),
        },
    }
}
