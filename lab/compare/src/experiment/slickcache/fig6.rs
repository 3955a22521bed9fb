//! `SlickCache` (`SoCC` 2018), figure 6: the capacity of Tier 1, as a share of the mappings that fit the flash.

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, USUAL_SETS};
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};

fn hot_percents(scale: Scale) -> Vec<f64> {
    scale.pick(
        vec![10.0],
        vec![4.0, 10.0, 16.0, 20.0],
        vec![4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0],
    )
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let hot_percents = hot_percents(setting.scale);
    let cells = pairs(&POPULARITIES, &hot_percents).map(|(popularity, hot)| {
        let plan = machine.loaded(setting, popularity, USUAL_SETS, machine.loaded_keys())?;
        Ok(Cell::new(SLICKCACHE_GC, plan)
            .cascade(machine.cascade(hot))
            .with("popularity", popularity.name())
            .with("hot_percent", hot))
    });
    setting.told_each(cells, Cell::row, TOLD)
}

const TOLD: &str = "
for $title, $field = 6. Look-ups that Tier 1 answers | tier1_share; Throughput, 1/s | requests_per_s
 plot {title} | hot_percent: Tier 1 (% of the mappings that fit) | {field}: {title} | popularity = hotspot; zipfian; normal
for popularity, $paper = hotspot | 46.1; zipfian | 42; normal | 13.5
 look-ups that Tier 1 answers, 10 % - 4 %, points, {popularity} \
   | 100 * (tier1_share[hot_percent=10] - tier1_share[hot_percent=4]) | {paper}
 the same, 20 % - 10 %, points, {popularity} \
   | 100 * (tier1_share[hot_percent=20] - tier1_share[hot_percent=10]) | 3.4 to 10.5
 for hot_percent = 4; 10; 16; 20
  look-ups that Tier 1 answers, Tier 1 {hot_percent} %, {popularity} | tier1_share
  requests a second, Tier 1 {hot_percent} %, {popularity} | requests_per_s
  hit ratio, Tier 1 {hot_percent} %, {popularity} | hit_ratio
  items kept, Tier 1 {hot_percent} %, {popularity} | items_kept
  bits of memory an item, Tier 1 {hot_percent} %, {popularity} | dram_bits_an_item
";
