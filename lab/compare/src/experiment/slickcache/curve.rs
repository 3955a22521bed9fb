//! No figure of `SlickCache`: the value of memory. Bits for an item against reads of flash for a hit and for a miss, and bytes
//! written.

use std::sync::Arc;

use systems::slickcache::cascade::CascadeConfig;
use workload::Workload;

use super::cell::{Cell, READS_FOR_A_HIT, READS_FOR_A_MISS, SLICKCACHE_GC, WRITTEN_FOR_A_SET};
use super::machine::{Machine, Popularity, USUAL_HOT, USUAL_SETS, USUAL_THETA, tiered};
use crate::compare::Plan;
use crate::experiment::pick::{Measure, measured};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::{PART, Row};

const THETAS: [f64; 4] = [0.8, 0.9, 0.99, 1.1];
/// Keys for each item that the cache has space for. Some of the requests miss.
const KEYS_AN_ITEM: f64 = 2.0;

fn thetas(scale: Scale) -> &'static [f64] {
    match scale {
        Scale::Tiny => &THETAS[2..3],
        Scale::Small | Scale::Paper => &THETAS,
    }
}

/// Returns pairs: bits of a filter for each mapping, and capacity of Tier 1 in percent of the mappings.
fn settings(scale: Scale) -> Vec<(u32, f64)> {
    match scale {
        Scale::Tiny => vec![(6, 16.0)],
        Scale::Small => settings_of(&[0, 4, 12], &[2.5, 10.0]),
        Scale::Paper => settings_of(&[0, 2, 4, 8, 12], &[2.5, 5.0, 10.0, 20.0]),
    }
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
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

fn parts(rows: &[Row]) -> Vec<&str> {
    let mut parts: Vec<&str> = rows.iter().filter_map(|row| row.text(PART)).collect();
    parts.dedup();
    parts
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let plot = |(title, _, field): Measure<'static>| {
        let line = |part: &str| {
            let of_part = rows.iter().filter(|row| row.text(PART) == Some(part));
            let point = |row: &Row| Some((row.number("dram_bits_an_item")?, row.number(field)?));
            let mut points: Vec<(f64, f64)> = of_part.filter_map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Line::new(part, points)
        };
        let x = Axis::linear("memory").unit("bits an item");
        let lines = parts(rows).into_iter().map(line).collect();
        Plot::new(title, x, Axis::linear(title), lines)
    };
    [READS_FOR_A_HIT, READS_FOR_A_MISS, WRITTEN_FOR_A_SET]
        .map(plot)
        .into()
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows {
        let of = format!(
            "{}, filters of {} bits, Tier 1 {} %",
            row.text(PART).unwrap_or_default(),
            row.number("filter_bits").unwrap_or_default(),
            row.number("hot_percent").unwrap_or_default(),
        );
        findings.extend(measured(
            Some(row),
            &of,
            &[
                ("bits of memory an item", None, "dram_bits_an_item"),
                READS_FOR_A_HIT,
                READS_FOR_A_MISS,
                WRITTEN_FOR_A_SET,
                ("hit ratio", None, "hit_ratio"),
                ("items kept", None, "items_kept"),
            ],
        ));
    }
    findings
}
