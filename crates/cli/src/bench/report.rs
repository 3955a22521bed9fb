//! What was measured, as JSON or as text.
//!
//! The names of the fields are those of the other commands where they mean the same; a field that
//! makes no sense in a run is absent.

use std::fmt::{self, Write as _};

use serde::Serialize;
use workload::Op;

use super::figures::{self, Errors, Latency, Subject, rate, us_per};
use super::options::Plan;
use super::phase::Measured;
use super::stats::{Second, Stats};

#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    subject: Subject,
    clients: usize,
    pipeline: usize,
    multiget: usize,
    threads: usize,
    seed: u64,
    #[serde(flatten)]
    run: Option<Run>,
    #[serde(flatten)]
    load: Option<Load>,
    #[serde(flatten)]
    errors: Errors,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_connections: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_connections_closed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Vec<TimelineRow>>,
}

#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    figures: figures::Run,
    hits_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_rate: Option<f64>,
    /// Open loop: commands whose time came but which were never sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_hit: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Load {
    #[serde(flatten)]
    figures: figures::Load,
    load_p99_us: f64,
}

#[derive(Debug, Serialize)]
struct TimelineRow {
    second: usize,
    requests: u64,
    gets: u64,
    hits: u64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Report {
    /// What `plan` was and what its phases have measured.
    pub(super) fn new(plan: &Plan, load: Option<&Measured>, run: Option<&Measured>) -> Self {
        let mut all = Stats::new(false);
        for phase in load.iter().chain(&run) {
            all.merge(&phase.stats);
        }
        Self {
            subject: Subject::new(&plan.workload),
            clients: plan.clients,
            pipeline: plan.pipeline,
            multiget: plan.multiget,
            threads: plan.threads,
            seed: plan.workload.settings().seed,
            run: run.map(|measured| Run::new(plan, measured)),
            load: load.map(Load::new),
            errors: Errors::new(&all),
            idle_connections: None,
            idle_connections_closed: None,
            timeline: run
                .and_then(|measured| measured.stats.timeline())
                .map(timeline),
        }
    }

    pub(super) fn set_idle(&mut self, open: usize, closed: usize) {
        self.idle_connections = Some(open);
        self.idle_connections_closed = Some(closed);
    }
}

impl Run {
    fn new(plan: &Plan, measured: &Measured) -> Self {
        let stats = &measured.stats;
        let server_cpu = |count: u64| {
            let time = measured.server_cpu.filter(|_| count > 0)?;
            Some(us_per(time, count))
        };
        let (seconds, own_cpu) = (measured.seconds, measured.generator_cpu);
        Self {
            figures: figures::Run::new(stats, seconds, own_cpu, true),
            hits_per_s: rate(stats.hits, measured.seconds),
            target_rate: plan.rate.map(|(_, rate)| rate),
            unsent: plan.rate.map(|_| stats.unsent),
            cpu_us_per_op: server_cpu(stats.total()),
            cpu_us_per_hit: server_cpu(stats.hits),
        }
    }
}

impl Load {
    fn new(measured: &Measured) -> Self {
        let sets = measured.stats.requests[Op::Set as usize];
        Self {
            figures: figures::Load::new(sets, measured.seconds),
            load_p99_us: Latency::of(&measured.stats.latencies[Op::Set as usize]).p99_us,
        }
    }
}

fn timeline(seconds: &[Second]) -> Vec<TimelineRow> {
    let row = |(second, slot): (usize, &Second)| {
        let latency = Latency::of(&slot.latencies);
        TimelineRow {
            second,
            requests: slot.requests,
            gets: slot.gets,
            hits: slot.hits,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            max_us: latency.max_us,
        }
    };
    seconds.iter().enumerate().map(row).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} clients x pipeline {}, {} threads, seed {}",
            self.subject, self.clients, self.pipeline, self.threads, self.seed
        )?;
        if let Some(load) = &self.load {
            let (figures, p99_us) = (&load.figures, load.load_p99_us);
            writeln!(
                f,
                "loaded    {} keys in {:.1} s, {:.0}/s, p99 {p99_us:.0} us",
                figures.load_keys, figures.load_seconds, figures.load_ops_per_s
            )?;
        }
        if let Some(run) = &self.run {
            run.fmt(f)?;
        }
        if let (Some(open), Some(closed)) = (self.idle_connections, self.idle_connections_closed) {
            writeln!(
                f,
                "idle      {open} connections, {closed} of them closed by the server"
            )?;
        }
        for row in self.timeline.iter().flatten() {
            writeln!(
                f,
                "{:>6} s  {:>9} requests {:>9} hits  p50 {:.0} p99 {:.0} max {:.0} us",
                row.second, row.requests, row.hits, row.p50_us, row.p99_us, row.max_us
            )?;
        }
        self.errors.fmt(f)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        let requests = &figures.requests;
        requests.write(f, figures.duration_s, figures.ops_per_s)?;
        if let (Some(hits), Some(ratio)) = (figures.hits, figures.hit_ratio) {
            writeln!(
                f,
                "hits      {hits}: {:.0}/s, {:.2} % of gets",
                self.hits_per_s,
                ratio * 100.0
            )?;
        }
        figures.latencies.fmt(f)?;
        if let Some(unsent) = self.unsent.filter(|unsent| *unsent > 0) {
            writeln!(
                f,
                "late      {unsent} commands were never sent: the rate is too high"
            )?;
        }
        let mut cpu = format!("generator {:.2}", figures.generator_cpu_us_per_op);
        if let Some(server) = self.cpu_us_per_op {
            write!(cpu, ", server {server:.2}")?;
        }
        writeln!(f, "cpu       {cpu} us per request")
    }
}
