//! `SlickCache` (`SoCC` 2018), figures 15 and 16: a crash, and the interval at which the index is saved.

use std::sync::Arc;
use std::time::Duration;

use systems::slickcache::TieredSettings;

use super::cell::{Cell, FATCACHE, SLICKCACHE, SLICKCACHE_GC};
use super::machine::{Machine, Popularity, USUAL_HOT, USUAL_SETS, tiered};
use crate::compare::{Crashed, Outcome as Ran, Plan, Survives, crash};
use crate::experiment::pick::{quotient, requests_per_s};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

/// Size of the cache, in percent of the data set.
const CACHE_PERCENT: f64 = 10.0;
/// Duration of "right after" the crash: in front of the database, and straight to the cache.
const RIGHT_AFTER: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(1)];
/// Most points of a line before the crash, with the warm-up, and most points after it.
const POINTS: usize = 32;
const TIMELINE: &str = "15";
const INTERVALS: &str = "16";
/// Fatcache in this engine, which finds everything again that the paper's Fatcache loses.
const RECOVERED: &str = "fatcache, recovered";

fn intervals(scale: Scale) -> Vec<u32> {
    scale.pick(vec![16], vec![1, 16, 256], vec![1, 4, 16, 64, 256, 1024])
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let cells = cells(setting)?;
    let crashed = setting.cells.run(&cells, Crash::measure)?;
    let rows: Vec<Row> = crashed.iter().map(|crashed| crashed.row.clone()).collect();
    let line = |crashed: &Measured| Line::new(crashed.name, crashed.timeline.clone());
    let drawn = crashed
        .iter()
        .filter(|crashed| !crashed.timeline.is_empty());
    let plot = Plot::new(
        "15. Throughput, a crash at 0 s",
        Axis::linear("time").unit("s"),
        Axis::linear("requests").unit("1/s"),
        drawn.map(line).collect(),
    );
    Ok(Outcome {
        plots: vec![plot],
        ..Outcome::told(rows, TOLD)
    })
}

struct Crash {
    name: &'static str,
    cell: Cell,
    survives: Survives,
    after: u64,
    right_after: Duration,
    is_drawn: bool,
}

struct Measured {
    name: &'static str,
    row: Row,
    timeline: Vec<(f64, f64)>,
}

fn cells(setting: &Setting<'_>) -> Result<Vec<Crash>, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.data_set_keys(CACHE_PERCENT);
    let workload = Popularity::Hotspot.workload(setting, keys, USUAL_SETS, true)?;
    let items = machine.items();
    let (warmup, requests) = setting
        .scale
        .tiny_or((items, items / 4), (4 * items, items));
    let plan = Plan {
        warmup,
        census: 0,
        ..machine.before_database(workload, requests)
    };
    let mut cells: Vec<Crash> = [
        (FATCACHE, FATCACHE, Survives::Nothing),
        (RECOVERED, FATCACHE, Survives::All),
        (SLICKCACHE, SLICKCACHE, Survives::All),
        (SLICKCACHE_GC, SLICKCACHE_GC, Survives::All),
    ]
    .into_iter()
    .map(|(name, preset, survives)| Crash {
        name,
        cell: Cell::new(preset, plan.clone()).called(name).part(TIMELINE),
        survives,
        after: requests,
        right_after: RIGHT_AFTER[0],
        is_drawn: true,
    })
    .collect();
    // Straight to the cache, where a checkpoint can get in the way of requests.
    let keys = machine.loaded_keys();
    let usual = machine.loaded(setting, Popularity::Hotspot, 50.0, machine.warm_up(50.0))?;
    for interval in intervals(setting.scale) {
        let plan = Plan {
            requests: Some(keys),
            census: 0,
            placement: Some(Arc::new(TieredSettings {
                checkpoint_segments: interval,
                ..tiered(machine.cascade(USUAL_HOT))
            })),
            ..usual.clone()
        };
        let cell = Cell::new(SLICKCACHE_GC, plan).part(INTERVALS);
        cells.push(Crash {
            name: SLICKCACHE_GC,
            cell: cell.with("checkpoint_slabs", interval),
            survives: Survives::All,
            after: keys,
            right_after: RIGHT_AFTER[1],
            is_drawn: false,
        });
    }
    Ok(cells)
}

