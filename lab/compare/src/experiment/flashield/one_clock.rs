//! Flashield (NSDI 2019), section 4.3: one CLOCK over memory and flash, as in the paper, against one CLOCK for each.
//!
//! Runs the applications of table 5 and the whole workload. The whole workload also runs with half of the writes that it makes
//! without a limit, so that memory must drop items that flash would have taken.

use std::num::NonZeroU64;

use super::systems::{Cell, Ground, USUAL_RATIO, applications, mean, median};
use crate::experiment::pick::among;
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::row::{PART, Row};

/// Preset with a CLOCK for each of memory and flash, and preset with one CLOCK for both.
const PRESETS: [&str; 2] = ["flashield", "flashield-one-clock"];
const ALL: &str = "memcachier";
const EACH: &str = "of each application";
/// Suffix of the part whose drive may get half of the writes.
const LIMITED: &str = "half of the writes";

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let mut cells = Vec::new();
    for application in applications(setting.scale) {
        let name = format!("memcachier:app{application}");
        let ground = Ground::new(setting, &name, USUAL_RATIO)?;
        cells.extend(PRESETS.map(|preset| of_each(ground.cell(preset, String::new(), None))));
    }
    let ground = Ground::new(setting, ALL, USUAL_RATIO)?;
    cells.extend(PRESETS.map(|preset| ground.cell(preset, String::new(), None)));
    let mut rows = setting.cells.run(&cells, Cell::measure)?;
    // The limit of both presets: half of the writes of the preset with two CLOCKs.
    let free = rows.iter().rev().nth(1);
    let per_second = free.and_then(|row| row.number("bytes_per_s"));
    if let Some(limit) = per_second.and_then(|bytes| NonZeroU64::new(bytes as u64 / 2)) {
        let limited = PRESETS.map(|preset| {
            let mut cell = ground.cell(preset, String::new(), None);
            cell.part = format!("{}, {LIMITED}", cell.part);
            cell.plan.flash_write_limit = Some(limit);
            cell
        });
        rows.extend(setting.cells.run(&limited, Cell::measure)?);
    }
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn of_each(mut cell: Cell) -> Cell {
    cell.part = format!("{}, {EACH}", cell.part);
    cell
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let part = |row: &Row| row.text(PART).unwrap_or_default().to_owned();
    let is_each = |row: &Row| part(row).ends_with(EACH);
    let is_limited = |row: &Row| part(row).ends_with(LIMITED);
    let is_free = |row: &Row| !is_each(row) && !is_limited(row);
    let of = |is_it: &dyn Fn(&Row) -> bool| -> Vec<Row> {
        rows.iter().filter(|row| is_it(row)).cloned().collect()
    };
    for (called, of_part) in [
        ("the applications", of(&is_each)),
        ("all of them in one cache", of(&is_free)),
        ("the same with half of the writes", of(&is_limited)),
    ] {
        let [two, one] = PRESETS.map(|preset| among(&of_part, "preset", preset));
        let all = |of: &[Row], field| -> Vec<f64> {
            of.iter().filter_map(|row| row.number(field)).collect()
        };
        let clwa = |of| median(all(of, "clwa"));
        let hits = |of| mean(&all(of, "hit_ratio"));
        let over = |one: Option<f64>, two: Option<f64>| Some(one? / two?);
        let less = |one: Option<f64>, two: Option<f64>| Some(100.0 * (one? - two?));
        findings.extend([
            Finding::new(
                format!("{called}: median CLWA with one CLOCK, over that with two"),
                None,
                over(clwa(&one), clwa(&two)),
            ),
            Finding::new(
                format!("{called}: mean hit ratio with one CLOCK, less that with two, points"),
                None,
                less(hits(&one), hits(&two)),
            ),
        ]);
    }
    findings
}
