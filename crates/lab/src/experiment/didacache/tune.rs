//! What the authors of each scheme would set, found by search on work that no other experiment reports.
//!
//! Every scheme chooses from the same numbers of writers and reclaimers and the same bounds of copying, with the same
//! buffers and the same flash. Two kinds of work count alike: sets alone, and three sets to a get. The fastest setting
//! counts that keeps nearly as many items as the one that keeps most.

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::cell::{Cell, Spare, among};
use super::machine::Machine;
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::Row;

const PRESETS: [&str; 5] = [
    "fatcache-sync",
    "fatcache-sync-greedy",
    "fatcache-async",
    "fatcache-async-greedy",
    "didacache",
];
/// Segments written at once, and segments reclaimed at once, in sixteenths of the buffers.
const WORKERS: [u32; 5] = [1, 2, 4, 8, 12];
/// The most of a slab that is copied, in sixteenths.
const MOST_COPIED: [u32; 3] = [8, 12, 15];
/// Items of so many bytes, key and value, and what one takes of flash.
const KEY_BYTES: usize = 24;
const VALUE_BYTES: u32 = 376;
const FLASH_BYTES: f64 = 520.0;
/// Of the flash is filled.
const FILLED_SHARE: f64 = 0.8;
/// Of the items of the setting that keeps most, at least so many are kept: a point of the hit ratio.
const KEPT_SHARE: f64 = 0.99;
const THETA: f64 = 0.8;
/// Gets to a set.
const GETS_PER_SET: [f64; 2] = [0.0, 1.0 / 3.0];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = (machine.flash_bytes() as f64 * FILLED_SHARE / FLASH_BYTES) as u64;
    let workload = |gets_per_set| {
        let settings = Settings {
            keys,
            clients: machine.clients().into(),
            // Another draw than any other experiment's.
            seed: !setting.seed,
            mix: Some(Mix::new(gets_per_set, 1.0, 0.0)?),
            key_size: Some(KeySize::Fixed(KEY_BYTES)),
            value_size: Some(ValueSize::Fixed(VALUE_BYTES)),
            theta: Some(THETA),
            ..Settings::default()
        };
        Workload::parse("zipfian", settings)
    };
    let (workers, copied) = match setting.scale {
        Scale::Tiny => (&WORKERS[1..2], &MOST_COPIED[1..2]),
        Scale::Small | Scale::Paper => (&WORKERS[..], &MOST_COPIED[..]),
    };
    let mut cells = Vec::new();
    for &share in workers {
        let workers = machine.buffers() * share / 16;
        for &sixteenths in copied {
            for gets_per_set in GETS_PER_SET {
                let plan = Plan {
                    workers: Some(workers),
                    max_copy_sixteenths: Some(sixteenths),
                    warmup: keys,
                    ..machine.plan(workload(gets_per_set)?, keys / 2)
                };
                let head = Row::new()
                    .with("workers", workers)
                    .with("max_copy_sixteenths", sixteenths)
                    .with("gets_per_set", gets_per_set);
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

/// A setting, on all the work.
struct Tried {
    workers: f64,
    sixteenths: f64,
    /// Requests a second, the geometric mean.
    rate: f64,
    /// The least.
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
        let figures: [(&str, fn(&Tried) -> f64); 4] = [
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
