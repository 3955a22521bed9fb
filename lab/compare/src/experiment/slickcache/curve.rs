//! No figure of `SlickCache`: the value of memory. Bits for an item against reads of flash for a hit and for a miss, and bytes
//! written.

use std::sync::Arc;

use systems::slickcache::cascade::CascadeConfig;
use workload::Workload;

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, Popularity, USUAL_HOT, USUAL_SETS, USUAL_THETA, tiered};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};

const THETAS: [f64; 4] = [0.8, 0.9, 0.99, 1.1];
/// Keys for each item that the cache has space for. Some of the requests miss.
const KEYS_AN_ITEM: f64 = 2.0;

fn thetas(scale: Scale) -> &'static [f64] {
    scale.tiny_or(&THETAS[2..3], &THETAS)
}

/// Returns pairs: bits of a filter for each mapping, and capacity of Tier 1 in percent of the mappings.
fn settings(scale: Scale) -> Vec<(u32, f64)> {
    scale.pick(
        vec![(6, 16.0)],
        settings_of(&[0, 4, 12], &[2.5, 10.0]),
        settings_of(&[0, 2, 4, 8, 12], &[2.5, 5.0, 10.0, 20.0]),
    )
}

/// Returns the usual setting, and settings that differ from it in one value.
fn settings_of(filters: &[u32], hot_percents: &[f64]) -> Vec<(u32, f64)> {
    let usual = (CascadeConfig::default().filter_bits, USUAL_HOT);
    let filters = filters.iter().map(|&bits| (bits, usual.1));
    let hot_percents = hot_percents.iter().map(|&hot| (usual.0, hot));
    std::iter::once(usual)
        .chain(filters)
        .chain(hot_percents)
        .collect()
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = (machine.items() as f64 * KEYS_AN_ITEM) as u64;
    let mut cells = Vec::new();
    let mut add = |part: String, workload: &Workload, front_items: Option<u64>| {
        for (bits, hot) in settings(setting.scale) {
            let plan = Plan {
                warmup: machine.items() * 3 / 2,
                front_items,
                placement: Some(Arc::new(tiered(CascadeConfig {
                    filter_bits: bits,
                    ..machine.cascade(hot)
                }))),
                ..machine.plan(workload.clone(), machine.items() / 2)
            };
            let cell = Cell::new(SLICKCACHE_GC, plan).part(part.as_str());
            cells.push(cell.with("filter_bits", bits).with("hot_percent", hot));
        }
    };
    for &theta in thetas(setting.scale) {
        let popularity = Popularity::Zipf(theta);
        let workload = popularity.workload(setting, keys, USUAL_SETS, true)?;
        add(popularity.name(), &workload, None);
    }
    if setting.scale != Scale::Tiny {
        let popularity = Popularity::Zipf(USUAL_THETA);
        let workload = popularity.workload(setting, keys, USUAL_SETS, true)?;
        let part = format!("{}, behind an item tier of 1 %", popularity.name());
        add(part, &workload, Some(machine.items() / 100));
    }
    setting.told(&cells, Cell::row, TOLD)
}

const TOLD: &str = "
for $title, $field = reads of the index for a hit | index_reads_a_hit; reads of the index for a miss | index_reads_a_miss; \
  bytes of the index written for a SET | index_bytes_written_a_set
 plot {title} | sorted dram_bits_an_item: memory (bits an item) | {field}: {title} | part
for part, filter_bits, hot_percent
 for $of = {part}, filters of {filter_bits} bits, Tier 1 {hot_percent} %
  bits of memory an item, {of} | dram_bits_an_item
  reads of the index for a hit, {of} | index_reads_a_hit
  reads of the index for a miss, {of} | index_reads_a_miss
  bytes of the index written for a SET, {of} | index_bytes_written_a_set
  hit ratio, {of} | hit_ratio
  items kept, {of} | items_kept
";
