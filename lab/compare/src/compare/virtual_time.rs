//! A run under virtual time, on an emulated or modelled device: one thread, and the same result each time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use device::NewJournal;
use engine::preset::Preset;
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
use super::swap::Swapped;
use crate::cpu::Cpus;
use crate::words::Words;

pub(super) fn run(
    plan: &Plan,
    preset: &'static Preset,
    storage: Storage,
    device: String,
    progress: Progress,
) -> Result<Outcome, CompareError> {
    let storage = storage.part(plan.cache_bytes)?;
    let sim = Sim::new(plan.seed());
    let served = sim.block_on(serve(plan, preset, Left::new(storage, device), progress));
    sim.crash();
    Ok(served?.0)
}

/// State of the cache that survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Everything that a killed process leaves.
    All,
    /// Nothing: the cache kept its state in memory.
    Nothing,
}

/// Outcomes of a run with a crash.
#[derive(Clone, Debug)]
pub struct Crashed {
    /// Outcome until the crash.
    pub before: Outcome,
    /// Outcome after the crash.
    pub after: Outcome,
}

/// Runs `plan`, kills the process, starts it again, and makes `requests` more requests.
pub(super) fn crash(
    plan: &Plan,
    preset: &'static Preset,
    storage: Storage,
    device: String,
    survives: Survives,
    requests: u64,
) -> Result<Crashed, CompareError> {
    let storage = storage.part(plan.cache_bytes)?;
    let sim = Sim::new(plan.seed());
    let first = sim.block_on(async {
        let left = Left::new(storage.clone(), device);
        let (before, mut left) = Box::pin(serve(plan, preset, left, Box::new(|_| ()))).await?;
        if survives == Survives::Nothing {
            storage.forget().await?;
            left.journal = None;
        }
        // The drive survives: everything that it has acknowledged is kept.
        storage.sync().await?;
        Ok::<_, CompareError>((before, left))
    });
    sim.crash();
    let (before, mut left) = first?;
    let again = Plan {
        load: false,
        warmup: 0,
        requests: Some(requests),
        ..plan.clone()
    };
    let second = sim.block_on(async {
        left.storage = storage.survived()?;
        Box::pin(serve(&again, preset, left, Box::new(|_| ()))).await
    });
    sim.crash();
    let (after, _) = second?;
    Ok(Crashed { before, after })
}

/// State that a run starts with and leaves behind.
struct Left {
    storage: Storage,
    device: String,
    journal: Option<Arc<Words>>,
    /// Requests that each client made in earlier runs.
    made: u64,
}

impl Left {
    fn new(storage: Storage, device: String) -> Self {
        Self {
            storage,
            device,
            journal: None,
            made: 0,
        }
    }
}

async fn serve(
    plan: &Plan,
    preset: &'static Preset,
    left: Left,
    progress: Progress,
) -> Result<(Outcome, Left), CompareError> {
    let begun = runtime::now();
    let mut costs = plan.costs.clone().with_copies_times(plan.copy_scale);
    if let Some(request) = plan.request {
        costs = costs.with_request(request);
    }
    let cpus = Cpus::new(plan.cpus as usize, costs, plan.cpu_scale);
    let mut journal = left.journal;
    let of_words = |new: NewJournal| {
        let words = || Arc::new(Words::new(new.bytes as usize / size_of::<u64>()));
        Ok(Arc::clone(journal.get_or_insert_with(words)) as _)
    };
    let machine = Machine::open(plan, preset, left.storage.clone(), of_words).await?;
    let opened = runtime::now().since(begun);
    let metered = Rc::clone(&cpus);
    machine.engine.start_background(|task| {
        runtime::spawn_detached(metered.meter(async move { task().await }));
    });
    let recovered: Rc<Cell<Option<Duration>>> = Rc::default();
    let (engine, told) = (Arc::clone(&machine.engine), Rc::clone(&recovered));
    runtime::spawn_detached(async move {
        engine.recovered().await;
        told.set(Some(runtime::now().since(begun)));
    });
    let mut run = Run::of(plan, preset, machine, progress);
    if let Some(swap) = &plan.swap {
        run.swap = Some(Swapped::new(swap, plan)?);
    }
    let run = Arc::new(run);
    let seen = Rc::new(RefCell::new(Seen::new()));
    let streams = plan.workload.clients()?;
    let later = match &plan.changes {
        Some((from, workload)) => Some((*from, workload.clients()?)),
        None => None,
    };
    let servers: Vec<Semaphore> = (0..plan.servers.unwrap_or(0))
        .map(|_| Semaphore::new(1))
        .collect();
    let server_of = |client: u64| {
        (!servers.is_empty()).then(|| servers[client as usize % servers.len()].clone())
    };
    let mut clients = Vec::new();
    for number in 0..u64::from(plan.clients) {
        let (cpus, seen) = (Some(Rc::clone(&cpus)), Rc::clone(&seen));
        let client = Client::new(Arc::clone(&run), streams.client(number), cpus, seen)
            .of_server(server_of(number))
            .changing(
                later
                    .as_ref()
                    .map(|(from, streams)| (*from, streams.client(number))),
            )
            .skip(left.made)?;
        clients.push(runtime::spawn(metered.meter(client.work())));
    }
    for client in clients {
        client.await;
    }
    run.check()?;
    let seconds = runtime::now().since(run.begun_at()).as_secs_f64();
    let before = run
        .begun()
        .map_or(0, |begun| begun.processor.as_nanos() as u64);
    let busy_ns = cpus.busy_ns() - before;
    let mut outcome = outcome(plan, preset, &run, &seen.borrow(), left.device.clone());
    let detail = &mut outcome.detail;
    detail.cpu_busy = ratio(busy_ns as f64 / 1e9, seconds * f64::from(plan.cpus));
    detail.start = (opened, recovered.get());
    detail.kept_share = run.census(plan.census).await;
    let left = Left {
        journal,
        made: left.made + run.requests() / u64::from(plan.clients),
        ..left
    };
    Ok((outcome, left))
}