impl Crash {
    fn measure(&self) -> Result<Measured, ExperimentError> {
        let cell = &self.cell;
        let Crashed { before, after } = crash(&cell.plan, cell.preset, self.survives, self.after)?;
        let (opened, recovered) = after.detail.start;
        let right_after = RightAfter::of(&after, self.right_after);
        let before_per_s = requests_per_s(&before);
        let row = cell
            .row_of(&before)
            .with("opened_s", opened.as_secs_f64())
            .with(
                "recovered_s",
                recovered.map(|recovered| recovered.as_secs_f64()),
            )
            .with("after_per_s", right_after.per_s)
            .with(
                "after_over_before",
                quotient(right_after.per_s, before_per_s),
            )
            .with("after_hit_ratio", right_after.hit_ratio)
            .with("end_per_s", requests_per_s(&after))
            .with("end_hit_ratio", after.row.hit_ratio);
        let timeline = match self.is_drawn {
            true => timeline(&before, &after),
            false => Vec::new(),
        };
        Ok(Measured {
            name: self.name,
            row,
            timeline,
        })
    }
}

/// Figures of the first requests after the crash. The time without service counts.
struct RightAfter {
    per_s: Option<f64>,
    hit_ratio: Option<f64>,
}

impl RightAfter {
    fn of(ran: &Ran, within: Duration) -> Self {
        let without_service = ran.detail.start.0;
        let end = within.saturating_sub(without_service).as_nanos() as u64;
        let samples = &ran.curve.samples;
        let at = samples.iter().find(|sample| sample.nanos >= end.max(1));
        let at = at.or(samples.last());
        let seconds = at.map(|at| without_service.as_secs_f64() + at.nanos as f64 / 1e9);
        let requests = at.map(|at| at.requests as f64);
        Self {
            per_s: quotient(requests, seconds),
            hit_ratio: at.and_then(|at| quotient(Some(at.hits as f64), Some(at.gets as f64))),
        }
    }
}

/// Returns the requests a second over the seconds before and after the crash.
fn timeline(before: &Ran, after: &Ran) -> Vec<(f64, f64)> {
    let steps = |ran: &Ran, begin: f64| {
        let every = ran.curve.samples.len().div_ceil(POINTS).max(1);
        let samples: Vec<_> = ran.curve.samples.iter().step_by(every).copied().collect();
        let step = |pair: &[crate::compare::Sample]| {
            let seconds = (pair[1].nanos - pair[0].nanos) as f64 / 1e9;
            let rate = (pair[1].requests - pair[0].requests) as f64 / seconds;
            (begin + pair[1].nanos as f64 / 1e9, rate)
        };
        samples.windows(2).map(step).collect::<Vec<_>>()
    };
    let crashed_s = before
        .curve
        .samples
        .last()
        .map_or(0.0, |last| last.nanos as f64 / 1e9);
    let mut points = steps(before, -crashed_s);
    // Drops most of the warm-up.
    points.drain(..points.len() * 3 / 4);
    points.extend(steps(after, after.detail.start.0.as_secs_f64()));
    points
}

const TOLD: &str = "
for part = 15
 for preset, $paper = slickcache | 0.858; slickcache-gc | 0.858; fatcache-async-fifo-drop | 0.176; fatcache, recovered
  throughput right after a crash / before, {preset} | after_over_before | {paper}
  hit ratio right after, {preset} | after_hit_ratio
  hit ratio before, {preset} | hit_ratio
  requests a second before, {preset} | requests_per_s
  seconds without service, {preset} | opened_s
  seconds until all is found, {preset} | recovered_s
for part = 16
 for checkpoint_slabs
  for $of = a checkpoint every {checkpoint_slabs} slabs
   mean latency in us, {of} | mean_us | falls to almost nothing at 256
   p99 in us, {of} | p99_us
   requests a second, {of} | requests_per_s
   hit ratio, {of} | hit_ratio
   bytes of the index written for a SET, {of} | index_bytes_written_a_set
   seconds until all is found, {of} | recovered_s | nearly 1 at 256
";
