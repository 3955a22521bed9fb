//! `SlickCache` (`SoCC` 2018), figure 6: the capacity of Tier 1, as a share of the mappings that fit the flash.

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, USUAL_SETS};
use crate::compare::Plan;
use crate::experiment::pick::{among, figure};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

fn hot_percents(scale: Scale) -> Vec<f64> {
    match scale {
        Scale::Tiny => vec![10.0],
        Scale::Small => vec![4.0, 10.0, 16.0, 20.0],
        Scale::Paper => vec![4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0],
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.loaded_keys();
    let mut cells = Vec::new();
    for popularity in POPULARITIES {
        for hot in hot_percents(setting.scale) {
            let workload = popularity.workload(setting, keys, USUAL_SETS, false)?;
            let plan = Plan {
                load: true,
                warmup: keys,
                cascade: Some(machine.cascade(hot)),
                ..machine.plan(workload, keys / 2)
            };
            let cell = Cell::new(SLICKCACHE_GC, plan);
            cells.push(
                cell.with("popularity", popularity.name())
                    .with("hot_percent", hot),
            );
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let figures = [
        ("6. Look-ups that Tier 1 answers", "tier1_share"),
        ("Throughput, 1/s", "requests_per_s"),
    ];
    let plot = |(title, field): (&str, &str)| {
        let line = |popularity: super::machine::Popularity| {
            let rows = among(rows, "popularity", popularity.name());
            let point = |row: &Row| Some((row.number("hot_percent")?, row.number(field)?));
            Line::new(popularity.name(), rows.iter().filter_map(point).collect())
        };
        let x = Axis::linear("Tier 1").unit("% of the mappings that fit");
        let lines = POPULARITIES.into_iter().map(line).collect();
        Plot::new(title, x, Axis::linear(title), lines)
    };
    figures.map(plot).into()
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (popularity, paper) in POPULARITIES.into_iter().zip(["46.1", "42", "13.5"]) {
        let name = popularity.name();
        let rows = among(rows, "popularity", name.as_str());
        let of = |hot: f64, field| figure(&among(&rows, "hot_percent", hot), SLICKCACHE_GC, field);
        let gain = |from, to| Some(100.0 * (of(to, "tier1_share")? - of(from, "tier1_share")?));
        findings.push(Finding::new(
            format!("look-ups that Tier 1 answers, 10 % - 4 %, points, {name}"),
            Some(paper),
            gain(4.0, 10.0),
        ));
        findings.push(Finding::new(
            format!("the same, 20 % - 10 %, points, {name}"),
            Some("3.4 to 10.5"),
            gain(10.0, 20.0),
        ));
        for hot in [4.0, 10.0, 16.0, 20.0] {
            for (what, field) in [
                ("look-ups that Tier 1 answers", "tier1_share"),
                ("requests a second", "requests_per_s"),
                ("hit ratio", "hit_ratio"),
                ("items kept", "items_kept"),
                ("bits of memory an item", "dram_bits_an_item"),
            ] {
                findings.push(Finding::new(
                    format!("{what}, Tier 1 {hot} %, {name}"),
                    None,
                    of(hot, field),
                ));
            }
        }
    }
    findings
}
