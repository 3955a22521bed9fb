//! Runs one phase, loading or measuring, on all threads, and watches it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use workload::{Arrivals, Clients, Op, Pace};

use super::connection::{Connection, Rules, Source};
use super::cpu;
use super::inflight::Inflight;
use super::options::{Plan, measured_ns};
use super::stats::Stats;
use super::worker::{Shared, Worker};

/// Settings of a phase in addition to the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// Name beside the progress bar.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) pipeline: usize,
    /// Open loop: commands a second of all clients together.
    pub(super) rate: Option<(Pace, f64)>,
    pub(super) warm_up: Duration,
    /// Time after the warm-up in which requests are sent.
    pub(super) duration: Option<Duration>,
    pub(super) timeline: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Load,
    Scan,
    /// The workload; `requests` is the maximum number of requests.
    Run {
        requests: Option<u64>,
    },
}

/// Results of a phase.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) stats: Stats,
    /// Seconds from the end of the warm-up to the last response.
    pub(super) seconds: f64,
    /// Processor time of this process in the measured part.
    pub(super) generator_cpu: Duration,
    /// Processor time of the server in the measured part, if its process is known.
    pub(super) server_cpu: Option<Duration>,
}

/// Interval at which the progress bar moves.
pub(super) const REFRESH: Duration = Duration::from_millis(100);

/// Runs `phase` to its end. Fails only if the system gives no poll or thread; failures of the server are in
/// the statistics.
pub(super) fn run(plan: &Plan, phase: &Phase) -> io::Result<Measured> {
    let shared = Shared {
        ready: Barrier::new(plan.threads + 1),
        epoch: OnceLock::new(),
        connected: AtomicU64::new(0),
        done: AtomicU64::new(0),
    };
    let sources = plan.workload.clients().map_err(io::Error::other)?;
    let bar = progress_bar(plan, phase);
    let mut workers = Vec::new();
    for thread in 0..plan.threads {
        let clients = (thread..plan.clients).step_by(plan.threads);
        let connections = clients
            .map(|client| connection(plan, phase, &sources, client as u64))
            .collect();
        let rules = rules(plan, phase);
        workers.push(Worker::new(
            &shared,
            &plan.args.server,
            rules,
            connections,
            phase.timeline,
        )?);
    }
    thread::scope(|scope| {
        let (sender, finished) = mpsc::channel();
        for worker in workers {
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver outlives all threads unless a thread has failed already.
                let _ = sender.send(worker.run().map(Box::new));
            });
        }
        drop(sender);
        shared.ready.wait();
        let epoch = *shared.epoch.get_or_init(Instant::now);
        watch(plan, phase, &shared, epoch, &finished, &bar)
    })
}

/// Collects the threads' results and shows progress.
fn watch(
    plan: &Plan,
    phase: &Phase,
    shared: &Shared,
    epoch: Instant,
    finished: &mpsc::Receiver<io::Result<Box<Stats>>>,
    bar: &ProgressBar,
) -> io::Result<Measured> {
    let sample = || {
        (
            cpu::of_this_process(),
            plan.args.server_pid.and_then(cpu::of_process),
        )
    };
    let mut before = sample();
    let mut warming = !phase.warm_up.is_zero();
    let mut stats = Stats::new(phase.timeline);
    let mut running = plan.threads;
    while running > 0 {
        let left = phase.warm_up.saturating_sub(epoch.elapsed());
        let patience = if warming { REFRESH.min(left) } else { REFRESH };
        match finished.recv_timeout(patience) {
            Ok(result) => {
                stats.merge(&*result?);
                running -= 1;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("a thread of the generator has panicked"));
            }
        }
        if warming && epoch.elapsed() >= phase.warm_up {
            warming = false;
            before = sample();
        }
        bar.set_position(match phase.duration {
            Some(_) => epoch.elapsed().as_secs(),
            None => shared.done.load(Ordering::Relaxed),
        });
    }
    let after = sample();
    bar.finish_and_clear();
    Ok(Measured {
        seconds: stats.last_ns as f64 / 1e9,
        stats,
        generator_cpu: after.0.saturating_sub(before.0),
        server_cpu: after
            .1
            .zip(before.1)
            .map(|(after, before)| after.saturating_sub(before)),
    })
}

fn rules<'a>(plan: &'a Plan, phase: &Phase) -> Rules<'a> {
    let (warm_up_ns, end_ns) = measured_ns(phase.warm_up, phase.duration);
    Rules {
        workload: &plan.workload,
        writer: plan.writer(),
        pipeline: phase.pipeline,
        multiget: plan.multiget,
        set_on_miss: plan.workload.set_on_miss() && matches!(phase.kind, Kind::Run { .. }),
        warm_up_ns,
        end_ns,
    }
}

fn connection(plan: &Plan, phase: &Phase, clients_of_run: &Clients, client: u64) -> Connection {
    let clients = plan.clients as u64;
    let sweep = |op| Source::Sweep {
        op,
        next: client,
        step: clients,
        end: plan.workload.keys(),
    };
    let source = match phase.kind {
        Kind::Load => sweep(Op::Set),
        Kind::Scan => sweep(Op::Get),
        Kind::Run { requests } => Source::Run {
            stream: Box::new(clients_of_run.client(client)),
            left: requests.map_or(u64::MAX, |all| plan.share(all, client)),
        },
    };
    let seed = plan.workload.settings().seed;
    let schedule = phase
        .rate
        .map(|(pace, rate)| Arrivals::new(pace, rate, client, clients, seed));
    Connection::new(
        client,
        source,
        schedule,
        Inflight::new(plan.dialect, plan.args.verify),
    )
}

/// Returns a bar that shows on a terminal and not in a pipe.
fn progress_bar(plan: &Plan, phase: &Phase) -> ProgressBar {
    let (length, unit) = match (phase.duration, phase.kind) {
        (Some(duration), _) => ((phase.warm_up + duration).as_secs(), "s"),
        (None, Kind::Load | Kind::Scan) => (plan.workload.keys(), "keys"),
        (None, Kind::Run { requests }) => (requests.unwrap_or(0), "requests"),
    };
    bar(length, unit, phase.name)
}

/// Returns a bar of `length` units.
pub(super) fn bar(length: u64, unit: &str, name: &'static str) -> ProgressBar {
    let template =
        format!("{{msg:>8}} {{wide_bar}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
    cli::progress::bar(length, &template).with_message(name)
}
