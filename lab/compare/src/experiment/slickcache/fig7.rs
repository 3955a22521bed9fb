//! `SlickCache` (`SoCC` 2018), figure 7: which mappings leave Tier 1.

use systems::slickcache::cascade::{CascadeConfig, Replacement};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, PAPERS_HOT, Popularity, USUAL_SETS};
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Setting};

const REPLACEMENTS: [(&str, Replacement); 3] = [
    ("lru", Replacement::Lru),
    ("clock", Replacement::Clock),
    ("fifo", Replacement::Fifo),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let hot_percents = setting.scale.pick(
        vec![PAPERS_HOT],
        vec![5.0, PAPERS_HOT],
        vec![4.0, 6.0, 8.0, PAPERS_HOT, 15.0, 20.0],
    );
    let cells = pairs(&REPLACEMENTS, &hot_percents).map(|((name, replacement), hot)| {
        let keys = machine.loaded_keys();
        let plan = machine.loaded(setting, Popularity::Zipfian, USUAL_SETS, keys)?;
        let cascade = CascadeConfig {
            replacement,
            ..machine.cascade(hot)
        };
        Ok(Cell::new(SLICKCACHE_GC, plan)
            .cascade(cascade)
            .with("replacement", name)
            .with("hot_percent", hot))
    });
    setting.told_each(cells, Cell::row, TOLD)
}

const TOLD: &str = "
for hot_percent = 10
 for replacement, $paper = lru | the best; clock | nearly that of LRU; fifo | the worst
  look-ups that Tier 1 answers, {replacement} | tier1_share | {paper}
  reads of the index for a hit, {replacement} | index_reads_a_hit
  requests a second, {replacement} | requests_per_s
  hit ratio, {replacement} | hit_ratio
  items kept, {replacement} | items_kept
";
