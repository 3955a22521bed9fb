//! `SlickCache` (`SoCC` 2018), figure 11: the lists of Tier 3, and the buckets into which they are compacted.

use std::sync::Arc;

use systems::slickcache::cascade::{CascadeConfig, Sizes};

use super::cell::{
    Cell, FLASH_OF_INDEX, READS_FOR_A_HIT, SLICKCACHE_GC, WRITTEN_FOR_A_SET, requests_axis,
};
use super::machine::{Machine, PAPERS_HOT, Popularity, tiered};
use crate::compare::Plan;
use crate::experiment::pick::{lines_by, measured, pairs};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};

/// Returns the numbers of blocks of a list when it is compacted, and the numbers of buckets for each list.
fn shapes(scale: Scale) -> (Vec<u32>, Vec<u32>) {
    match scale {
        Scale::Tiny => (vec![16], vec![32]),
        Scale::Small => (vec![4, 16, 64, 256], vec![32, 128]),
        Scale::Paper => (vec![4, 16, 64, 256, 1024], vec![128, 256, 512, 1024]),
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let (lengths, ratios) = shapes(setting.scale);
    let cells = pairs(&ratios, &lengths).map(|(ratio, length)| {
        let usual = machine.cascade(PAPERS_HOT);
        let cascade = CascadeConfig {
            sizes: Sizes {
                // Tiers 1 and 2 pass on every mapping that they get.
                hot_entries: Some(1),
                direct_blocks: Some(1),
                active_blocks: Some(length),
                ratio: Some(ratio),
                ..usual.sizes
            },
            ..usual
        };
        let warmup = machine.loaded_keys() / 2;
        let plan = machine.loaded(setting, Popularity::Zipfian, 50.0, warmup)?;
        let plan = Plan {
            placement: Some(Arc::new(tiered(cascade))),
            ..plan
        };
        Ok(Cell::new(SLICKCACHE_GC, plan)
            .with("list_blocks", length)
            .with("ratio", ratio))
    });
    let cells: Vec<Cell> = cells.collect::<Result<_, ExperimentError>>()?;
    let rows = setting.cells.run(&cells, Cell::row)?;
    let measures = [
        (
            "requests a second",
            Some("64 blocks 2.9 times 4, the peak"),
            "requests_per_s",
        ),
        READS_FOR_A_HIT,
        WRITTEN_FOR_A_SET,
        FLASH_OF_INDEX,
        ("hit ratio", None, "hit_ratio"),
        ("items kept", None, "items_kept"),
    ];
    let findings = pairs(&ratios, &lengths).zip(&rows);
    let findings = findings.flat_map(|((ratio, length), row)| {
        let of = format!("lists of {length} blocks, ratio {ratio}");
        measured(Some(row), &of, &measures)
    });
    let findings = findings.collect();
    let named = ratios
        .iter()
        .map(|&ratio| (format!("ratio {ratio}"), ratio));
    let plot = Plot::new(
        "11. Throughput",
        Axis::log2("length of a list").unit("blocks"),
        requests_axis(),
        lines_by(&rows, "ratio", named, ["list_blocks", "requests_per_s"]),
    );
    Ok(Outcome::of(vec![plot], findings, rows))
}
