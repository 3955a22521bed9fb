//! What the authors of each scheme would set, found by search on work that no other experiment reports.
//!
//! Every scheme chooses from the same numbers of writers and reclaimers and the same bounds of copying, with the same
//! buffers and the same flash. The fastest setting counts that keeps nearly as many items as the one that keeps most.

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

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = (machine.flash_bytes() as f64 * FILLED_SHARE / FLASH_BYTES) as u64;
    let settings = Settings {
        keys,
        clients: machine.clients().into(),
        // Another draw than any other experiment's.
        seed: !setting.seed,
        mix: Some(Mix::new(1.0, 3.0, 0.0)?),
        key_size: Some(KeySize::Fixed(KEY_BYTES)),
        value_size: Some(ValueSize::Fixed(VALUE_BYTES)),
        theta: Some(THETA),
        ..Settings::default()
    };
    let workload = Workload::parse("zipfian", settings)?;
    let (workers, copied) = match setting.scale {
        Scale::Tiny => (&WORKERS[1..2], &MOST_COPIED[1..2]),
        Scale::Small | Scale::Paper => (&WORKERS[..], &MOST_COPIED[..]),
    };
    let mut cells = Vec::new();
    for &share in workers {
        let workers = machine.buffers() * share / 16;
        for &sixteenths in copied {
            let plan = Plan {
                workers: Some(workers),
                max_copy_sixteenths: Some(sixteenths),
                warmup: keys,
                ..machine.plan(workload.clone(), keys / 2)
            };
            let head = Row::new()
                .with("workers", workers)
                .with("max_copy_sixteenths", sixteenths);
            cells.extend(Cell::of_each(
                &machine,
                Spare::Beside,
                &PRESETS,
                &plan,
                &head,
            ));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for preset in PRESETS {
        let rows = among(rows, "preset", preset);
        let kept = |row: &Row| row.number("kept_share").unwrap_or(0.0);
        let most = rows.iter().map(kept).fold(0.0, f64::max);
        let rate = |row: &&Row| row.number("ops_per_s").unwrap_or(0.0);
        let best = rows
            .iter()
            .filter(|row| kept(row) >= KEPT_SHARE * most)
            .max_by(|one, other| rate(one).total_cmp(&rate(other)));
        for (what, field) in [
            ("segments written and reclaimed at once", "workers"),
            ("sixteenths copied at most", "max_copy_sixteenths"),
            ("requests a second with them", "ops_per_s"),
            ("share of the items kept", "kept_share"),
        ] {
            findings.push(Finding::new(
                format!("{preset}: {what}"),
                None,
                best.and_then(|row| row.number(field)),
            ));
        }
    }
    findings
}
