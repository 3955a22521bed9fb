//! `SlickCache` (`SoCC` 2018), figure 4: in front of a database, the cache 6 to 12 % of the data set.

use super::cell::{Cell, OTHERS, PRESETS, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, Popularity, USUAL_SETS};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};

/// In one place of the paper Tier 1 has a tenth of the mappings, in another a tenth of the workload's mappings. This setting is
/// the second: five sixths of the mappings in a cache of 12 %.
const WIDE_GC: &str = "slickcache-gc, tier 1 of 10 % of the data set";
const WIDE_PERCENT: f64 = 10.0;
/// Size for which the paper gives numbers, in percent of the data set.
const COMPARED: f64 = 12.0;
/// Size at which Fatcache has the paper's hit ratio, since as many of the keys fit.
const ALIKE: f64 = 16.0;

fn percents(scale: Scale, popularity: Popularity) -> Vec<f64> {
    let mut percents = scale.pick(
        vec![COMPARED],
        vec![6.0, COMPARED],
        vec![6.0, 8.0, 10.0, COMPARED],
    );
    if popularity == Popularity::Hotspot && scale != Scale::Tiny {
        percents.push(ALIKE);
    }
    percents
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let is_tiny = setting.scale == Scale::Tiny;
    let mut cells = Vec::new();
    for popularity in POPULARITIES.into_iter().take(if is_tiny { 1 } else { 3 }) {
        for percent in percents(setting.scale, popularity) {
            let plan = plan(setting, popularity, percent)?;
            let mut presets = PRESETS.to_vec();
            if percent == COMPARED && !is_tiny {
                presets.extend(OTHERS);
            }
            let mut cells_of = Cell::of_each(&presets, &plan);
            if percent >= COMPARED && !is_tiny {
                let hot = 100.0 * WIDE_PERCENT / percent;
                let cascade = Machine::of(setting.scale).cascade(hot);
                let cell = Cell::new(SLICKCACHE_GC, plan).cascade(cascade);
                cells_of.push(cell.called(WIDE_GC));
            }
            cells.extend(cells_of.into_iter().map(|cell| {
                cell.with("popularity", popularity.name())
                    .with("cache_percent", percent)
            }));
        }
    }
    setting.told(&cells, Cell::row, TOLD)
}

/// Returns the plan for a cache of `percent` percent of the data set. The data set varies; the cache is the same.
fn plan(
    setting: &Setting<'_>,
    popularity: Popularity,
    percent: f64,
) -> Result<Plan, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let workload =
        popularity.workload(setting, machine.data_set_keys(percent), USUAL_SETS, true)?;
    // The paper measures 100 million requests after 400 million others, on a cache of 60 to 120 million items.
    let (warmup, requests) = setting.scale.pick(
        (machine.items(), machine.items() / 4),
        (3 * machine.items(), machine.items() / 2),
        (4 * machine.items(), machine.items()),
    );
    Ok(Plan {
        warmup,
        ..machine.before_database(workload, requests)
    })
}

const TOLD: &str = "
for popularity, $gain, $fatcache, $gc = hotspot | 1.85 | 0.678 | 0.902; zipfian; normal
 plot 4. Throughput, {popularity} | cache_percent: cache size (% of the data set) | requests_per_s: requests (1/s) \
   | preset = fatcache-async-fifo-drop; slickcache; slickcache-gc
 plot Hit ratio, {popularity} | cache_percent: cache size (% of the data set) | hit_ratio: hit ratio \
   | preset = fatcache-async-fifo-drop; slickcache; slickcache-gc
 for cache_percent = 12
  for $one, $other, $paper = slickcache | fatcache-async-fifo-drop | above 0.99; \
    slickcache-gc | fatcache-async-fifo-drop | {gain}; \
    slickcache-gc, tier 1 of 10 % of the data set | fatcache-async-fifo-drop | {gain}; \
    slickcache-gc | fatcache-sync; slickcache-gc | fatcache-async
   throughput, {one} / {other}, {popularity}, 12 % | requests_per_s[{one}] / requests_per_s[{other}] | {paper}
   hit ratio, {one} - {other}, points, {popularity}, 12 % | 100 * (hit_ratio[{one}] - hit_ratio[{other}])
   items kept, {one} / {other}, {popularity}, 12 % | items_kept[{one}] / items_kept[{other}]
  for preset, $paper = fatcache-async-fifo-drop | {fatcache}; slickcache-gc | {gc}; \
    slickcache-gc, tier 1 of 10 % of the data set | {gc}
   hit ratio, {preset}, {popularity}, 12 % | hit_ratio | {paper}
  memory of the index, slickcache / fatcache-async-fifo-drop, {popularity}, 12 % \
    | index_dram_bytes[slickcache] / index_dram_bytes[fatcache-async-fifo-drop] | 0.10
for cache_percent = 16
 for preset = fatcache-async-fifo-drop; slickcache-gc; slickcache-gc, tier 1 of 10 % of the data set
  hit ratio, {preset}, hotspot, 16 % | hit_ratio
";
