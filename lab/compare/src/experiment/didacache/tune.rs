//! The settings that the authors of each scheme would choose, found by search on workloads that no other experiment reports.
//!
//! Every scheme chooses from the same numbers of writers and reclaimers and the same bounds of copying, with the same buffers
//! and the same flash. All workloads have equal weight: SETs alone of short, medium and long items, and three SETs to a GET.
//! The best setting is the fastest one that keeps nearly as many items as the setting that keeps most.

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::cell::{Cell, Spare};
use super::machine::Machine;
use crate::compare::Plan;
use crate::experiment::pick::among;
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::row::Row;

const PRESETS: [&str; 5] = [
    "fatcache-sync",
    "fatcache-sync-greedy",
    "fatcache-async",
    "fatcache-async-greedy",
    "didacache",
];
/// Numbers of segments written at once, and of segments reclaimed at once, in sixteenths of the buffers.
const WORKERS: [u32; 5] = [1, 2, 4, 8, 12];
/// Bounds of copying, in sixteenths of a slab.
const MOST_COPIED: [u32; 3] = [8, 12, 15];
const KEY_BYTES: usize = 24;
/// Share of the flash that is filled.
const FILLED_SHARE: f64 = 0.8;
/// Least share of the items kept, relative to the setting that keeps most: a point of the hit ratio.
const KEPT_SHARE: f64 = 0.99;
const THETA: f64 = 0.8;

/// A workload.
struct Work {
    value_bytes: u32,
    /// Approximate bytes of flash for an item.
    flash_bytes: f64,
    gets_per_set: f64,
}

const WORK: [Work; 4] = [
    Work::of(376, 520.0, 0.0),
    Work::of(376, 520.0, 1.0 / 3.0),
    Work::of(1476, 1900.0, 0.0),
    Work::of(2976, 3750.0, 0.0),
];

impl Work {
    const fn of(value_bytes: u32, flash_bytes: f64, gets_per_set: f64) -> Self {
        Self {
            value_bytes,
            flash_bytes,
            gets_per_set,
        }
    }

    fn plan(&self, setting: &Setting<'_>, machine: &Machine) -> Result<Plan, ExperimentError> {
        let keys = (machine.flash_bytes() as f64 * FILLED_SHARE / self.flash_bytes) as u64;
        let settings = Settings {
            keys,
            clients: machine.clients().into(),
            // Differs from the draw of every other experiment.
            seed: !setting.seed,
            mix: Some(Mix::new(self.gets_per_set, 1.0, 0.0)?),
            key_size: Some(KeySize::Fixed(KEY_BYTES)),
            value_size: Some(ValueSize::Fixed(self.value_bytes)),
            theta: Some(THETA),
            ..Settings::default()
        };
        Ok(Plan {
            warmup: keys,
            ..machine.plan(Workload::parse("zipfian", settings)?, keys / 2)
        })
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let (workers, copied) = setting.scale.tiny_or(
        (&WORKERS[1..2], &MOST_COPIED[1..2]),
        (&WORKERS[..], &MOST_COPIED[..]),
    );
    let mut cells = Vec::new();
    for &share in workers {
        let workers = machine.buffers() * share / 16;
        for &sixteenths in copied {
            for work in &WORK {
                let plan = Plan {
                    workers: Some(workers),
                    max_copy_sixteenths: Some(sixteenths),
                    ..work.plan(setting, &machine)?
                };
                let head = Row::new()
                    .with("workers", workers)
                    .with("max_copy_sixteenths", sixteenths)
                    .with("value_bytes", work.value_bytes)
                    .with("gets_per_set", work.gets_per_set);
                cells.extend(Cell::of_each(
                    &machine,
                    Spare::Beside,
                    &PRESETS,
                    &plan,
                    &head,
                ));
            }
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

type Figure = fn(&Tried) -> f64;

/// A setting, and its figures over all workloads.
struct Tried {
    workers: f64,
    sixteenths: f64,
    /// Requests a second, geometric mean.
    rate: f64,
    /// Share of the items kept, minimum.
    kept: f64,
}

impl Tried {
    fn of(rows: &[Row]) -> Option<Self> {
        let all = |field| rows.iter().map(move |row| row.number(field));
        let product: Option<f64> = all("ops_per_s").product();
        let kept: Option<Vec<f64>> = all("kept_share").collect();
        Some(Self {
            workers: rows.first()?.number("workers")?,
            sixteenths: rows.first()?.number("max_copy_sixteenths")?,
            rate: product?.powf(1.0 / rows.len() as f64),
            kept: kept?.into_iter().fold(f64::INFINITY, f64::min),
        })
    }
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for preset in PRESETS {
        let rows = among(rows, "preset", preset);
        let same = |one: &Row, other: &Row| {
            ["workers", "max_copy_sixteenths"]
                .iter()
                .all(|field| one.number(field) == other.number(field))
        };
        let tried: Vec<Tried> = rows.chunk_by(same).filter_map(Tried::of).collect();
        let most = tried.iter().map(|tried| tried.kept).fold(0.0, f64::max);
        let best = tried
            .iter()
            .filter(|tried| tried.kept >= KEPT_SHARE * most)
            .max_by(|one, other| one.rate.total_cmp(&other.rate));
        let figures: [(&str, Figure); 4] = [
            ("segments written and reclaimed at once", |tried| {
                tried.workers
            }),
            ("sixteenths copied at most", |tried| tried.sixteenths),
            ("requests a second with them", |tried| tried.rate),
            ("share of the items kept", |tried| tried.kept),
        ];
        findings.extend(figures.map(|(what, figure)| {
            Finding::new(format!("{preset}: {what}"), None, best.map(figure))
        }));
    }
    findings
}
