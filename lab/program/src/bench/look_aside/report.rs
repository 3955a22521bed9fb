//! The results, as JSON or as text: one row for each phase.
//!
//! Fields have the names that the plain bench uses for the same figures. A field that does not apply to a
//! phase is absent.

use lab::row::Row;

use super::phase::Measured;
use crate::bench::figures::{
    self, Report, any_latency, latency, latency_line, latency_lines, rate, requests_line, us_per,
};
use crate::bench::options::Plan;

/// Reports that the database was filled with `keys` keys in `seconds`.
pub(super) fn load(plan: &Plan, backend: &str, keys: u64, seconds: f64) -> Report {
    let per_s = rate(keys, seconds);
    Report {
        row: setting("load", plan, backend).and(figures::load(keys, seconds)),
        text: format!("loaded    {keys} keys into {backend} in {seconds:.1} s, {per_s:.0}/s\n"),
    }
}

/// Returns the fields that describe the setting of a phase.
fn setting(phase: &str, plan: &Plan, backend: &str) -> Row {
    Row::new()
        .with("phase", phase)
        .with("backend", backend)
        .and(figures::subject(&plan.workload).row)
        .with("clients", plan.clients)
        .with("threads", plan.threads)
        .with("seed", plan.workload.settings().seed)
}

/// Reports a run of the loop; `before` holds the results without the cache.
pub(super) fn run(
    plan: &Plan,
    backend: &str,
    measured: &Measured,
    before: Option<&Measured>,
) -> Report {
    let (counts, cached) = (&measured.counts, measured.cached);
    let (stats, seconds, own_cpu) = (&counts.stats, measured.seconds, measured.own_cpu);
    let (phase, with) = match cached {
        true => ("cache", "with"),
        false => ("database", "without"),
    };
    let ops_per_s = |measured: &Measured| rate(measured.counts.stats.total(), measured.seconds);
    let before = before.map(ops_per_s).filter(|before| *before > 0.0);
    let ops_ratio = before.map(|before| ops_per_s(measured) / before);
    let hit = any_latency(&counts.hit);
    // Without the cache, every get would count as a miss.
    let miss = any_latency(&counts.miss).filter(|_| cached);
    let errors = figures::errors(stats);
    let run = figures::run(stats, seconds, own_cpu, cached);

    let mut text = format!(
        "{with} the cache before {backend}: {}, {} clients, {} threads, seed {}\n",
        figures::subject(&plan.workload).text,
        plan.clients,
        plan.threads,
        plan.workload.settings().seed
    );
    text += &requests_line(stats, seconds);
    if let Some(ratio) = run.number("hit_ratio") {
        let (hits, percent) = (stats.hits, ratio * 100.0);
        text += &format!("hits      {hits}: {percent:.2} % of gets\n");
    }
    if counts.absent > 0 {
        let absent = counts.absent;
        text += &format!("absent    {absent} gets found nothing anywhere\n");
    }
    let all = latency(&stats.all_latencies());
    for (name, latency) in [
        ("all", Some(&all)),
        ("hit", hit.as_ref()),
        ("miss", miss.as_ref()),
    ] {
        text += &latency.map_or_else(String::new, |latency| latency_line(name, latency));
    }
    text += &latency_lines(stats);
    let own = us_per(own_cpu, stats.total().max(1));
    text += &format!("cpu       generator {own:.2} us per request\n");
    if let Some(ratio) = ops_ratio {
        text += &format!("ratio     {ratio:.2} times the requests a second\n");
    }
    Report {
        row: setting(phase, plan, backend)
            .and(run)
            // Gets of keys that the database lacks as well.
            .with("absent", counts.absent)
            // Requests a second with the cache, divided by requests a second without it.
            .with("ops_ratio", ops_ratio)
            .with_row("hit", hit)
            .with_row("miss", miss)
            .and(errors.row),
        text: text + &errors.text,
    }
}
