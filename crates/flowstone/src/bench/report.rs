//! What was measured, as JSON or as text.
//!
//! The names of the fields are those of the other commands where they mean the same; a field that
//! makes no sense in a run is absent.

use std::fmt::{self, Write as _};

use hdrhistogram::{Counter, Histogram};
use serde::Serialize;
use workload::Op;

use super::options::Plan;
use super::phase::Measured;
use super::stats::{Failures, Second, Stats};

/// One run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    workload: String,
    /// Of a trace, nobody knows before its end.
    #[serde(skip_serializing_if = "is_zero")]
    keys: u64,
    clients: usize,
    pipeline: usize,
    multiget: usize,
    threads: usize,
    seed: u64,
    #[serde(flatten)]
    run: Option<Run>,
    #[serde(flatten)]
    load: Option<Load>,
    errors: u64,
    #[serde(flatten)]
    failures: Kinds,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_connections: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_connections_closed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Vec<TimelineRow>>,
}

/// Figures of the measured phase.
#[derive(Debug, Serialize)]
struct Run {
    requests: u64,
    gets: u64,
    sets: u64,
    deletes: u64,
    hits: u64,
    misses: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio: Option<f64>,
    duration_s: f64,
    ops_per_s: f64,
    hits_per_s: f64,
    #[serde(flatten)]
    latency: Latency,
    #[serde(skip_serializing_if = "Option::is_none")]
    get: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_rate: Option<f64>,
    /// Open loop: commands whose time came but which were never sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsent: Option<u64>,
    generator_cpu_us_per_op: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_hit: Option<f64>,
}

/// Figures of the loading phase.
#[derive(Debug, Serialize)]
struct Load {
    load_keys: u64,
    load_seconds: f64,
    load_ops_per_s: f64,
    load_p99_us: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    mean_us: f64,
    max_us: f64,
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

/// Failures by kind; those that did not happen are absent.
#[derive(Debug, Default, Serialize)]
pub(super) struct Kinds {
    #[serde(skip_serializing_if = "is_zero")]
    connections_refused: u64,
    #[serde(skip_serializing_if = "is_zero")]
    connections_closed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    requests_lost: u64,
    #[serde(skip_serializing_if = "is_zero")]
    server_errors: u64,
    #[serde(skip_serializing_if = "is_zero")]
    protocol_errors: u64,
    #[serde(skip_serializing_if = "is_zero")]
    timeouts: u64,
    #[serde(skip_serializing_if = "is_zero")]
    corrupt_values: u64,
    #[serde(skip_serializing_if = "is_zero")]
    workload_errors: u64,
    #[serde(skip_serializing_if = "is_zero")]
    database_errors: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is the serializer's"
)]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Report {
    /// What `plan` was and what its phases have measured.
    pub(super) fn new(plan: &Plan, load: Option<&Measured>, run: Option<&Measured>) -> Self {
        let mut all = Stats::new(false);
        for phase in load.iter().chain(&run) {
            all.merge(&phase.stats);
        }
        Self {
            workload: plan.workload.name(),
            keys: plan.workload.keys(),
            clients: plan.clients,
            pipeline: plan.pipeline,
            multiget: plan.multiget,
            threads: plan.threads,
            seed: plan.workload.settings().seed,
            run: run.map(|measured| Run::new(plan, measured)),
            load: load.map(Load::new),
            errors: all.failures.total(),
            failures: Kinds::new(&all.failures),
            first_error: all.first_failure,
            idle_connections: None,
            idle_connections_closed: None,
            timeline: run
                .and_then(|measured| measured.stats.timeline())
                .map(timeline),
        }
    }

    /// Adds how the silent connections fared.
    pub(super) fn set_idle(&mut self, open: usize, closed: usize) {
        self.idle_connections = Some(open);
        self.idle_connections_closed = Some(closed);
    }
}

