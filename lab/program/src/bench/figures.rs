//! Figures that the reports of both loops share, and their text lines.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use lab::row::Row;
use workload::Workload;

use super::options::Plan;
use super::stats::Stats;

/// Report on a run, or on part of one.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The report as a JSON object.
    pub(super) row: Row,
    /// The report as lines of text.
    pub(super) text: String,
}

/// Kinds of requests in the order of [`workload::Op`].
const KINDS: [&str; 3] = ["get", "set", "delete"];

/// Reports the workload. The number of keys of a trace is unknown before its end.
pub(super) fn subject(workload: &Workload) -> Report {
    let (name, keys) = (workload.name(), workload.keys());
    let text = match keys {
        0 => name.clone(),
        keys => format!("{name} over {keys} keys"),
    };
    let row = Row::new().with("workload", name);
    Report {
        row: row.with("keys", (keys > 0).then_some(keys)),
        text,
    }
}

pub(super) fn load(keys: u64, seconds: f64) -> Row {
    Row::new()
        .with("load_keys", keys)
        .with("load_seconds", seconds)
        .with("load_ops_per_s", rate(keys, seconds))
}

/// Reports a phase of `seconds` in which this process used `own_cpu`. `cached` says whether there was a
/// cache.
pub(super) fn run(stats: &Stats, seconds: f64, own_cpu: Duration, cached: bool) -> Row {
    let [gets, sets, deletes] = stats.requests;
    let requests = stats.total();
    let hit_ratio = stats.hits as f64 / gets as f64;
    let row = Row::new()
        .with("requests", requests)
        .with("gets", gets)
        .with("sets", sets)
        .with("deletes", deletes)
        .with("hits", cached.then_some(stats.hits))
        .with("misses", cached.then_some(gets - stats.hits))
        .with("hit_ratio", (cached && gets > 0).then_some(hit_ratio))
        .with("duration_s", seconds)
        .with("ops_per_s", rate(requests, seconds))
        .and(latency(&stats.all_latencies()));
    let kinds = KINDS.into_iter().zip(&stats.latencies);
    kinds
        .fold(row, |row, (kind, all)| row.with_row(kind, any_latency(all)))
        .with("generator_cpu_us_per_op", us_per(own_cpu, requests.max(1)))
}

/// Returns the line about a run's requests.
pub(super) fn requests_line(stats: &Stats, seconds: f64) -> String {
    let ([gets, sets, deletes], requests) = (stats.requests, stats.total());
    let per_s = rate(requests, seconds);
    format!(
        "requests  {requests} in {seconds:.2} s: {per_s:.0}/s ({gets} gets, {sets} sets, {deletes} deletes)\n"
    )
}

/// Returns the latencies of one kind of request, in microseconds.
pub(super) fn latency<C: Counter>(all: &Histogram<C>) -> Row {
    let us = |ns: u64| ns as f64 / 1e3;
    Row::new()
        .with("p50_us", us(all.value_at_quantile(0.5)))
        .with("p99_us", us(all.value_at_quantile(0.99)))
        .with("p999_us", us(all.value_at_quantile(0.999)))
        .with("mean_us", (all.mean() / 10.0).round() / 100.0)
        .with("max_us", us(all.max()))
}

/// The same, or `None` if nothing was measured.
pub(super) fn any_latency<C: Counter>(all: &Histogram<C>) -> Option<Row> {
    (!all.is_empty()).then(|| latency(all))
}

/// Returns the line about some latencies.
pub(super) fn latency_line(name: &str, latency: &Row) -> String {
    let us = |field| latency.number(field).unwrap_or_default();
    format!(
        "{name:<9} p50 {:.1}  p99 {:.1}  p99.9 {:.1}  mean {:.1}  max {:.1} us\n",
        us("p50_us"),
        us("p99_us"),
        us("p999_us"),
        us("mean_us"),
        us("max_us")
    )
}

/// Returns a line for each kind of request that was made.
pub(super) fn latency_lines(stats: &Stats) -> String {
    let kinds = KINDS.into_iter().zip(&stats.latencies);
    let lines = kinds.filter_map(|(kind, all)| Some(latency_line(kind, &any_latency(all)?)));
    lines.collect()
}

/// Reports the failures: the last line of a report.
pub(super) fn errors(stats: &Stats) -> Report {
    let errors = stats.failures.total();
    let first = stats.first_failure.as_deref();
    let words = first.map_or_else(String::new, |words| format!(", the first: {words}"));
    let kinds = stats.failures.happened();
    let row = kinds.fold(Row::new().with("errors", errors), |row, (kind, count)| {
        row.with(kind, count)
    });
    Report {
        row: row.with("first_error", first),
        text: format!("errors    {errors}{words}\n"),
    }
}

pub(super) fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Returns the microseconds of `time` for each of `count` requests.
pub(super) fn us_per(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

/// Prints a report as JSON or text, as the plan says.
pub(super) fn print(plan: &Plan, report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if plan.args.json {
        writeln!(out, "{}", report.row.json())
    } else {
        out.write_all(report.text.as_bytes())
    }
}
