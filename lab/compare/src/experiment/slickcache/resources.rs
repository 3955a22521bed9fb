//! `SlickCache` (`SoCC` 2018), section 5.7 and table 3: memory, flash and processors.

use super::cell::{
    Cell, FATCACHE, FLASH_OF_INDEX, PRESETS, SLICKCACHE, SLICKCACHE_GC, WRITTEN_FOR_A_SET,
};
use super::machine::{ITEM_BYTES, Machine, Popularity};
use crate::experiment::pick::{among, figure, measured, over, row_of};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::Row;

/// Requests, their share of SETs in percent, and the busy share of the paper's processors.
const ASKED: [(&str, f64, [&str; 3]); 3] = [
    ("SET", 100.0, ["0.455", "0.505", "0.525"]),
    ("GET", 0.0, ["0.219", "0.227", "0.231"]),
    ("SET/GET 1:1", 50.0, ["0.387", "0.408", "0.425"]),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let mut cells = Vec::new();
    for (asked, sets, _) in ASKED {
        let warmup = match setting.scale {
            Scale::Tiny => machine.loaded_keys() / 4,
            Scale::Small | Scale::Paper => machine.warm_up(sets),
        };
        let plan = machine.loaded(setting, Popularity::Zipfian, sets, warmup)?;
        let cells_of = Cell::of_each(&PRESETS, &plan).into_iter();
        cells.extend(cells_of.map(|cell| cell.with("asked", asked)));
    }
    let rows = setting.cells.run(&cells, row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

/// Runs a cell. Its row includes the memory that does not grow with the number of items: buffers of slabs, the table of slabs,
/// journal and checkpoints.
fn row(cell: &Cell) -> Result<Row, ExperimentError> {
    let ran = cell.ran()?;
    let row = cell.row_of(&ran);
    Ok(row
        .with("fixed_dram_bytes", ran.detail.fixed_bytes)
        .with("index_bytes_written", ran.row.index_bytes_written)
        .with("flash_bytes_written", ran.row.flash_bytes_written))
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (asked, _, paper) in ASKED {
        let rows = among(rows, "asked", asked);
        for (preset, paper) in PRESETS.into_iter().zip(paper) {
            findings.extend(measured(
                row_of(&rows, preset),
                &format!("{preset}, {asked}"),
                &[
                    ("share of the processors busy", Some(paper), "cpu_busy"),
                    ("processor time an operation, in us", None, "cpu_us_an_op"),
                    ("requests a second", None, "requests_per_s"),
                    ("hit ratio", None, "hit_ratio"),
                    ("items kept", None, "items_kept"),
                ],
            ));
        }
        let (what, _, field) = FLASH_OF_INDEX;
        for preset in [SLICKCACHE, SLICKCACHE_GC] {
            findings.extend(measured(
                row_of(&rows, preset),
                &format!("{preset}, {asked}"),
                &[
                    (what, Some("0.06"), field),
                    WRITTEN_FOR_A_SET,
                    ("bits of memory an item", Some("35"), "dram_bits_an_item"),
                ],
            ));
        }
        findings.push(Finding::new(
            format!("memory of the index an item, {SLICKCACHE} / {FATCACHE}, {asked}"),
            Some("0.10"),
            over(&rows, [SLICKCACHE, FATCACHE], "dram_bits_an_item"),
        ));
        let written = |preset| {
            let bytes = figure(&rows, preset, "index_bytes_written_a_set")?;
            Some(bytes / f64::from(ITEM_BYTES))
        };
        findings.push(Finding::new(
            format!("part of the CLWA that is the index, {SLICKCACHE}, {asked}"),
            None,
            written(SLICKCACHE),
        ));
    }
    findings
}
