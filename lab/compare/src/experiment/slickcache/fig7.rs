//! `SlickCache` (`SoCC` 2018), figure 7: which mappings leave Tier 1.

use std::sync::Arc;

use systems::slickcache::cascade::{CascadeConfig, Replacement};

use super::cell::{Cell, READS_FOR_A_HIT, SLICKCACHE_GC};
use super::machine::{Machine, PAPERS_HOT, Popularity, USUAL_SETS, tiered};
use crate::compare::Plan;
use crate::experiment::pick::{among, measured, pairs, row_of};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::Row;

const REPLACEMENTS: [(&str, Replacement, &str); 3] = [
    ("lru", Replacement::Lru, "the best"),
    ("clock", Replacement::Clock, "nearly that of LRU"),
    ("fifo", Replacement::Fifo, "the worst"),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let hot_percents = match setting.scale {
        Scale::Tiny => vec![PAPERS_HOT],
        Scale::Small => vec![5.0, PAPERS_HOT],
        Scale::Paper => vec![4.0, 6.0, 8.0, PAPERS_HOT, 15.0, 20.0],
    };
    let cells = pairs(&REPLACEMENTS, &hot_percents).map(|((name, replacement, _), hot)| {
        let keys = machine.loaded_keys();
        let plan = machine.loaded(setting, Popularity::Zipfian, USUAL_SETS, keys)?;
        let plan = Plan {
            placement: Some(Arc::new(tiered(CascadeConfig {
                replacement,
                ..machine.cascade(hot)
            }))),
            ..plan
        };
        Ok(Cell::new(SLICKCACHE_GC, plan)
            .with("replacement", name)
            .with("hot_percent", hot))
    });
    let cells: Vec<Cell> = cells.collect::<Result<_, ExperimentError>>()?;
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = among(rows, "hot_percent", PAPERS_HOT);
    for (name, _, paper) in REPLACEMENTS {
        let rows = among(&rows, "replacement", name);
        findings.extend(measured(
            row_of(&rows, SLICKCACHE_GC),
            name,
            &[
                ("look-ups that Tier 1 answers", Some(paper), "tier1_share"),
                READS_FOR_A_HIT,
                ("requests a second", None, "requests_per_s"),
                ("hit ratio", None, "hit_ratio"),
                ("items kept", None, "items_kept"),
            ],
        ));
    }
    findings
}
