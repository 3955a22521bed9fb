//! `flowstone bench`: puts load on a memcached-speaking server and measures it.
//!
//! ```text
//!   options ──▶ plan ──▶ phase (load, then run)
//!                          ├─ worker (thread 1): epoll ─┬─ connection: client 0 ──▶ server
//!                          │                            └─ connection: client 2 ──▶
//!                          ├─ worker (thread 2) ...
//!                          └─ watch: progress, processor time ──▶ report
//!
//!   connection = source of requests (+ schedule) ─▶ request ─▶ socket ─▶ replies ─▶ inflight ─▶ stats
//! ```
//!
//! The generator runs on the same cores as the server under test, so its processor time is taken from the
//! server. It therefore reads a batch of responses with one `read`, sends the next requests with one `write`,
//! allocates nothing for a request and copies no value. The report shows its processor time.
//!
//! Closed loop (default): every connection sends its next request when an answer arrives. Open loop
//! (`--rate`): requests have times. A request that finds the connection's pipeline full is sent late, and its
//! latency counts from its time.
//!
//! With `--backend` another loop runs, [`look_aside`], in programs built with the feature `backends`.
//!
//! Failures are counted and reported. The exit code is 0 if a request succeeded, no value was wrong and the
//! trace could be read to its end; 2 for a wrong option; and 1 otherwise.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

mod connection;
mod cpu;
mod figures;
mod inflight;
#[cfg(feature = "backends")]
mod look_aside;
mod options;
mod phase;
mod report;
mod request;
mod stats;
mod target;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use options::BenchArgs;

use figures::print;
use options::Plan;
use phase::{Kind, Measured, Phase};
use report::report;
use stats::Failure;
use target::{Socket, Target};

/// Longest time to open the first connection, or a silent one.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: BenchArgs) -> ExitCode {
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(error) => return cli::exit::refuse(error),
    };
    let target = &plan.args.server;
    if (plan.run || plan.args.backend.is_none())
        && let Err(error) = target.connect(PATIENCE)
    {
        return cli::exit::fail(format!(
            "cannot connect to {target}: {error}; start the server, or name another (--server)"
        ));
    }
    if let Some(backend) = &plan.args.backend {
        return look_aside::run(&plan, backend);
    }
    measure(&plan).unwrap_or_else(cli::exit::fail)
}

fn measure(plan: &Plan) -> Result<ExitCode, String> {
    let idle = plan.args.idle_connections as usize;
    cpu::allow_connections((plan.clients + idle) as u64)?;
    let mut idle = open_idle(&plan.args.server, idle)?;
    let io_error = |error: io::Error| format!("cannot run: {error}");
    let load = plan
        .load
        .then(|| phase::run(plan, &loading(plan)))
        .transpose()
        .map_err(io_error)?;
    let run_too = plan.run && load.as_ref().is_none_or(has_success);
    let run = run_too
        .then(|| phase::run(plan, &running(plan)))
        .transpose()
        .map_err(io_error)?;

    let closed = idle.iter_mut().map(|socket| socket.is_closed());
    let closed = closed.filter(|is_closed| *is_closed).count();
    let idle = (!idle.is_empty()).then_some((idle.len(), closed));
    let report = report(plan, load.as_ref(), run.as_ref(), idle);
    print(plan, &report).map_err(|error| format!("cannot write the report: {error}"))?;
    let correct = load.iter().chain(&run).all(|phase| {
        let failures = &phase.stats.failures;
        failures[Failure::Corrupt] == 0 && failures[Failure::Workload] == 0
    });
    let last = run.as_ref().or(load.as_ref());
    Ok(cli::exit::of(correct && last.is_some_and(has_success)))
}

fn has_success(measured: &Measured) -> bool {
    measured.stats.total() > 0
}

fn loading(plan: &Plan) -> Phase {
    Phase {
        name: "loading",
        kind: Kind::Load,
        pipeline: plan.args.load_pipeline.get() as usize,
        rate: (plan.args.load_rate).map(|rate| (workload::Pace::Constant, rate)),
        warm_up: Duration::ZERO,
        duration: None,
        timeline: false,
    }
}

fn running(plan: &Plan) -> Phase {
    Phase {
        name: "running",
        kind: if plan.args.scan {
            Kind::Scan
        } else {
            Kind::Run {
                requests: plan.requests,
            }
        },
        pipeline: plan.pipeline,
        rate: plan.rate,
        warm_up: plan.args.warmup,
        duration: plan.duration,
        timeline: plan.args.timeline,
    }
}

/// Refuses `--backend` in a program built without database drivers.
#[cfg(not(feature = "backends"))]
mod look_aside {
    use std::process::ExitCode;

    pub(super) fn run(_: &super::Plan, _: &str) -> ExitCode {
        cli::exit::refuse(
            "this program was built without database drivers; for --backend, build one with `cargo \
             build --release --features backends`",
        )
    }
}

fn open_idle(target: &Target, count: usize) -> Result<Vec<Socket>, String> {
    (0..count)
        .map(|number| {
            target.connect(PATIENCE).map_err(|error| {
                format!("cannot open silent connection {number} to {target}: {error}")
            })
        })
        .collect()
}
