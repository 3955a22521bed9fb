//! `DIDACache` (TOS 2018), figures 23 to 26 and table 3: how much flash is kept free as the rate of requests changes.

use workload::{Mix, Settings, Workload};

use super::cell::{Cell, DATABASE, Spare, among, figure, over, points};
use super::machine::{
    GETS_PER_SET, LOOK_ASIDE_DEVIATION, Machine, PAPER_SERVERS, look_aside_settings,
};
use crate::compare::{Outcome as Ran, Pace, Plan, Rate, Sample, SegmentLevels};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::{PART, Row};

const STATIC: &str = "didacache-static";
const QUEUEING: &str = "didacache";
const HEURISTIC: &str = "didacache-heuristic";
const PRESETS: [&str; 3] = [STATIC, HEURISTIC, QUEUEING];

/// The cache, in percent of the data set.
const CACHE_PERCENT: f64 = 12.0;
const POINTS: usize = 40;

/// What is asked for, and how fast.
struct Part {
    name: &'static str,
    /// Gets to a set; what a get does not find is stored.
    gets_per_set: f64,
    /// Requests a second of the paper's eight servers, each rate for as many requests as there are of it in a second; none
    /// where clients ask as fast as they are answered. The paper's runs reach 230 thousand.
    rates: &'static [f64],
}

const PARTS: [Part; 3] = [
    Part {
        name: "reads at given rates",
        gets_per_set: GETS_PER_SET,
        rates: &[20e3, 40e3, 80e3, 40e3, 20e3],
    },
    Part {
        name: "half of them sets, up to what reclaim can do",
        gets_per_set: 1.0,
        rates: &[25e3, 50e3, 100e3, 50e3, 25e3],
    },
    Part {
        name: "reads as fast as they are answered",
        gets_per_set: GETS_PER_SET,
        rates: &[],
    },
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.data_set_keys(CACHE_PERCENT);
    // As many as fill the cache and turn over what it holds; then half of that.
    let requests = match setting.scale {
        // For tests.
        Scale::Tiny => keys / 20,
        Scale::Small | Scale::Paper => keys / 2,
    };
    let mut cells = Vec::new();
    for part in &PARTS {
        let settings = Settings {
            mix: Some(Mix::new(part.gets_per_set, 1.0, 0.0)?),
            ..look_aside_settings(setting, keys, LOOK_ASIDE_DEVIATION, 0.0)?
        };
        let plan = Plan {
            load: false,
            warmup: 2 * requests,
            database: DATABASE,
            pace: part.pace(&machine, requests),
            ..machine.plan(Workload::parse("normal", settings)?, requests)
        };
        let of_part = Cell::of_each(&machine, Spare::Within, &PRESETS, &plan, &Row::new());
        cells.extend(of_part.into_iter().map(|cell| cell.part(part.name)));
    }
    let regulated = setting.cells.run(&cells, Regulated::of)?;
    let rows: Vec<Row> = regulated.iter().map(|ran| ran.row.clone()).collect();
    Ok(Outcome::of(plots(&regulated), findings(&rows), rows))
}

impl Part {
    /// The rates, as long as each other, and so many requests in all.
    fn pace(&self, machine: &Machine, requests: u64) -> Pace {
        if self.rates.is_empty() {
            return Pace::Closed;
        }
        let all: f64 = self.rates.iter().sum();
        let rate = |per_s: &f64| Rate {
            requests: (requests as f64 * per_s / all) as u64,
            per_s: per_s * f64::from(machine.servers) / PAPER_SERVERS,
        };
        Pace::Rates(self.rates.iter().map(rate).collect())
    }
}

struct Regulated {
    preset: &'static str,
    part: String,
    row: Row,
    /// Those of what was measured.
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
            .with("low_share", mean_of(|levels| levels.low));
        Ok(Self {
            preset: cell.preset.name,
            part: cell.part.clone(),
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

/// What the paper has of queueing and of the heuristic, over static.
const PAPER: [(&str, &str, [&str; 2]); 6] = [
    ("erases", "slabs_erased", ["0.84", "0.91"]),
    ("mean time of a request", "request_us", ["0.78", "0.80"]),
    ("requests a second", "requests_per_s", ["1.16", "1.13"]),
    ("p99", "p99_us", ["lower", "lower"]),
    ("p99.9", "p999_us", ["lower", "lower"]),
    ("items kept", "objects_on_flash", ["-", "-"]),
];

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in &PARTS {
        let rows = among(rows, PART, part.name);
        for (at, preset) in [QUEUEING, HEURISTIC].into_iter().enumerate() {
            let of = format!("{preset}, {}", part.name);
            findings.push(Finding::new(
                format!("hit ratio, points above static, {of}"),
                Some(["7.1", "6.4"][at]),
                points(&rows, [preset, STATIC], "hit_ratio"),
            ));
            findings.extend(PAPER.map(|(what, field, paper)| {
                Finding::new(
                    format!("{what} / static, {of}"),
                    Some(paper[at]),
                    over(&rows, [preset, STATIC], field),
                )
            }));
        }
        for (preset, paper) in PRESETS.into_iter().zip(["0.877", "0.941", "0.948"]) {
            findings.push(Finding::new(
                format!("hit ratio, {preset}, {}", part.name),
                Some(paper),
                figure(&rows, preset, "hit_ratio"),
            ));
        }
    }
    findings
}
