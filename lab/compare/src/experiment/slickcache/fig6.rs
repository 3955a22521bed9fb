//! `SlickCache` (`SoCC` 2018), figure 6: the capacity of Tier 1, as a share of the mappings that fit the flash.

use std::sync::Arc;

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, POPULARITIES, Popularity, USUAL_SETS, tiered};
use crate::compare::Plan;
use crate::experiment::pick::{among, figure, lines_by, measured, pairs, row_of};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
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
    let hot_percents = hot_percents(setting.scale);
    let cells = pairs(&POPULARITIES, &hot_percents).map(|(popularity, hot)| {
        let plan = machine.loaded(setting, popularity, USUAL_SETS, machine.loaded_keys())?;
        let plan = Plan {
            placement: Some(Arc::new(tiered(machine.cascade(hot)))),
            ..plan
        };
        Ok(Cell::new(SLICKCACHE_GC, plan)
            .with("popularity", popularity.name())
            .with("hot_percent", hot))
    });
    let cells: Vec<Cell> = cells.collect::<Result<_, ExperimentError>>()?;
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let figures = [
        ("6. Look-ups that Tier 1 answers", "tier1_share"),
        ("Throughput, 1/s", "requests_per_s"),
    ];
    let names = POPULARITIES.map(Popularity::name);
    let plot = |(title, field): (&str, &str)| {
        let x = Axis::linear("Tier 1").unit("% of the mappings that fit");
        let names = names.iter().map(|name| (name, name.as_str()));
        let lines = lines_by(rows, "popularity", names, ["hot_percent", field]);
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
            let rows = among(&rows, "hot_percent", hot);
            findings.extend(measured(
                row_of(&rows, SLICKCACHE_GC),
                &format!("Tier 1 {hot} %, {name}"),
                &[
                    ("look-ups that Tier 1 answers", None, "tier1_share"),
                    ("requests a second", None, "requests_per_s"),
                    ("hit ratio", None, "hit_ratio"),
                    ("items kept", None, "items_kept"),
                    ("bits of memory an item", None, "dram_bits_an_item"),
                ],
            ));
        }
    }
    findings
}
