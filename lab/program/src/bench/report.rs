//! The results, as JSON or as text.
//!
//! Fields have the names that other commands use for the same figures. A field that does not apply to a run
//! is absent.

use lab::row::Row;
use workload::Op;

use super::figures::{self, Report, latency, latency_lines, rate, requests_line, us_per};
use super::options::Plan;
use super::phase::Measured;
use super::stats::{Second, Stats};

/// Returns the report of a run. `idle` holds the number of silent connections, and the number of silent
/// connections that the server has closed.
pub(super) fn report(
    plan: &Plan,
    load: Option<&Measured>,
    run: Option<&Measured>,
    idle: Option<(usize, usize)>,
) -> Report {
    let mut all = Stats::new(false);
    for phase in load.iter().chain(&run) {
        all.merge(&phase.stats);
    }
    let (clients, pipeline, threads) = (plan.clients, plan.pipeline, plan.threads);
    let seed = plan.workload.settings().seed;
    let subject = figures::subject(&plan.workload);
    let loaded = load.map(loaded).unwrap_or_default();
    let ran = run.map(|run| ran(plan, run)).unwrap_or_default();
    let errors = figures::errors(&all);
    let mut row = subject
        .row
        .with("clients", clients)
        .with("pipeline", pipeline)
        .with("multiget", plan.multiget)
        .with("threads", threads)
        .with("seed", seed)
        .and(ran.row)
        .and(loaded.row)
        .and(errors.row)
        .with("idle_connections", idle.map(|(open, _)| open))
        .with("idle_connections_closed", idle.map(|(_, closed)| closed));
    let mut text = format!(
        "{}: {clients} clients x pipeline {pipeline}, {threads} threads, seed {seed}\n",
        subject.text
    );
    text += &(loaded.text + &ran.text);
    if let Some((open, closed)) = idle {
        text += &format!("idle      {open} connections, {closed} of them closed by the server\n");
    }
    if let Some(seconds) = run.and_then(|run| run.stats.timeline()) {
        let seconds = seconds.iter().enumerate();
        let (rows, lines): (Vec<Row>, Vec<String>) =
            seconds.map(|(at, slot)| second(at, slot)).unzip();
        row = row.with_rows("timeline", rows);
        text += &lines.concat();
    }
    Report {
        row,
        text: text + &errors.text,
    }
}

fn loaded(measured: &Measured) -> Report {
    let (keys, seconds) = (measured.stats.requests[Op::Set as usize], measured.seconds);
    let latency = latency(&measured.stats.latencies[Op::Set as usize]);
    let p99_us = latency.number("p99_us").unwrap_or_default();
    let per_s = rate(keys, seconds);
    Report {
        row: figures::load(keys, seconds).with("load_p99_us", p99_us),
        text: format!(
            "loaded    {keys} keys in {seconds:.1} s, {per_s:.0}/s, p99 {p99_us:.0} us\n"
        ),
    }
}

fn ran(plan: &Plan, measured: &Measured) -> Report {
    let (stats, seconds) = (&measured.stats, measured.seconds);
    let server_cpu = |count: u64| {
        let time = measured.server_cpu.filter(|_| count > 0)?;
        Some(us_per(time, count))
    };
    let (hits, hits_per_s) = (stats.hits, rate(stats.hits, seconds));
    let row = figures::run(stats, seconds, measured.generator_cpu, true)
        .with("hits_per_s", hits_per_s)
        .with("target_rate", plan.rate.map(|(_, rate)| rate))
        // Open loop: commands whose time came but which were never sent.
        .with("unsent", plan.rate.map(|_| stats.unsent))
        .with("cpu_us_per_op", server_cpu(stats.total()))
        .with("cpu_us_per_hit", server_cpu(hits));
    let mut text = requests_line(stats, seconds);
    if let Some(ratio) = row.number("hit_ratio") {
        let percent = ratio * 100.0;
        text += &format!("hits      {hits}: {hits_per_s:.0}/s, {percent:.2} % of gets\n");
    }
    text += &latency_lines(stats);
    if plan.rate.is_some() && stats.unsent > 0 {
        text += &format!(
            "late      {} commands were never sent: the rate is too high\n",
            stats.unsent
        );
    }
    let own = us_per(measured.generator_cpu, stats.total().max(1));
    text += &format!("cpu       generator {own:.2}");
    if let Some(server) = server_cpu(stats.total()) {
        text += &format!(", server {server:.2}");
    }
    text += " us per request\n";
    Report { row, text }
}

/// Returns one second of the timeline, as a row and as a line.
fn second(second: usize, slot: &Second) -> (Row, String) {
    let latency = latency(&slot.latencies);
    let us = |field| latency.number(field).unwrap_or_default();
    let (p50, p99, max) = (us("p50_us"), us("p99_us"), us("max_us"));
    let row = Row::new()
        .with("second", second)
        .with("requests", slot.requests)
        .with("gets", slot.gets)
        .with("hits", slot.hits)
        .with("p50_us", p50)
        .with("p99_us", p99)
        .with("max_us", max);
    let line = format!(
        "{second:>6} s  {:>9} requests {:>9} hits  p50 {p50:.0} p99 {p99:.0} max {max:.0} us\n",
        slot.requests, slot.hits
    );
    (row, line)
}
