//! `DIDACache` (TOS 2018), figures 23 to 26 and table 3: the flash kept free as the rate of requests changes.

use workload::{Mix, Settings, Workload};

use super::cell::{Cell, DATABASE, Spare};
use super::machine::{GETS_PER_SET, LOOK_ASIDE_DEVIATION, Machine, look_aside_settings};
use crate::compare::{Outcome as Ran, Pace, Plan, Rate, Sample, SegmentLevels};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

const STATIC: &str = "didacache-static";
const QUEUEING: &str = "didacache";
const HEURISTIC: &str = "didacache-heuristic";
const PRESETS: [&str; 3] = [STATIC, HEURISTIC, QUEUEING];

/// Size of the cache, in percent of the data set.
const CACHE_PERCENT: f64 = 12.0;
const POINTS: usize = 40;

/// Rates of requests, one after the other, as fractions of the slowest preset's closed-loop throughput. At much higher rates
/// requests would queue at the single-threaded servers, whatever reclaim does.
const RATES: [f64; 5] = [0.1875, 0.375, 0.75, 0.375, 0.1875];

/// Requests, made first in a closed loop, then at [`RATES`]. A missing item is stored.
struct Part {
    name: &'static str,
    gets_per_set: f64,
    /// Number of measured requests over the number of keys. Twice as many before them fill the cache and turn over its
    /// contents.
    requests: f64,
}

const PARTS: [Part; 2] = [
    Part {
        name: "reads",
        gets_per_set: GETS_PER_SET,
        requests: 0.5,
    },
    Part {
        name: "nine sets to a get",
        gets_per_set: 1.0 / 9.0,
        requests: 0.125,
    },
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let closed = cells(setting, &machine, &[])?;
    let closed = setting.cells.run(&closed, Regulated::of)?;
    let slowest: Vec<f64> = closed
        .chunk_by(|one, other| one.part == other.part)
        .map(|of_part| {
            of_part
                .iter()
                .filter_map(Regulated::requests_per_s)
                .fold(f64::INFINITY, f64::min)
        })
        .collect();
    let paced = cells(setting, &machine, &slowest)?;
    let paced = setting.cells.run(&paced, Regulated::of)?;
    let regulated: Vec<Regulated> = closed.into_iter().chain(paced).collect();
    let rows: Vec<Row> = regulated.iter().map(|ran| ran.row.clone()).collect();
    Ok(Outcome {
        plots: plots(&regulated),
        ..Outcome::told(rows, TOLD)
    })
}

/// Returns the cells of all presets and parts. `answered` has the throughput of each part, from which [`RATES`] follow. If it
/// is empty, clients run in a closed loop.
fn cells(
    setting: &Setting<'_>,
    machine: &Machine,
    answered: &[f64],
) -> Result<Vec<Cell>, ExperimentError> {
    let keys = machine.data_set_keys(CACHE_PERCENT);
    let share = match setting.scale {
        // Shortened for tests.
        Scale::Tiny => 0.1,
        Scale::Small | Scale::Paper => 1.0,
    };
    let mut cells = Vec::new();
    for (at, part) in PARTS.iter().enumerate() {
        let settings = Settings {
            mix: Some(Mix::new(part.gets_per_set, 1.0, 0.0)?),
            ..look_aside_settings(setting, keys, LOOK_ASIDE_DEVIATION, 0.0)?
        };
        let answered = answered.get(at);
        let requests = (keys as f64 * part.requests * share) as u64;
        let plan = Plan {
            load: false,
            warmup: 2 * requests,
            database: DATABASE,
            pace: answered.map_or(Pace::Closed, |&per_s| pace(requests, per_s)),
            ..machine.plan(Workload::parse("normal", settings)?, requests)
        };
        let peak = answered.map(|per_s| per_s * RATES.into_iter().fold(0.0, f64::max));
        let head = Row::new().with("peak_per_s", peak);
        let of_part = Cell::of_each(machine, Spare::Within, &PRESETS, &plan, &head);
        let name = part.name(answered.is_some());
        cells.extend(of_part.into_iter().map(|cell| cell.part(name.as_str())));
    }
    Ok(cells)
}

/// Returns [`RATES`] as parts of equal duration, with `requests` requests in all.
fn pace(requests: u64, answered_per_s: f64) -> Pace {
    let all: f64 = RATES.iter().sum();
    let rate = |part: &f64| Rate {
        requests: (requests as f64 * part / all) as u64,
        per_s: part * answered_per_s,
    };
    Pace::Rates(RATES.iter().map(rate).collect())
}

