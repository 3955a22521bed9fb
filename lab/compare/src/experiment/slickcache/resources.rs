//! `SlickCache` (`SoCC` 2018), section 5.7 and table 3: memory, flash and processors.

use super::cell::{Cell, PRESETS};
use super::machine::{Machine, Popularity};
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::Row;

/// Requests, and their share of SETs in percent.
const ASKED: [(&str, f64); 3] = [("SET", 100.0), ("GET", 0.0), ("SET/GET 1:1", 50.0)];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let mut cells = Vec::new();
    for (asked, sets) in ASKED {
        let warmup = setting
            .scale
            .tiny_or(machine.loaded_keys() / 4, machine.warm_up(sets));
        let plan = machine.loaded(setting, Popularity::Zipfian, sets, warmup)?;
        let cells_of = Cell::of_each(&PRESETS, &plan).into_iter();
        cells.extend(cells_of.map(|cell| cell.with("asked", asked)));
    }
    setting.told(&cells, row, TOLD)
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

/// An item has 300 bytes.
const TOLD: &str = "
for asked, $fatcache, $slickcache, $gc = SET | 0.455 | 0.505 | 0.525; GET | 0.219 | 0.227 | 0.231; \
  SET/GET 1:1 | 0.387 | 0.408 | 0.425
 for preset, $paper = fatcache-async-fifo-drop | {fatcache}; slickcache | {slickcache}; slickcache-gc | {gc}
  share of the processors busy, {preset}, {asked} | cpu_busy | {paper}
  processor time an operation, in us, {preset}, {asked} | cpu_us_an_op
  requests a second, {preset}, {asked} | requests_per_s
  hit ratio, {preset}, {asked} | hit_ratio
  items kept, {preset}, {asked} | items_kept
 for preset = slickcache; slickcache-gc
  flash of the index, share of the cache, {preset}, {asked} | index_flash_share | 0.06
  bytes of the index written for a SET, {preset}, {asked} | index_bytes_written_a_set
  bits of memory an item, {preset}, {asked} | dram_bits_an_item | 35
 memory of the index an item, slickcache / fatcache-async-fifo-drop, {asked} \
   | dram_bits_an_item[slickcache] / dram_bits_an_item[fatcache-async-fifo-drop] | 0.10
 part of the CLWA that is the index, slickcache, {asked} | index_bytes_written_a_set[slickcache] / 300
";
