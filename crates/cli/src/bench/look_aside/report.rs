//! What was measured, as JSON or as text: one row for each phase.
//!
//! The names of the fields are those of the plain bench where they mean the same; a field that makes no
//! sense in a phase is absent.

use std::fmt;

use serde::Serialize;

use super::phase::Measured;
use crate::bench::figures::{self, Errors, Latency, Subject, rate, write_latency};
use crate::bench::options::Plan;

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
    Load(figures::Load),
    Run(Box<Run>),
}

#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    figures: figures::Run,
    /// Gets of keys that the database does not have either.
    absent: u64,
    /// Requests a second with the cache, by those without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hit: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    miss: Option<Latency>,
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
            figures: Figures::Load(figures::Load::new(keys, seconds)),
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
        let (seconds, cached) = (measured.seconds, measured.cached);
        Self {
            figures: figures::Run::new(&counts.stats, seconds, measured.own_cpu, cached),
            absent: counts.absent,
            ops_ratio: before
                .map(ops_per_s)
                .filter(|before| *before > 0.0)
                .map(|before| ops_per_s(measured) / before),
            hit: Latency::of_any(&counts.hit),
            // Without the cache they are all gets.
            miss: Latency::of_any(&counts.miss).filter(|_| cached),
            errors: Errors::new(&counts.stats),
        }
    }
}

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
                let with = if run.figures.hits.is_some() {
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
        let figures = &self.figures;
        let requests = &figures.requests;
        requests.write(f, figures.duration_s, figures.ops_per_s)?;
        if let (Some(hits), Some(ratio)) = (figures.hits, figures.hit_ratio) {
            writeln!(f, "hits      {hits}: {:.2} % of gets", ratio * 100.0)?;
        }
        if self.absent > 0 {
            writeln!(f, "absent    {} gets found nothing anywhere", self.absent)?;
        }
        write_latency(f, "all", Some(&figures.latency))?;
        write_latency(f, "hit", self.hit.as_ref())?;
        write_latency(f, "miss", self.miss.as_ref())?;
        figures.latencies.fmt(f)?;
        writeln!(
            f,
            "cpu       generator {:.2} us per request",
            figures.generator_cpu_us_per_op
        )?;
        if let Some(ratio) = self.ops_ratio {
            writeln!(f, "ratio     {ratio:.2} times the requests a second")?;
        }
        self.errors.fmt(f)
    }
}
