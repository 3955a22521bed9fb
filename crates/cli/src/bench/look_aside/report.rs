//! What was measured, as JSON or as text: one row for each phase.
//!
//! The names of the fields are those of the plain bench where they mean the same; a field that makes no
//! sense in a phase is absent.

use std::fmt;

use serde::Serialize;
use workload::Op;

use super::phase::Measured;
use crate::bench::figures::{
    Errors, Latencies, Latency, Requests, Subject, rate, us_per, write_latency,
};
use crate::bench::options::Plan;

/// One phase.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    setting: Setting,
    #[serde(flatten)]
    figures: Figures,
}

/// What a phase measured on.
#[derive(Debug, Serialize)]
struct Setting {
    phase: &'static str,
    backend: String,
    #[serde(flatten)]
    subject: Subject,
    clients: usize,
    threads: usize,
    seed: u64,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Figures {
    Load(Load),
    Run(Box<Run>),
}

/// Figures of filling the database.
#[derive(Debug, Serialize)]
struct Load {
    load_keys: u64,
    load_seconds: f64,
    load_ops_per_s: f64,
}

/// Figures of the loop.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    requests: Requests,
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    misses: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio: Option<f64>,
    /// Gets of keys that the database does not have either.
    absent: u64,
    duration_s: f64,
    ops_per_s: f64,
    /// Requests a second with the cache, by those without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_ratio: Option<f64>,
    #[serde(flatten)]
    latency: Latency,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    miss: Option<Latency>,
    #[serde(flatten)]
    latencies: Latencies,
    generator_cpu_us_per_op: f64,
    #[serde(flatten)]
    errors: Errors,
}

impl Setting {
    fn new(phase: &'static str, plan: &Plan, backend: &str) -> Self {
        Self {
            phase,
            backend: backend.to_owned(),
            subject: Subject::new(&plan.workload),
            clients: plan.clients,
            threads: plan.threads,
            seed: plan.workload.settings().seed,
        }
    }
}

impl Row {
    /// The database was filled with `keys` keys in `seconds`.
    pub(super) fn load(plan: &Plan, backend: &str, keys: u64, seconds: f64) -> Self {
        Self {
            setting: Setting::new("load", plan, backend),
            figures: Figures::Load(Load {
                load_keys: keys,
                load_seconds: seconds,
                load_ops_per_s: rate(keys, seconds),
            }),
        }
    }

    /// The loop ran; `before` is what it measured without the cache.
    pub(super) fn run(
        plan: &Plan,
        backend: &str,
        measured: &Measured,
        before: Option<&Measured>,
    ) -> Self {
        let phase = if measured.cached { "cache" } else { "database" };
        Self {
            setting: Setting::new(phase, plan, backend),
            figures: Figures::Run(Box::new(Run::new(measured, before))),
        }
    }
}

fn ops_per_s(measured: &Measured) -> f64 {
    rate(measured.counts.stats.total(), measured.seconds)
}

impl Run {
    fn new(measured: &Measured, before: Option<&Measured>) -> Self {
        let counts = &measured.counts;
        let stats = &counts.stats;
        let gets = stats.requests[Op::Get as usize];
        let cached = |figure: u64| measured.cached.then_some(figure);
        Self {
            requests: Requests::new(stats),
            hits: cached(stats.hits),
            misses: cached(gets - stats.hits),
            hit_ratio: (measured.cached && gets > 0).then(|| stats.hits as f64 / gets as f64),
            absent: counts.absent,
            duration_s: measured.seconds,
            ops_per_s: ops_per_s(measured),
            ops_ratio: before
                .map(ops_per_s)
                .filter(|before| *before > 0.0)
                .map(|before| ops_per_s(measured) / before),
            latency: Latency::of(&stats.all_latencies()),
            hit: Latency::of_any(&counts.hit),
            // Without the cache they are all gets.
            miss: Latency::of_any(&counts.miss).filter(|_| measured.cached),
            latencies: Latencies::new(stats),
            generator_cpu_us_per_op: us_per(measured.own_cpu, stats.total().max(1)),
            errors: Errors::new(stats),
        }
    }
}

/// The row for people.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.figures {
            Figures::Load(load) => writeln!(
                f,
                "loaded    {} keys into {} in {:.1} s, {:.0}/s",
                load.load_keys, self.setting.backend, load.load_seconds, load.load_ops_per_s
            ),
            Figures::Run(run) => {
                let setting = &self.setting;
                let with = if run.hits.is_some() {
                    "with"
                } else {
                    "without"
                };
                writeln!(
                    f,
                    "{with} the cache before {}: {}, {} clients, {} threads, seed {}",
                    setting.backend,
                    setting.subject,
                    setting.clients,
                    setting.threads,
                    setting.seed
                )?;
                run.fmt(f)
            }
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.write(f, self.duration_s, self.ops_per_s)?;
        if let (Some(hits), Some(ratio)) = (self.hits, self.hit_ratio) {
            writeln!(f, "hits      {hits}: {:.2} % of gets", ratio * 100.0)?;
        }
        if self.absent > 0 {
            writeln!(f, "absent    {} gets found nothing anywhere", self.absent)?;
        }
        write_latency(f, "all", Some(&self.latency))?;
        write_latency(f, "hit", self.hit.as_ref())?;
        write_latency(f, "miss", self.miss.as_ref())?;
        self.latencies.fmt(f)?;
        writeln!(
            f,
            "cpu       generator {:.2} us per request",
            self.generator_cpu_us_per_op
        )?;
        if let Some(ratio) = self.ops_ratio {
            writeln!(f, "ratio     {ratio:.2} times the requests a second")?;
        }
        self.errors.fmt(f)
    }
}