impl Run {
    fn new(plan: &Plan, measured: &Measured) -> Self {
        let stats = &measured.stats;
        let [gets, sets, deletes] = stats.requests;
        let requests = stats.total();
        let per = |time: std::time::Duration, count: u64| time.as_secs_f64() * 1e6 / count as f64;
        let positive = |count: u64| (count > 0).then_some(count);
        let of = |op: Op| {
            let latencies = &stats.latencies[op as usize];
            (!latencies.is_empty()).then(|| Latency::of(latencies))
        };
        Self {
            requests,
            gets,
            sets,
            deletes,
            hits: stats.hits,
            misses: gets - stats.hits,
            hit_ratio: positive(gets).map(|gets| stats.hits as f64 / gets as f64),
            duration_s: measured.seconds,
            ops_per_s: rate(requests, measured.seconds),
            hits_per_s: rate(stats.hits, measured.seconds),
            latency: Latency::of(&stats.all_latencies()),
            get: of(Op::Get),
            set: of(Op::Set),
            delete: of(Op::Delete),
            target_rate: plan.rate.map(|(_, rate)| rate),
            unsent: plan.rate.map(|_| stats.unsent),
            generator_cpu_us_per_op: per(measured.generator_cpu, requests.max(1)),
            cpu_us_per_op: measured
                .server_cpu
                .zip(positive(requests))
                .map(|(t, n)| per(t, n)),
            cpu_us_per_hit: measured
                .server_cpu
                .zip(positive(stats.hits))
                .map(|(t, n)| per(t, n)),
        }
    }
}

impl Load {
    fn new(measured: &Measured) -> Self {
        let sets = measured.stats.requests[Op::Set as usize];
        Self {
            load_keys: sets,
            load_seconds: measured.seconds,
            load_ops_per_s: rate(sets, measured.seconds),
            load_p99_us: Latency::of(&measured.stats.latencies[Op::Set as usize]).p99_us,
        }
    }
}

impl Latency {
    pub(super) fn of<C: Counter>(histogram: &Histogram<C>) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            p999_us: us(histogram.value_at_quantile(0.999)),
            mean_us: (histogram.mean() / 10.0).round() / 100.0,
            max_us: us(histogram.max()),
        }
    }
}

impl Kinds {
    pub(super) fn new(failures: &Failures) -> Self {
        Self {
            connections_refused: failures.refused,
            connections_closed: failures.closed,
            requests_lost: failures.lost,
            server_errors: failures.server,
            protocol_errors: failures.protocol,
            timeouts: failures.timeouts,
            corrupt_values: failures.corrupt,
            workload_errors: failures.workload,
            database_errors: failures.database,
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

pub(super) fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// The report for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.workload)?;
        if self.keys > 0 {
            write!(f, " over {} keys", self.keys)?;
        }
        writeln!(
            f,
            ": {} clients x pipeline {}, {} threads, seed {}",
            self.clients, self.pipeline, self.threads, self.seed
        )?;
        if let Some(load) = &self.load {
            writeln!(
                f,
                "loaded    {} keys in {:.1} s, {:.0}/s, p99 {:.0} us",
                load.load_keys, load.load_seconds, load.load_ops_per_s, load.load_p99_us
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
        let first = self
            .first_error
            .as_deref()
            .map(|words| format!(", the first: {words}"));
        writeln!(f, "errors    {}{}", self.errors, first.unwrap_or_default())
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "requests  {} in {:.2} s: {:.0}/s ({} gets, {} sets, {} deletes)",
            self.requests, self.duration_s, self.ops_per_s, self.gets, self.sets, self.deletes
        )?;
        if let Some(ratio) = self.hit_ratio {
            let hits = self.hits;
            writeln!(
                f,
                "hits      {hits}: {:.0}/s, {:.2} % of gets",
                self.hits_per_s,
                ratio * 100.0
            )?;
        }
        let kinds = [
            ("get", &self.get),
            ("set", &self.set),
            ("delete", &self.delete),
        ];
        for (name, latency) in kinds {
            if let Some(latency) = latency {
                writeln!(f, "{name:<9} {latency}")?;
            }
        }
        if let Some(unsent) = self.unsent.filter(|unsent| *unsent > 0) {
            writeln!(
                f,
                "late      {unsent} commands were never sent: the rate is too high"
            )?;
        }
        let mut cpu = format!("generator {:.2}", self.generator_cpu_us_per_op);
        if let Some(server) = self.cpu_us_per_op {
            write!(cpu, ", server {server:.2}")?;
        }
        writeln!(f, "cpu       {cpu} us per request")
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.1}  p99 {:.1}  p99.9 {:.1}  mean {:.1}  max {:.1} us",
            self.p50_us, self.p99_us, self.p999_us, self.mean_us, self.max_us
        )
    }
}
