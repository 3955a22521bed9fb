//! Figures that the reports of both loops have, and their lines for people.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use serde::Serialize;
use workload::{Op, Workload};

use super::options::Plan;
use super::stats::{Failures, Stats};

/// What was asked for.
#[derive(Debug, Default, Serialize)]
pub(super) struct Subject {
    workload: String,
    /// Of a trace, nobody knows before its end.
    #[serde(skip_serializing_if = "is_zero")]
    keys: u64,
}

/// Requests by kind.
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

/// What went wrong.
#[derive(Debug, Default, Serialize)]
pub(super) struct Errors {
    errors: u64,
    #[serde(flatten)]
    kinds: Kinds,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
}

/// Failures by kind; those that did not happen are absent.
#[derive(Debug, Default, Serialize)]
struct Kinds {
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
            kinds: Kinds::new(&stats.failures),
            first_error: stats.first_failure.clone(),
        }
    }
}

impl Kinds {
    fn new(failures: &Failures) -> Self {
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

/// The line of a latency, if it was measured.
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
