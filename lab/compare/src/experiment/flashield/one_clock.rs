//! Flashield (NSDI 2019), section 4.3: one CLOCK over memory and flash, as in the paper, against one CLOCK for each.
//!
//! Runs the applications of table 5 and the whole workload. The whole workload also runs with half of the writes that it makes
//! without a limit, so that memory must drop items that flash would have taken.

use std::num::NonZeroU64;

use super::systems::{Cell, Ground, USUAL_RATIO, applications};
use crate::experiment::{ExperimentError, Outcome, Setting};

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
    Ok(Outcome::told(rows, TOLD))
}

fn of_each(mut cell: Cell) -> Cell {
    cell.part = format!("{}, {EACH}", cell.part);
    cell
}

const TOLD: &str = "
for part, $called = *of each application | the applications; memcachier, DRAM : flash 1 : 7 | all of them in one cache; \
  *half of the writes | the same with half of the writes
 {called}: median CLWA with one CLOCK, over that with two | median(clwa)[flashield-one-clock] / median(clwa)[flashield]
 {called}: mean hit ratio with one CLOCK, less that with two, points \
   | 100 * (mean(hit_ratio)[flashield-one-clock] - mean(hit_ratio)[flashield])
";
