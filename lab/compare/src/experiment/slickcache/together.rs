//! `SlickCache` (`SoCC` 2018), figures 12 and 13 and table 2: all mechanisms together, straight to the cache.

use super::cell::{Cell, FATCACHE, OPTANE_GC, OTHERS, PRESETS, SLICKCACHE, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, Popularity, USUAL_SETS};
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};

/// Deviations other than the usual one. The paper does not give its own.
const OTHER_NORMALS: [Popularity; 2] = [Popularity::Normal(0.025), Popularity::Normal(0.1)];
const DRAWN: [&str; 4] = [FATCACHE, SLICKCACHE, SLICKCACHE_GC, OPTANE_GC];

/// Returns shares of SETs, in percent.
fn shares(scale: Scale) -> Vec<f64> {
    scale.pick(
        vec![USUAL_SETS],
        vec![75.0, USUAL_SETS, 0.0],
        vec![100.0, 75.0, 50.0, 25.0, USUAL_SETS, 0.0],
    )
}

fn popularities(scale: Scale) -> &'static [Popularity] {
    scale.tiny_or(&[Popularity::Zipfian], &POPULARITIES)
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let mut cells = Vec::new();
    let presets = setting.scale.tiny_or(&DRAWN[1..3], &DRAWN);
    for (popularity, sets) in pairs(popularities(setting.scale), &shares(setting.scale)) {
        cells.extend(cells_of(setting, popularity, sets, presets)?);
    }
    if setting.scale != Scale::Tiny {
        cells.extend(cells_of(setting, Popularity::Zipfian, USUAL_SETS, &OTHERS)?);
        cells.extend(cells_of(setting, Popularity::Zipfian, 75.0, &OTHERS)?);
        for popularity in OTHER_NORMALS {
            cells.extend(cells_of(setting, popularity, 0.0, &PRESETS[..2])?);
        }
    }
    setting.told(&cells, Cell::row, TOLD)
}

fn cells_of(
    setting: &Setting<'_>,
    popularity: Popularity,
    sets: f64,
    presets: &[&'static str],
) -> Result<Vec<Cell>, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let plan = machine.loaded(setting, popularity, sets, machine.warm_up(sets))?;
    let cells = Cell::of_each(presets, &plan).into_iter();
    let cells = cells.map(|cell| {
        cell.with("popularity", popularity.name())
            .with("sets_percent", sets)
    });
    Ok(cells.collect())
}

/// A SET to 30 GETs are 3.2 % SETs.
const TOLD: &str = "
for popularity = hotspot; zipfian; normal
 for $title, $figure, $field = 12. Throughput | requests (1/s) | requests_per_s; \
   13. Mean latency | latency (us) | mean_us; Hit ratio | hit ratio | hit_ratio
  plot {title}, {popularity} | sets_percent: SETs (%) | {field}: {figure} \
    | preset = fatcache-async-fifo-drop; slickcache; slickcache-gc; optane-gc
for popularity, sets_percent, $plain, $gc = hotspot | 75 | about 1 | about 1; hotspot | 0 | about 1 | about 1; \
  zipfian | 75 | 0.934 | 1.084; zipfian | 0 | about 1 | about 1; normal | 75; normal | 0 | 0.77 | 0.77
 for $one, $other, $paper = slickcache | fatcache-async-fifo-drop | {plain}; \
   slickcache-gc | fatcache-async-fifo-drop | {gc}; optane-gc | slickcache-gc | 1.034 to 1.166
  for $of = {popularity}, {sets_percent} % SETs
   throughput, {one} / {other}, {of} | requests_per_s[{one}] / requests_per_s[{other}] | {paper}
   hit ratio, {one} - {other}, points, {of} | 100 * (hit_ratio[{one}] - hit_ratio[{other}])
   items kept, {one} / {other}, {of} | items_kept[{one}] / items_kept[{other}]
for popularity = zipfian
 for $other = fatcache-sync; fatcache-async
  for sets_percent, $sets = 75 | 75.0; 3.225806451612903 | 3.2
   for $of = zipfian, {sets} % SETs
    throughput, slickcache-gc / {other}, {of} | requests_per_s[slickcache-gc] / requests_per_s[{other}]
    hit ratio, slickcache-gc - {other}, points, {of} | 100 * (hit_ratio[slickcache-gc] - hit_ratio[{other}])
    items kept, slickcache-gc / {other}, {of} | items_kept[slickcache-gc] / items_kept[{other}]
for popularity = normal 0.025; normal 0.1
 for $one, $other = slickcache | fatcache-async-fifo-drop
  throughput, {one} / {other}, {popularity}, GET only | requests_per_s[{one}] / requests_per_s[{other}] | 0.77
  hit ratio, {one} - {other}, points, {popularity}, GET only | 100 * (hit_ratio[{one}] - hit_ratio[{other}])
  items kept, {one} / {other}, {popularity}, GET only | items_kept[{one}] / items_kept[{other}]
for popularity, $tier1, $tier2, $tier3, $reads2, $reads3 = hotspot | 0.952 | 0.043 | 0.005 | 2.41 | 8.22; \
  zipfian | 0.858 | 0.119 | 0.023 | 3.57 | 8.86; normal | 0.717 | 0.221 | 0.062 | 6.80 | 9.72
 for sets_percent, preset = 3.225806451612903 | slickcache-gc
  look-ups that Tier 1 answers, {preset}, {popularity} | tier1_share | {tier1}
  look-ups that Tier 2 answers, {preset}, {popularity} | tier2_share | {tier2}
  look-ups that Tier 3 answers, {preset}, {popularity} | tier3_share | {tier3}
  reads of a look-up that Tier 2 answers, {preset}, {popularity} | reads_a_tier2_lookup | {reads2}
  reads of a look-up that Tier 3 answers, {preset}, {popularity} | reads_a_tier3_lookup | {reads3}
  reads of the index for a miss, {preset}, {popularity} | index_reads_a_miss
  hit ratio, {preset}, {popularity} | hit_ratio
  items kept, {preset}, {popularity} | items_kept
  bits of memory an item, {preset}, {popularity} | dram_bits_an_item
";
