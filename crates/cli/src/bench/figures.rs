//! Figures that the reports of both loops have, and their lines for people.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use serde::Serialize;
use workload::{Op, Workload};

use super::options::Plan;
use super::stats::{Failures, Stats};

#[derive(Debug, Default, Serialize)]
pub(super) struct Subject {
    workload: String,
    /// Of a trace, nobody knows before its end.
    #[serde(skip_serializing_if = "is_zero")]
    keys: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Requests {
    requests: u64,
    gets: u64,
    sets: u64,
    deletes: u64,
}

/// Latencies of one kind of request, in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    p999_us: f64,
    mean_us: f64,
    pub(super) max_us: f64,
}

/// Latencies by kind of request; of kinds that there were.
#[derive(Debug, Serialize)]
pub(super) struct Latencies {
    #[serde(skip_serializing_if = "Option::is_none")]
    get: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete: Option<Latency>,
}

#[derive(Debug, Serialize)]
pub(super) struct Load {
    pub(super) load_keys: u64,
    pub(super) load_seconds: f64,
    pub(super) load_ops_per_s: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub(super) requests: Requests,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    misses: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_ratio: Option<f64>,
    pub(super) duration_s: f64,
    pub(super) ops_per_s: f64,
    #[serde(flatten)]
    pub(super) latency: Latency,
    #[serde(flatten)]
    pub(super) latencies: Latencies,
    pub(super) generator_cpu_us_per_op: f64,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Errors {
    errors: u64,
    #[serde(flatten)]
    kinds: Failures,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is the serializer's"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Subject {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            workload: workload.name(),
            keys: workload.keys(),
        }
    }
}

impl Requests {
    pub(super) fn new(stats: &Stats) -> Self {
        let [gets, sets, deletes] = stats.requests;
        Self {
            requests: stats.total(),
            gets,
            sets,
            deletes,
        }
    }

    /// Their line in a report.
    pub(super) fn write(&self, f: &mut Formatter<'_>, seconds: f64, per_s: f64) -> fmt::Result {
        writeln!(
            f,
            "requests  {} in {seconds:.2} s: {per_s:.0}/s ({} gets, {} sets, {} deletes)",
            self.requests, self.gets, self.sets, self.deletes
        )
    }
}

impl Load {
    pub(super) fn new(keys: u64, seconds: f64) -> Self {
        Self {
            load_keys: keys,
            load_seconds: seconds,
            load_ops_per_s: rate(keys, seconds),
        }
    }
}

impl Run {
    /// Of a phase of so many seconds in which this process worked for `own_cpu`; `cached` if there was
    /// a cache to be hit.
    pub(super) fn new(stats: &Stats, seconds: f64, own_cpu: Duration, cached: bool) -> Self {
        let gets = stats.requests[Op::Get as usize];
        let requests = stats.total();
        Self {
            requests: Requests::new(stats),
            hits: cached.then_some(stats.hits),
            misses: cached.then_some(gets - stats.hits),
            hit_ratio: (cached && gets > 0).then(|| stats.hits as f64 / gets as f64),
            duration_s: seconds,
            ops_per_s: rate(requests, seconds),
            latency: Latency::of(&stats.all_latencies()),
            latencies: Latencies::new(stats),
            generator_cpu_us_per_op: us_per(own_cpu, requests.max(1)),
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

    /// None where nothing was measured.
    pub(super) fn of_any<C: Counter>(histogram: &Histogram<C>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self::of(histogram))
    }
}

impl Latencies {
    pub(super) fn new(stats: &Stats) -> Self {
        let of = |op: Op| Latency::of_any(&stats.latencies[op as usize]);
        Self {
            get: of(Op::Get),
            set: of(Op::Set),
            delete: of(Op::Delete),
        }
    }
}

impl Errors {
    pub(super) fn new(stats: &Stats) -> Self {
        Self {
            errors: stats.failures.total(),
            kinds: stats.failures,
            first_error: stats.first_failure.clone(),
        }
    }
}

pub(super) fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Microseconds of `time` for each of `count`.
pub(super) fn us_per(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.workload)?;
        if self.keys > 0 {
            write!(f, " over {} keys", self.keys)?;
        }
        Ok(())
    }
}

impl Display for Latency {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.1}  p99 {:.1}  p99.9 {:.1}  mean {:.1}  max {:.1} us",
            self.p50_us, self.p99_us, self.p999_us, self.mean_us, self.max_us
        )
    }
}

/// A line for each kind.
impl Display for Latencies {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_latency(f, "get", self.get.as_ref())?;
        write_latency(f, "set", self.set.as_ref())?;
        write_latency(f, "delete", self.delete.as_ref())
    }
}

pub(super) fn write_latency(
    f: &mut Formatter<'_>,
    name: &str,
    latency: Option<&Latency>,
) -> fmt::Result {
    match latency {
        Some(latency) => writeln!(f, "{name:<9} {latency}"),
        None => Ok(()),
    }
}

/// The last line of a report.
impl Display for Errors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "errors    {}", self.errors)?;
        if let Some(words) = &self.first_error {
            write!(f, ", the first: {words}")?;
        }
        writeln!(f)
    }
}

/// Prints a report as the plan says: as JSON or for people.
pub(super) fn print(plan: &Plan, report: &(impl Serialize + Display)) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if plan.json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)
    } else {
        write!(out, "{report}")
    }
}
