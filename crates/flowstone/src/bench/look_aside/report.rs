//! What was measured, as JSON or as text: one row for each phase.
//!
//! The names of the fields are those of the plain bench where they mean the same; a field that makes no
//! sense in a phase is absent.

use std::fmt;

use serde::Serialize;
use workload::Op;

use super::phase::Measured;
use crate::bench::options::Plan;
use crate::bench::report::{Kinds, Latency, is_zero, rate};

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
    workload: String,
    /// Of a trace, nobody knows before its end.
    #[serde(skip_serializing_if = "is_zero")]
    keys: u64,
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
    requests: u64,
    gets: u64,
    sets: u64,
    deletes: u64,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    get: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete: Option<Latency>,
    generator_cpu_us_per_op: f64,
    errors: u64,
    #[serde(flatten)]
    failures: Kinds,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
}

impl Setting {
    fn new(phase: &'static str, plan: &Plan, backend: &str) -> Self {
        Self {
            phase,
            backend: backend.to_owned(),
            workload: plan.workload.name(),
            keys: plan.workload.keys(),
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
        let [gets, sets, deletes] = stats.requests;
        let requests = stats.total();
        let cached = |figure: u64| measured.cached.then_some(figure);
        let latency = |latencies: &hdrhistogram::Histogram<u64>| {
            (!latencies.is_empty()).then(|| Latency::of(latencies))
        };
        let of = |op: Op| latency(&stats.latencies[op as usize]);
        Self {
            requests,
            gets,
            sets,
            deletes,
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
            hit: latency(&counts.hit),
            // Without the cache they are all gets.
            miss: latency(&counts.miss).filter(|_| measured.cached),
            get: of(Op::Get),
            set: of(Op::Set),
            delete: of(Op::Delete),
            generator_cpu_us_per_op: measured.own_cpu.as_secs_f64() * 1e6 / requests.max(1) as f64,
            errors: stats.failures.total(),
            failures: Kinds::new(&stats.failures),
            first_error: stats.first_failure.clone(),
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
                write!(f, "{with} the cache before {}: ", setting.backend)?;
                f.write_str(&setting.workload)?;
                if setting.keys > 0 {
                    write!(f, " over {} keys", setting.keys)?;
                }
                writeln!(
                    f,
                    ", {} clients, {} threads, seed {}",
                    setting.clients, setting.threads, setting.seed
                )?;
                run.fmt(f)
            }
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "requests  {} in {:.2} s: {:.0}/s ({} gets, {} sets, {} deletes)",
            self.requests, self.duration_s, self.ops_per_s, self.gets, self.sets, self.deletes
        )?;
        if let (Some(hits), Some(ratio)) = (self.hits, self.hit_ratio) {
            writeln!(f, "hits      {hits}: {:.2} % of gets", ratio * 100.0)?;
        }
        if self.absent > 0 {
            writeln!(f, "absent    {} gets found nothing anywhere", self.absent)?;
        }
        writeln!(f, "all       {}", self.latency)?;
        let kinds = [
            ("hit", &self.hit),
            ("miss", &self.miss),
            ("get", &self.get),
            ("set", &self.set),
            ("delete", &self.delete),
        ];
        for (name, latency) in kinds {
            if let Some(latency) = latency {
                writeln!(f, "{name:<9} {latency}")?;
            }
        }
        writeln!(
            f,
            "cpu       generator {:.2} us per request",
            self.generator_cpu_us_per_op
        )?;
        if let Some(ratio) = self.ops_ratio {
            writeln!(f, "ratio     {ratio:.2} times the requests a second")?;
        }
        let first = self
            .first_error
            .as_deref()
            .map(|words| format!(", the first: {words}"));
        writeln!(f, "errors    {}{}", self.errors, first.unwrap_or_default())
    }
}
