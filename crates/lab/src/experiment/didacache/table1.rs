//! `DIDACache` (TOS 2018), table 1: what garbage collection copies and erases.

use workload::Mix;

use super::cell::{COPY_SCALES, Cell, copy_scales, over};
use super::items;
use super::machine::{Machine, etc};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::presets::MadeFor;
use crate::row::Row;

const PRESETS: [&str; 6] = [
    "didacache-space",
    "didacache-locality",
    "didacache",
    "fatcache-sync-greedy",
    "fatcache-sync-kick",
    "fatcache-sync-fifo",
];

/// Of 30 GB, 25 are loaded.
const LOADED_SHARE: f64 = 25.0 / 30.0;

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.etc_keys(LOADED_SHARE);
    let sets_only = Mix::new(0.0, 1.0, 0.0)?;
    // 80 million sets of some 80 million keys, once the drive has used up what it had in reserve.
    let plan = Plan {
        warmup: keys,
        ..machine.plan(etc(setting, keys, sets_only)?, keys)
    };
    // The paper's simulator is given the flash that the drive has, not only the 30 GB that it offers.
    let scales = copy_scales(setting.scale);
    let cells = items::cells(&machine, &PRESETS, &plan, scales, &Row::new());
    let rows = setting.cells.run(&cells, row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn row(cell: &Cell) -> Result<Row, ExperimentError> {
    let ran = cell.run()?;
    let row = &ran.row;
    // What the device copies of its own accord; there is no such thing where the cache drives it.
    let is_on_drive = cell.preset.made_for == MadeFor::Drive;
    let pages_copied = row
        .dlwa
        .filter(|_| is_on_drive)
        .map(|dlwa| (dlwa - 1.0).max(0.0) * row.flash_bytes_written.unwrap_or(0) as f64);
    Ok(cell
        .head
        .clone()
        .and(row.figures(&["gc_bytes_copied"]))
        .with("device_bytes_copied", pages_copied)
        .and(row.figures(&["erases", "item_bytes_set", "clwa", "dlwa", "ops_per_s"]))
        .with("mean_us", ran.detail.mean_us)
        .and(row.figures(&["objects_on_flash"]))
        .with("device_mapping_bytes", ran.detail.mapping_bytes))
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for scale in COPY_SCALES {
        for (preset, erases, copied) in [
            ("didacache", "0.72", "0.13"),
            ("didacache-space", "0.80", "0.49"),
            ("didacache-locality", "0.69", "0"),
            ("fatcache-sync-greedy", "0.95", "0.49"),
            ("fatcache-sync-kick", "0.78", "0"),
        ] {
            for (what, field, paper) in [
                ("erases", "erases", erases),
                ("item bytes copied", "gc_bytes_copied", copied),
            ] {
                findings.push(Finding::new(
                    format!("{what}, {preset} / fatcache-fifo, copying x {scale}"),
                    Some(paper),
                    over(rows, [preset, "fatcache-sync-fifo"], scale, field),
                ));
            }
        }
    }
    findings
}