impl Part {
    fn name(&self, is_paced: bool) -> String {
        let pace = if is_paced {
            "at rates that are answered"
        } else {
            "as fast as they are answered"
        };
        format!("{}, {pace}", self.name)
    }
}

struct Regulated {
    preset: &'static str,
    part: String,
    row: Row,
    /// Samples of the measured part.
    samples: Vec<Sample>,
    latencies: Vec<(f64, f64)>,
    segments: usize,
}

impl Regulated {
    fn of(cell: &Cell) -> Result<Self, ExperimentError> {
        let (row, ran) = cell.measure()?;
        let segments = ran.detail.erase_counts.len();
        let samples = thinned(&ran, cell.plan.warmup);
        let mean_of = |level: fn(&SegmentLevels) -> u32| {
            let sum: f64 = samples
                .iter()
                .map(|sample| f64::from(level(&sample.segments)))
                .sum();
            sum / samples.len() as f64 / segments as f64
        };
        let row = row
            .with("free_share", mean_of(|levels| levels.free))
            .with("low_share", mean_of(|levels| levels.low))
            .with("request_p99_us", ran.detail.request_us[0])
            .with("request_p999_us", ran.detail.request_us[1]);
        Ok(Self {
            preset: cell.preset.name,
            part: cell.part.clone(),
            row,
            samples,
            latencies: ran.detail.latencies,
            segments,
        })
    }

    fn requests_per_s(&self) -> Option<f64> {
        self.row.number("requests_per_s")
    }

    /// Returns a figure over the seconds since the first sample.
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
            format!(
                "Free segments and watermarks, {}, {}",
                self.preset, self.part
            ),
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

/// Returns at most [`POINTS`] samples of the measured part, evenly spaced in requests.
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

fn seconds() -> Axis {
    Axis::linear("time").unit("s")
}

fn plots(regulated: &[Regulated]) -> Vec<Plot> {
    regulated
        .chunk_by(|one, other| one.part == other.part)
        .flat_map(|of_part| plots_of(&of_part[0].part, of_part))
        .collect()
}

fn plots_of(part: &str, regulated: &[Regulated]) -> Vec<Plot> {
    let mut plots: Vec<Plot> = regulated.iter().map(Regulated::levels).collect();
    plots.push(Plot::new(
        format!("Hit ratio, {part}"),
        seconds(),
        Axis::linear("hit ratio"),
        regulated.iter().map(Regulated::hit_ratio).collect(),
    ));
    let presets = regulated.iter().map(|ran| ran.preset.to_owned()).collect();
    let bar = |(at, ran): (usize, &Regulated)| Some((at as f64, ran.row.number("slabs_erased")?));
    plots.push(Plot::new(
        format!("Erases, {part}"),
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
        format!("Operations that took no longer, {part}"),
        Axis::log10("latency").unit("us"),
        Axis::linear("share of the operations"),
        regulated.iter().map(latency).collect(),
    ));
    plots
}

const TOLD: &str = "
for part = reads, as fast as they are answered; nine sets to a get, as fast as they are answered; \
  reads, at rates that are answered; nine sets to a get, at rates that are answered
 for $preset, $hits, $erases, $mean, $rate = didacache | 7.1 | 0.84 | 0.78 | 1.16; \
   didacache-heuristic | 6.4 | 0.91 | 0.80 | 1.13
  hit ratio, points above static, {preset}, {part} \
    | 100 * (hit_ratio[{preset}] - hit_ratio[didacache-static]) | {hits}
  for $what, $field, $paper = erases | slabs_erased | {erases}; mean time of a request | request_us | {mean}; \
    requests a second | requests_per_s | {rate}; p99 of requests | request_p99_us | lower; \
    p99.9 of requests | request_p999_us | lower; p99 of operations | p99_us | lower; \
    p99.9 of operations | p999_us | lower; items kept | objects_on_flash
   {what} / static, {preset}, {part} | {field}[{preset}] / {field}[didacache-static] | {paper}
 for preset, $paper = didacache-static | 0.877; didacache-heuristic | 0.941; didacache | 0.948
  hit ratio, {preset}, {part} | hit_ratio | {paper}
";
