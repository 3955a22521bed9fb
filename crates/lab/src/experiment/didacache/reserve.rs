//! `DIDACache` (TOS 2018), figures 23 to 26 and table 3: how much flash is kept free as the rate of requests changes.

use super::cell::{
    COPY_SCALES, Cell, DATABASE, among, copy_scales, figure, over, request_us, requests_per_s,
};
use super::machine::{Machine, look_aside};
use crate::compare::{Outcome as Ran, Pace, Plan, Rate, Sample, SegmentLevels};
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

const STATIC: &str = "didacache-static";
const QUEUEING: &str = "didacache";
const HEURISTIC: &str = "didacache-heuristic";
const PRESETS: [&str; 3] = [STATIC, HEURISTIC, QUEUEING];

/// Requests come at given rates.
const PACED: &str = "rates";
/// Clients make them one after the other.
const UNPACED: &str = "closed";

/// The cache, in percent of the data set.
const CACHE_PERCENT: f64 = 12.0;
/// Requests a second for each LUN, each rate for as long as the others. The paper's runs reach 1,200.
const RATES: [f64; 5] = [250.0, 500.0, 1000.0, 500.0, 250.0];
const POINTS: usize = 40;

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::lean(setting.scale);
    let keys = machine.data_set_keys(CACHE_PERCENT);
    // As many as fill the cache and turn over what it holds; then half of that.
    let requests = keys / 2;
    let plan = Plan {
        load: false,
        warmup: 2 * requests,
        database: DATABASE,
        pace: Pace::Rates(rates(&machine, requests)),
        ..machine.plan(look_aside(setting, keys)?, requests)
    };
    let cells = |plan: &Plan, scales, pace| {
        let cells = Cell::of_each(&machine, &PRESETS, plan, scales, &Row::new()).into_iter();
        cells.map(move |cell| cell.with("pace", pace))
    };
    let paced = cells(&plan, copy_scales(setting.scale), PACED);
    // At rates that all of them keep up with there is no throughput to compare.
    let unpaced = Plan {
        pace: Pace::Closed,
        clients: machine.few_clients(),
        requests: Some(requests / 2),
        ..plan.clone()
    };
    let cells: Vec<Cell> = paced.chain(cells(&unpaced, &[1], UNPACED)).collect();
    let regulated = setting.cells.run(&cells, Regulated::of)?;
    let rows: Vec<Row> = regulated.iter().map(|ran| ran.row.clone()).collect();
    let plots = plots(&regulated[..PRESETS.len()]);
    Ok(Outcome::of(plots, findings(&rows), rows))
}

/// The rates, as long as each other, and so many requests in all.
fn rates(machine: &Machine, requests: u64) -> Vec<Rate> {
    let all: f64 = RATES.iter().sum();
    let rate = |per_s: f64| Rate {
        requests: (requests as f64 * per_s / all) as u64,
        per_s: per_s * f64::from(machine.luns()),
    };
    RATES.into_iter().map(rate).collect()
}

struct Regulated {
    preset: &'static str,
    row: Row,
    /// Those of what was measured.
    samples: Vec<Sample>,
    latencies: Vec<(f64, f64)>,
    segments: usize,
}

impl Regulated {
    fn of(cell: &Cell) -> Result<Self, ExperimentError> {
        let ran = cell.run()?;
        let segments = ran.detail.erase_counts.len();
        let samples = thinned(&ran, cell.plan.warmup);
        let kept_free = mean(&samples, |sample| sample.segments.free);
        let row = &ran.row;
        let low = mean(&samples, |sample| sample.segments.low);
        let row = cell
            .head
            .clone()
            .and(row.figures(&["hit_ratio", "erases", "gc_bytes_copied"]))
            .with("request_us", request_us(&ran))
            .and(row.figures(&["p50_us", "p99_us", "p999_us"]))
            .with("requests_per_s", requests_per_s(&ran))
            .with("free_share", kept_free / segments as f64)
            .with("low_share", low / segments as f64)
            .with("cpu_busy", ran.detail.cpu_busy)
            .and(row.figures(&["item_bytes_set", "objects_on_flash"]));
        Ok(Self {
            preset: cell.preset.name,
            row,
            samples,
            latencies: ran.detail.latencies,
            segments,
        })
    }

    /// A curve over the seconds since the first sample.
    fn over_time(&self, figure: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
        let begun = self.samples.first().map_or(0, |first| first.nanos);
        let point = |sample: &Sample| ((sample.nanos - begun) as f64 / 1e9, figure(sample));
        self.samples.iter().map(point).collect()
    }

