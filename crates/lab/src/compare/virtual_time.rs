//! A run under virtual time, on an emulated or modelled device: one thread, and the same result each time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use device::NewJournal;
use runtime::sim::Sim;
use runtime::sync::Semaphore;

use super::clients::{Client, Progress, Run, Seen};
use super::error::CompareError;
use super::figures::outcome;
use super::machine::Machine;
use super::outcome::Outcome;
use super::plan::Plan;
use super::row::ratio;
use super::storage::Storage;
use crate::cpu::Cpus;
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
    let mut costs = plan.costs.clone().with_copies_times(plan.copy_scale);
    if let Some(request) = plan.request {
        costs = costs.with_request(request);
    }
    let cpus = Cpus::new(plan.cpus as usize, costs, plan.cpu_scale);
    let journal =
        |new: NewJournal| Ok(Arc::new(Words::new(new.bytes as usize / size_of::<u64>())) as _);
    let machine = Machine::open(plan, preset, storage, journal).await?;
    let metered = Rc::clone(&cpus);
    machine.engine.start_background(|task| {
        runtime::spawn_detached(metered.meter(async move { task().await }));
    });
    let run = Arc::new(Run::of(plan, preset, machine, progress));
    let seen = Rc::new(RefCell::new(Seen::new()));
    let streams = plan.workload.clients()?;
    let servers: Vec<Semaphore> = (0..plan.servers.unwrap_or(0))
        .map(|_| Semaphore::new(1))
        .collect();
    let server_of = |client: u64| {
        (!servers.is_empty()).then(|| servers[client as usize % servers.len()].clone())
    };
    let clients: Vec<_> = (0..u64::from(plan.clients))
        .map(|number| {
            let (cpus, seen) = (Some(Rc::clone(&cpus)), Rc::clone(&seen));
            let client = Client::new(Arc::clone(&run), streams.client(number), cpus, seen)
                .of_server(server_of(number));
            runtime::spawn(metered.meter(client.work()))
        })
        .collect();
    for client in clients {
        client.await;
    }
    run.check()?;
    let seconds = runtime::now().since(run.begun_at()).as_secs_f64();
    let before = run
        .begun()
        .map_or(0, |begun| begun.processor.as_nanos() as u64);
    let busy_ns = cpus.busy_ns() - before;
    let mut outcome = outcome(plan, preset, &run, &seen.borrow(), device);
    outcome.detail.cpu_busy = ratio(busy_ns as f64 / 1e9, seconds * f64::from(plan.cpus));
    Ok(outcome)
}
