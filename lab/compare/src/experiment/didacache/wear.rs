//! `DIDACache` (TOS 2018), figures 19 to 22 and table 2: wear with and without leveling, and the cost of leveling.

use std::collections::BTreeMap;

use workload::Mix;

use super::cell::{Cell, Spare};
use super::machine::{ETC_FLASH_BYTES, Machine, etc};
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

const PRESETS: [&str; 2] = ["didacache", "didacache-unleveled"];

/// Share of the flash that is loaded: 10 of 15 GB.
const LOADED_SHARE: f64 = 10.0 / 15.0;
/// Bytes of all requests over bytes of flash: 240 GB over 15 GB.
const REQUESTED_TIMES: f64 = 240.0 / 15.0;

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.etc_keys(LOADED_SHARE);
    let half_sets = Mix::new(1.0, 1.0, 0.0)?;
    let requested = machine.flash_bytes() as f64 * REQUESTED_TIMES;
    let requests = (requested / ETC_FLASH_BYTES) as u64;
    let plan = machine.plan(etc(setting, keys, half_sets)?, requests);
    let cells = Cell::of_each(&machine, Spare::Within, &PRESETS, &plan, &Row::new());
    let worn = setting.cells.run(&cells, Worn::of)?;
    let rows: Vec<Row> = worn.iter().map(|worn| worn.row.clone()).collect();
    Ok(Outcome {
        plots: plots(&worn),
        ..Outcome::told(rows, TOLD)
    })
}

struct Worn {
    preset: &'static str,
    row: Row,
    erases: Vec<u64>,
}

impl Worn {
    fn of(cell: &Cell) -> Result<Self, ExperimentError> {
        let (measured, ran) = cell.measure()?;
        let row = &ran.row;
        let (levelings, leveled, copied_to_level) = ran.detail.wear_leveling;
        let spread = row.erase_max.zip(row.erase_min);
        let erases = ran.detail.erase_counts;
        let row = measured
            .and(row.figures(&["erase_min", "erase_max"]))
            .with("erase_spread", spread.map(|(most, least)| most - least))
            .with("erase_mean", mean(&erases))
            .with("near_mean", near_mean(&erases))
            .with(
                "gc_erases",
                row.erases.map(|all| all.saturating_sub(leveled)),
            )
            .with("wear_levelings", levelings)
            .with("leveling_erases", leveled)
            .with("leveling_bytes_copied", copied_to_level);
        Ok(Self {
            preset: cell.preset.name,
            row,
            erases,
        })
    }

    /// Returns the number of blocks for each number of erases.
    fn blocks(&self) -> BTreeMap<u64, u64> {
        let mut blocks = BTreeMap::new();
        for &erases in &self.erases {
            *blocks.entry(erases).or_default() += 1;
        }
        blocks
    }
}

fn mean(erases: &[u64]) -> f64 {
    erases.iter().sum::<u64>() as f64 / erases.len() as f64
}

/// Returns the share of blocks whose erases differ from the mean by at most one.
fn near_mean(erases: &[u64]) -> f64 {
    let mean = mean(erases);
    let near = erases
        .iter()
        .filter(|&&count| (count as f64 - mean).abs() <= 1.0);
    near.count() as f64 / erases.len() as f64
}

fn plots(worn: &[Worn]) -> Vec<Plot> {
    let lines = |points: fn(&Worn) -> Vec<(f64, f64)>| {
        let line = |worn: &Worn| Line::new(worn.preset, points(worn));
        worn.iter().map(line).collect()
    };
    let plot =
        |title: &str, y: Axis, lines| Plot::new(title, Axis::linear("erases of a block"), y, lines);
    vec![
        plot(
            "Wear of the blocks",
            Axis::linear("blocks"),
            lines(|worn| {
                let blocks = worn.blocks().into_iter();
                blocks
                    .map(|(erases, blocks)| (erases as f64, blocks as f64))
                    .collect()
            }),
        ),
        plot(
            "Blocks erased at most so often",
            Axis::linear("share of the blocks"),
            lines(|worn| {
                let (mut below, all) = (0, worn.erases.len() as f64);
                let share = |(erases, blocks)| {
                    below += blocks;
                    (erases as f64, below as f64 / all)
                };
                worn.blocks().into_iter().map(share).collect()
            }),
        ),
    ]
}

const TOLD: &str = "
for $what, $field, $paper = most - least erases of a block | erase_spread | 0.29; \
  erases of garbage collection | gc_erases | 0.96; all bytes copied | gc_bytes_copied | 1.27; \
  hit ratio | hit_ratio | equal; items kept | objects_on_flash | equal; throughput | ops_per_s
 {what}, with leveling / without | {field}[didacache] / {field}[didacache-unleveled] | {paper}
for preset = didacache
 wear levelings | wear_levelings | 4
 erases to level / those of garbage collection | leveling_erases / gc_erases | 0.08
 bytes copied to level / those of garbage collection \
   | leveling_bytes_copied / (gc_bytes_copied - leveling_bytes_copied) | 0.47
 least erases, leveled | erase_min | 6
 most erases, leveled | erase_max | 11
for preset = didacache-unleveled
 least erases, unleveled | erase_min | 0
 most erases, unleveled | erase_max | 17
";
