//! `SlickCache` (`SoCC` 2018), figure 4: in front of a database, the cache 6 to 12 % of the data set.

use std::sync::Arc;

use super::cell::{
    Cell, FATCACHE, OTHERS, PRESETS, SLICKCACHE, SLICKCACHE_GC, plots_of_each, requests_axis, speed,
};
use super::machine::{Machine, POPULARITIES, Popularity, USUAL_SETS, tiered};
use crate::compare::Plan;
use crate::experiment::pick::{among, measured, over, row_of};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::Row;

/// In one place of the paper Tier 1 has a tenth of the mappings, in another a tenth of the workload's mappings. This setting is
/// the second: five sixths of the mappings in a cache of 12 %.
const WIDE_GC: &str = "slickcache-gc, tier 1 of 10 % of the data set";
const WIDE_PERCENT: f64 = 10.0;
/// Size for which the paper gives numbers, in percent of the data set.
const COMPARED: f64 = 12.0;
/// Size at which Fatcache has the paper's hit ratio, since as many of the keys fit.
const ALIKE: f64 = 16.0;

fn percents(scale: Scale, popularity: Popularity) -> Vec<f64> {
    let mut percents = match scale {
        Scale::Tiny => vec![COMPARED],
        Scale::Small => vec![6.0, COMPARED],
        Scale::Paper => vec![6.0, 8.0, 10.0, COMPARED],
    };
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
                let plan = Plan {
                    placement: Some(Arc::new(tiered(Machine::of(setting.scale).cascade(hot)))),
                    ..plan
                };
                cells_of.push(Cell::new(SLICKCACHE_GC, plan).called(WIDE_GC));
            }
            cells.extend(cells_of.into_iter().map(|cell| {
                cell.with("popularity", popularity.name())
                    .with("cache_percent", percent)
            }));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
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
    let (warmup, requests) = match setting.scale {
        Scale::Tiny => (machine.items(), machine.items() / 4),
        Scale::Small => (3 * machine.items(), machine.items() / 2),
        Scale::Paper => (4 * machine.items(), machine.items()),
    };
    Ok(Plan {
        warmup,
        ..machine.before_database(workload, requests)
    })
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let figures = [
        ("4. Throughput", requests_axis(), "requests_per_s"),
        ("Hit ratio", Axis::linear("hit ratio"), "hit_ratio"),
    ];
    let x = Axis::linear("cache size").unit("% of the data set");
    plots_of_each(rows, &PRESETS, (&x, "cache_percent"), &figures)
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (popularity, paper) in POPULARITIES.into_iter().zip([Some("1.85"), None, None]) {
        let name = popularity.name();
        let rows = among(
            &among(rows, "popularity", name.as_str()),
            "cache_percent",
            COMPARED,
        );
        let of = format!("{name}, {COMPARED} %");
        findings.extend(speed(
            &rows,
            [SLICKCACHE, FATCACHE],
            &of,
            Some("above 0.99"),
        ));
        findings.extend(speed(&rows, [SLICKCACHE_GC, FATCACHE], &of, paper));
        findings.extend(speed(&rows, [WIDE_GC, FATCACHE], &of, paper));
        for other in OTHERS {
            findings.extend(speed(&rows, [SLICKCACHE_GC, other], &of, None));
        }
        for (preset, paper) in [
            (FATCACHE, "0.678"),
            (SLICKCACHE_GC, "0.902"),
            (WIDE_GC, "0.902"),
        ] {
            let paper = Some(paper).filter(|_| popularity == Popularity::Hotspot);
            let measure = ("hit ratio", paper, "hit_ratio");
            let of = format!("{preset}, {of}");
            findings.extend(measured(row_of(&rows, preset), &of, &[measure]));
        }
        findings.push(Finding::new(
            format!("memory of the index, {SLICKCACHE} / {FATCACHE}, {of}"),
            Some("0.10"),
            over(&rows, [SLICKCACHE, FATCACHE], "index_dram_bytes"),
        ));
    }
    let rows = among(rows, "cache_percent", ALIKE);
    for preset in [FATCACHE, SLICKCACHE_GC, WIDE_GC] {
        let of = format!("{preset}, hotspot, {ALIKE} %");
        let measure = ("hit ratio", None, "hit_ratio");
        findings.extend(measured(row_of(&rows, preset), &of, &[measure]));
    }
    findings
}