    fn levels(&self) -> Plot {
        let line = |name, level: fn(&SegmentLevels) -> u32| {
            let percent =
                |levels: &SegmentLevels| 100.0 * f64::from(level(levels)) / self.segments as f64;
            Line::new(name, self.over_time(|sample| percent(&sample.segments)))
        };
        Plot::new(
            format!("Free segments and watermarks, {}", self.preset),
            seconds(),
            Axis::linear("segments").unit("% of the flash"),
            vec![
                line("free", |levels| levels.free),
                line("low", |levels| levels.low).dashed(),
                line("high", |levels| levels.high).dashed(),
            ],
        )
    }

    fn hit_ratio(&self) -> Line {
        let begun = self.samples.first().map_or(0, |first| first.nanos);
        let points = self.samples.windows(2).map(|pair| {
            let seconds = (pair[1].nanos - begun) as f64 / 1e9;
            let hits = (pair[1].hits - pair[0].hits) as f64;
            (seconds, hits / (pair[1].gets - pair[0].gets) as f64)
        });
        Line::new(self.preset, points.collect())
    }
}

/// Some of the samples of what was measured, evenly spaced in requests.
fn thinned(ran: &Ran, warmup: u64) -> Vec<Sample> {
    let measured: Vec<Sample> = ran
        .curve
        .samples
        .iter()
        .filter(|sample| sample.requests >= warmup)
        .copied()
        .collect();
    let step = measured.len().div_ceil(POINTS).max(1);
    measured.into_iter().step_by(step).collect()
}

fn mean(samples: &[Sample], figure: impl Fn(&Sample) -> u32) -> f64 {
    samples
        .iter()
        .map(|sample| f64::from(figure(sample)))
        .sum::<f64>()
        / samples.len() as f64
}

fn seconds() -> Axis {
    Axis::linear("time").unit("s")
}

fn plots(regulated: &[Regulated]) -> Vec<Plot> {
    let mut plots: Vec<Plot> = regulated.iter().map(Regulated::levels).collect();
    plots.push(Plot::new(
        "Hit ratio",
        seconds(),
        Axis::linear("hit ratio"),
        regulated.iter().map(Regulated::hit_ratio).collect(),
    ));
    let presets = regulated.iter().map(|ran| ran.preset.to_owned()).collect();
    let bar = |(at, ran): (usize, &Regulated)| Some((at as f64, ran.row.number("erases")?));
    plots.push(Plot::new(
        "Erases",
        Axis::named("preset", presets),
        Axis::linear("erases"),
        vec![Line::new(
            "erases",
            regulated.iter().enumerate().filter_map(bar).collect(),
        )],
    ));
    let latency = |ran: &Regulated| {
        let point = |&(percent, micros): &(f64, f64)| (micros, percent / 100.0);
        Line::new(ran.preset, ran.latencies.iter().map(point).collect())
    };
    plots.push(Plot::new(
        "Operations that took no longer",
        Axis::log10("latency").unit("us"),
        Axis::linear("share of the operations"),
        regulated.iter().map(latency).collect(),
    ));
    plots
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for scale in COPY_SCALES {
        let of = |preset, field| figure(rows, preset, scale, field);
        for (preset, points, erases, latency) in [
            (QUEUEING, "7.1", "0.84", "0.78"),
            (HEURISTIC, "6.4", "0.91", "0.80"),
        ] {
            let over_static = |field| over(rows, [preset, STATIC], scale, field);
            let gained = of(preset, "hit_ratio").zip(of(STATIC, "hit_ratio"));
            for (what, paper, here) in [
                (
                    "hit ratio, points above static",
                    points,
                    gained.map(|(one, other)| 100.0 * (one - other)),
                ),
                ("erases / static", erases, over_static("erases")),
                (
                    "mean time of a request / static",
                    latency,
                    over_static("request_us"),
                ),
            ] {
                findings.push(Finding::new(
                    format!("{what}, {preset}, copying x {scale}"),
                    Some(paper),
                    here,
                ));
            }
        }
    }
    let unpaced = among(rows, "pace", UNPACED);
    for (preset, paper) in [(QUEUEING, "1.16"), (HEURISTIC, "1.13")] {
        findings.push(Finding::new(
            format!("throughput of clients in a closed loop / static, {preset}"),
            Some(paper),
            over(&unpaced, [preset, STATIC], 1, "requests_per_s"),
        ));
    }
    for (preset, paper) in PRESETS.into_iter().zip(["0.877", "0.941", "0.948"]) {
        findings.push(Finding::new(
            format!("hit ratio, {preset}"),
            Some(paper),
            figure(rows, preset, 1, "hit_ratio"),
        ));
    }
    findings
}
