//! `SlickCache` (`SoCC` 2018), figure 7: which mappings leave Tier 1.

use slickcache::cascade::{CascadeConfig, Replacement};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, PAPERS_HOT, Popularity, USUAL_SETS};
use crate::compare::Plan;
use crate::experiment::pick::{among, figure};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::Row;

const REPLACEMENTS: [(&str, Replacement, &str); 3] = [
    ("lru", Replacement::Lru, "the best"),
    ("clock", Replacement::Clock, "nearly that of LRU"),
    ("fifo", Replacement::Fifo, "the worst"),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.loaded_keys();
    let hot_percents = match setting.scale {
        Scale::Tiny => vec![PAPERS_HOT],
        Scale::Small => vec![5.0, PAPERS_HOT],
        Scale::Paper => vec![4.0, 6.0, 8.0, PAPERS_HOT, 15.0, 20.0],
    };
    let mut cells = Vec::new();
    for (name, replacement, _) in REPLACEMENTS {
        for &hot in &hot_percents {
            let workload = Popularity::Zipfian.workload(setting, keys, USUAL_SETS, false)?;
            let plan = Plan {
                load: true,
                warmup: keys,
                cascade: Some(CascadeConfig {
                    replacement,
                    ..machine.cascade(hot)
                }),
                ..machine.plan(workload, keys / 2)
            };
            let cell = Cell::new(SLICKCACHE_GC, plan).with("replacement", name);
            cells.push(cell.with("hot_percent", hot));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = among(rows, "hot_percent", PAPERS_HOT);
    for (name, _, paper) in REPLACEMENTS {
        let rows = among(&rows, "replacement", name);
        for (what, paper, field) in [
            ("look-ups that Tier 1 answers", Some(paper), "tier1_share"),
            ("reads of the index for a hit", None, "index_reads_a_hit"),
            ("requests a second", None, "requests_per_s"),
            ("hit ratio", None, "hit_ratio"),
            ("items kept", None, "items_kept"),
        ] {
            findings.push(Finding::new(
                format!("{what}, {name}"),
                paper,
                figure(&rows, SLICKCACHE_GC, field),
            ));
        }
    }
    findings
}
