//! `SlickCache` (`SoCC` 2018), figure 14: instead of SlickCache's index, an index in memory that is swapped.

use super::cell::{Cell, FATCACHE, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, Popularity, optane};
use crate::compare::{DeviceChoice, Swap};
use crate::experiment::pick::{among, figure, pairs};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

const ON_FLASH: &str = "fatcache, swapped to flash";
const ON_OPTANE: &str = "fatcache, swapped to optane";
const DRAWN: [&str; 4] = [FATCACHE, SLICKCACHE_GC, ON_FLASH, ON_OPTANE];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let popularities = setting
        .scale
        .tiny_or(&POPULARITIES[1..2], &POPULARITIES[..]);
    let cells = pairs(popularities, &[FATCACHE, SLICKCACHE_GC])
        .map(|(popularity, preset)| cell(setting, popularity, preset));
    let cells: Vec<Cell> = cells.collect::<Result<_, ExperimentError>>()?;
    let mut rows = setting.cells.run(&cells, Cell::row)?;
    let mut cells = Vec::new();
    for &popularity in popularities {
        let of = among(&rows, "popularity", popularity.name());
        let bytes = |preset| figure(&of, preset, "index_dram_bytes").unwrap_or_default() as u64;
        for (name, drive) in drives(setting.scale) {
            let mut cell = cell(setting, popularity, FATCACHE)?.called(name);
            cell.plan.swap = Some(Swap {
                index_bytes: bytes(FATCACHE),
                memory_bytes: bytes(SLICKCACHE_GC),
                drive,
            });
            cells.push(cell);
        }
    }
    rows.extend(setting.cells.run(&cells, Cell::row)?);
    let plots = vec![plot(&rows)];
    Ok(Outcome {
        plots,
        ..Outcome::told(rows, TOLD)
    })
}

/// Returns the swap drives, which hold nothing else. The first is like the cache's drive.
fn drives(scale: Scale) -> [(&'static str, DeviceChoice); 2] {
    let machine = Machine::of(scale);
    let optane = DeviceChoice::Modelled {
        model: optane(),
        bytes: machine.cache_bytes,
    };
    [(ON_FLASH, machine.drive()), (ON_OPTANE, optane)]
}

fn cell(
    setting: &Setting<'_>,
    popularity: Popularity,
    preset: &'static str,
) -> Result<Cell, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // Short enough that most loaded items still exist: the memory of a full index is compared.
    let warmup = machine.loaded_keys();
    let plan = machine.loaded(setting, popularity, 50.0, warmup)?;
    Ok(Cell::new(preset, plan).with("popularity", popularity.name()))
}

fn plot(rows: &[Row]) -> Plot {
    let names = POPULARITIES.map(Popularity::name);
    let line = |&preset: &&str| {
        let point = |(at, name): (usize, &String)| {
            let rows = among(rows, "popularity", name.as_str());
            Some((at as f64, figure(&rows, preset, "requests_per_s")?))
        };
        Line::new(preset, names.iter().enumerate().filter_map(point).collect())
    };
    Plot::new(
        "14. Throughput",
        Axis::named("popularity", names.to_vec()),
        Axis::linear("requests").unit("1/s"),
        DRAWN.iter().map(line).collect(),
    )
}

const TOLD: &str = "
for popularity = hotspot; zipfian; normal
 for $one, $other, $paper = fatcache, swapped to flash | fatcache-async-fifo-drop | 0.12 to 0.14; \
   fatcache, swapped to optane | fatcache-async-fifo-drop | 0.40 to 0.42; \
   fatcache, swapped to optane | slickcache-gc | 0.39 to 0.48; slickcache-gc | fatcache-async-fifo-drop | about 1
  throughput, {one} / {other}, {popularity} | requests_per_s[{one}] / requests_per_s[{other}] | {paper}
  hit ratio, {one} - {other}, points, {popularity} | 100 * (hit_ratio[{one}] - hit_ratio[{other}])
  items kept, {one} / {other}, {popularity} | items_kept[{one}] / items_kept[{other}]
";
