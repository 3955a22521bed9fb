//! `SlickCache` (`SoCC` 2018), figure 5: a cache as large as a memory can index.

use super::cell::{Cell, FATCACHE, SLICKCACHE, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, Popularity, USUAL_SETS};
use crate::compare::Plan;
use crate::experiment::pick::{among, over, pairs};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

/// Memory in the paper, in MiB, and the part of the data set that Fatcache can index with it, in percent: an entry takes 44
/// bytes, and there are a billion keys.
const MEMORIES: [(u32, f64); 4] = [(512, 1.22), (1024, 2.44), (2048, 4.88), (4096, 9.76)];
/// For tests: with less memory there is no cache at their scale.
const TINY: [(u32, f64); 1] = [(20_480, 48.8)];
/// Largest cache, in percent of the data set.
const LARGEST: f64 = 97.6;
/// Growth of a cache that has a tenth of its mappings in memory.
const TIMES: f64 = 10.0;
/// Slabs in memory for each server: few, since the smallest cache has 50 slabs at scale `small`, 100 at `paper`.
const BUFFERS_A_SERVER: u64 = 2;
/// Part in which the cache is ten times as large.
const OF_THE_PAPER: &str = "10 times the flash";
/// Part in which the cache is larger by the factor by which its index is smaller for each item, from the memory of both
/// indexes.
const OF_THIS_ENGINE: &str = "the same bytes of memory";
/// Part of Fatcache, with the paper's size of the cache.
const BASE: &str = "what memory indexes";

fn memories(scale: Scale) -> &'static [(u32, f64)] {
    scale.pick(&TINY, &MEMORIES[2..], &MEMORIES)
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let popularities = setting.scale.tiny_or(&POPULARITIES[..1], &POPULARITIES[..]);
    let memories = memories(setting.scale);
    let mut cells = Vec::new();
    for (popularity, (mib, percent)) in pairs(popularities, memories) {
        let cell = |preset, percent| cell(setting, preset, popularity, mib, percent);
        cells.push(cell(FATCACHE, percent)?.part(BASE));
        for preset in [SLICKCACHE, SLICKCACHE_GC] {
            cells.push(cell(preset, (percent * TIMES).min(LARGEST))?.part(OF_THE_PAPER));
        }
    }
    let mut rows = setting.cells.run(&cells, Cell::row)?;
    let mut cells = Vec::new();
    for (popularity, (mib, percent)) in pairs(popularities, memories) {
        let of = of(&rows, popularity, mib);
        let times = over(&of, [FATCACHE, SLICKCACHE_GC], "dram_bits_an_item");
        let percent = (percent * times.unwrap_or(1.0).clamp(1.0, TIMES)).min(LARGEST);
        let cell = cell(setting, SLICKCACHE_GC, popularity, mib, percent)?;
        cells.push(cell.part(OF_THIS_ENGINE));
    }
    rows.extend(setting.cells.run(&cells, Cell::row)?);
    Ok(Outcome::told(rows, TOLD))
}

/// Returns a cell with a cache of `percent` percent of the data set.
fn cell(
    setting: &Setting<'_>,
    preset: &'static str,
    popularity: Popularity,
    mib: u32,
    percent: f64,
) -> Result<Cell, ExperimentError> {
    let all = Machine::of(setting.scale);
    let keys = all.data_set_keys(LARGEST);
    let workload = popularity.workload(setting, keys, USUAL_SETS, true)?;
    let bytes = all.cache_bytes as f64 * percent / LARGEST;
    let machine = all.with_cache(bytes as u64);
    let plan = machine.before_database(workload, keys / 2);
    let plan = Plan {
        load: true,
        warmup: keys,
        device: all.drive(),
        memory_bytes: all.plan(plan.workload.clone(), 0).memory_bytes,
        buffer_bytes: Some(BUFFERS_A_SERVER * u64::from(all.servers) * all.slab_bytes()),
        ..plan
    };
    let cell = Cell::new(preset, plan).with("popularity", popularity.name());
    Ok(cell.with("memory_mib", mib).with("cache_percent", percent))
}

fn of(rows: &[Row], popularity: Popularity, mib: u32) -> Vec<Row> {
    let rows = among(rows, "popularity", popularity.name());
    among(&rows, "memory_mib", mib)
}

const TOLD: &str = "
for popularity, memory_mib
 for $part, $preset = 10 times the flash | slickcache; 10 times the flash | slickcache-gc; \
   the same bytes of memory | slickcache-gc
  for $of = {preset} / fatcache-async-fifo-drop, {popularity}, {memory_mib} MiB, {part}
   throughput, {of} | requests_per_s[{preset}; part={part}] / requests_per_s[fatcache-async-fifo-drop] | up to 125
   hit ratio, {preset} - fatcache-async-fifo-drop, points, {popularity}, {memory_mib} MiB, {part} \
     | 100 * (hit_ratio[{preset}; part={part}] - hit_ratio[fatcache-async-fifo-drop])
   items kept, {of} | items_kept[{preset}; part={part}] / items_kept[fatcache-async-fifo-drop]
   hit ratio, {of} | hit_ratio[{preset}; part={part}] / hit_ratio[fatcache-async-fifo-drop] | up to 8.2
   memory of the index, {of} | index_dram_bytes[{preset}; part={part}] / index_dram_bytes[fatcache-async-fifo-drop] | 1
   hit ratio, {preset}, {popularity}, {memory_mib} MiB, {part} | hit_ratio[{preset}; part={part}]
";
