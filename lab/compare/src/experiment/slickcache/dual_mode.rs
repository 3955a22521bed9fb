//! `SlickCache` (`SoCC` 2018), figure 11: the lists of Tier 3, and the buckets into which they are compacted.

use slickcache::cascade::{CascadeConfig, Sizes};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, PAPERS_HOT, Popularity};
use crate::compare::Plan;
use crate::experiment::pick::{among, figure};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

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
    let keys = machine.loaded_keys();
    let (lengths, ratios) = shapes(setting.scale);
    let mut cells = Vec::new();
    for &ratio in &ratios {
        for &length in &lengths {
            let workload = Popularity::Zipfian.workload(setting, keys, 50.0, false)?;
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
            let plan = Plan {
                load: true,
                warmup: keys / 2,
                cascade: Some(cascade),
                ..machine.plan(workload, keys / 2)
            };
            let cell = Cell::new(SLICKCACHE_GC, plan).with("list_blocks", length);
            cells.push(cell.with("ratio", ratio));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    let findings = findings(&rows, &lengths, &ratios);
    let line = |&ratio: &u32| {
        let rows = among(&rows, "ratio", ratio);
        let point = |row: &Row| Some((row.number("list_blocks")?, row.number("requests_per_s")?));
        Line::new(
            format!("ratio {ratio}"),
            rows.iter().filter_map(point).collect(),
        )
    };
    let plot = Plot::new(
        "11. Throughput",
        Axis::log2("length of a list").unit("blocks"),
        Axis::linear("requests").unit("1/s"),
        ratios.iter().map(line).collect(),
    );
    Ok(Outcome::of(vec![plot], findings, rows))
}

fn findings(rows: &[Row], lengths: &[u32], ratios: &[u32]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &ratio in ratios {
        for &length in lengths {
            let rows = among(&among(rows, "ratio", ratio), "list_blocks", length);
            for (what, paper, field) in [
                (
                    "requests a second",
                    Some("64 blocks 2.9 times 4, the peak"),
                    "requests_per_s",
                ),
                ("reads of the index for a hit", None, "index_reads_a_hit"),
                (
                    "bytes of the index written for a SET",
                    None,
                    "index_bytes_written_a_set",
                ),
                (
                    "flash of the index, share of the cache",
                    None,
                    "index_flash_share",
                ),
                ("hit ratio", None, "hit_ratio"),
                ("items kept", None, "items_kept"),
            ] {
                findings.push(Finding::new(
                    format!("{what}, lists of {length} blocks, ratio {ratio}"),
                    paper,
                    figure(&rows, SLICKCACHE_GC, field),
                ));
            }
        }
    }
    findings
}
