//! `DIDACache` (TOS 2018), figures 14 to 16: SET and GET mixed.

use super::cell::{Cell, Spare};
use super::items::{PRESETS, SET_SHARES, USUAL};
use super::machine::Machine;
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::{PART, Row};

const DISTRIBUTION: &str = "distribution of the latency";

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let requests = USUAL.keys(setting.scale) / 4;
    let mut cells = Vec::new();
    for spare in Spare::BOTH {
        for set_share in SET_SHARES {
            let plan = USUAL.plan(setting, set_share, requests)?;
            let head = Row::new().with("sets_percent", set_share);
            cells.extend(Cell::of_each(&machine, spare, &PRESETS, &plan, &head));
        }
    }
    let measured = setting.cells.run(&cells, measure)?;
    let (rows, distributions): (Vec<Row>, Vec<Vec<Row>>) = measured.into_iter().unzip();
    let rows = rows.into_iter().chain(distributions.concat()).collect();
    Ok(Outcome::told(rows, TOLD))
}

/// Runs a cell. Returns the row of the requests, and a row for each step of their latency distribution.
fn measure(cell: &Cell) -> Result<(Row, Vec<Row>), ExperimentError> {
    let (row, ran) = cell.measure()?;
    let step = |&(percent, latency_us): &(f64, f64)| {
        Row::new()
            .with(PART, DISTRIBUTION)
            .with("of", cell.part.as_str())
            .and(cell.head.clone())
            .with("requests_percent", percent)
            .with("within_us", latency_us)
    };
    let steps = ran.detail.latencies.iter().map(step).collect();
    Ok((row, steps))
}

const TOLD: &str = "
for $spare = same flash; reserve beside
 for part = {spare}
  plot 14. Throughput, {spare} | sets_percent: SETs (%) | ops_per_s: requests (1/s) \
    | preset = fatcache-sync; fatcache-async; didacache
  plot 15. Mean latency, {spare} | sets_percent: SETs (%) | mean_us: latency (us) \
    | preset = fatcache-sync; fatcache-async; didacache
 for part, of = distribution of the latency | {spare}
  for sets_percent = 100; 75; 50; 25; 0
   plot 16. Latency, {sets_percent} % SETs, {spare} | within_us: log10 latency (us) | requests_percent: requests (%) \
     | preset = fatcache-sync; fatcache-async; didacache
for part = same flash; reserve beside
 for sets_percent, $paper = 100 | above 1; 75 | above 1; 50 | above 1; 25 | above 1; 0 | about 1
  for $other = fatcache-async; fatcache-sync
   for $of = didacache / {other}, {sets_percent} % SETs, {part}
    throughput, {of} | ops_per_s[didacache] / ops_per_s[{other}] | {paper}
    mean latency, {of} | mean_us[didacache] / mean_us[{other}]
    p99, {of} | p99_us[didacache] / p99_us[{other}]
    hit ratio, points more, {of} | 100 * (hit_ratio[didacache] - hit_ratio[{other}])
    items kept, {of} | kept_share[didacache] / kept_share[{other}]
";
