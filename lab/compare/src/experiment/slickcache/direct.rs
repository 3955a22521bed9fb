//! `SlickCache` (`SoCC` 2018), figures 8 to 10: the direct blocks of Tier 2.

use std::sync::Arc;

use systems::slickcache::cascade::{CascadeConfig, Sizes};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, PAPERS_HOT, Popularity, USUAL_SETS, tiered};
use crate::compare::Plan;
use crate::experiment::pick::{pairs, quotient};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

/// Bits of the filters: none, as in the paper, and the usual ones. Either way only blocks whose range of hashes has the key are
/// read.
const FILTERS: [u32; 2] = [0, 6];
const BATCH: u32 = 8;

/// Returns the numbers of blocks read at once, and the numbers of pages of a block.
fn batches(scale: Scale) -> (Vec<u32>, Vec<u32>) {
    scale.pick(
        (vec![BATCH], vec![1]),
        (vec![1, 4, BATCH, 16], vec![1, 4]),
        (vec![1, 2, 4, BATCH, 16], vec![1, 2, 4, 8, 16, 32]),
    )
}

/// Runs figures 8 and 9: the number of blocks read at once, and the size of a block.
pub(in crate::experiment) fn parallelism(
    setting: &Setting<'_>,
) -> Result<Outcome, ExperimentError> {
    let (batches, pages) = batches(setting.scale);
    let cells = pairs(&pages, &batches).map(|(pages, batch)| {
        let sizes = Sizes {
            direct_blocks: Some(64),
            direct_pages: Some(pages),
            // Tier 1 holds the buffer of a demotion, and no more.
            hot_entries: Some(1),
            ..Machine::of(setting.scale).cascade(PAPERS_HOT).sizes
        };
        let cascade = CascadeConfig {
            batch,
            filter_bits: 0,
            whole_blocks: true,
            sizes,
            ..CascadeConfig::default()
        };
        let cell = cell(setting, cascade)?;
        Ok(cell.with("batch", batch).with("block_bytes", pages << 12))
    });
    setting.told_each(cells, Cell::row, PARALLELISM)
}

const PARALLELISM: &str = "
for $field, $paper = requests_per_s | peak at 8 blocks; mean_us | 290, 16 KiB
 for block_bytes, batch
  {field}, {batch} blocks of {=block_bytes / 1024} KiB at once | {field} | {paper} if batch=8; block_bytes=16384
for batch = 8
 hit ratio, 8 blocks at once | hit_ratio
 items kept, 8 blocks at once | items_kept
plot 8. Throughput | batch: blocks read at once | requests_per_s: requests (1/s) | block_bytes: {=block_bytes / 1024} KiB
";

/// Runs figure 10: the number of blocks of Tier 2, and the hits of a batch.
pub(in crate::experiment) fn blocks(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let numbers = setting.scale.pick(
        vec![8u32],
        vec![8, 32, 64, 128],
        vec![8, 16, 32, 64, 128, 256],
    );
    let cells = pairs(&FILTERS, &numbers).map(|(filter_bits, number)| {
        let usual = Machine::of(setting.scale).cascade(PAPERS_HOT);
        let cascade = CascadeConfig {
            filter_bits,
            sizes: Sizes {
                direct_blocks: Some(number),
                direct_pages: Some(1),
                ..usual.sizes
            },
            ..usual
        };
        let cell = cell(setting, cascade)?;
        Ok(cell.with("filter_bits", filter_bits).with("blocks", number))
    });
    setting.told_each(cells, hits_a_batch, BLOCKS)
}

const BLOCKS: &str = "
for filter_bits, blocks
 for $of = {blocks} blocks, filters of {filter_bits} bits
  hits of Tier 2 for a batch of up to 8 blocks, {of} | hits_a_batch | 0.8 up to 64 blocks, then less if filter_bits=0
  look-ups that Tier 2 answers, {of} | tier2_share
  requests a second, {of} | requests_per_s
  hit ratio, {of} | hit_ratio
  items kept, {of} | items_kept
";

fn hits_a_batch(cell: &Cell) -> Result<Row, ExperimentError> {
    let ran = cell.ran()?;
    let mappings = &ran.detail.mappings;
    let hits = Some(mappings.hits[1] as f64);
    Ok(cell.row_of(&ran).with(
        "hits_a_batch",
        quotient(hits, Some(mappings.batches as f64)),
    ))
}

/// Returns a cell whose clients store an item after each miss.
fn cell(setting: &Setting<'_>, cascade: CascadeConfig) -> Result<Cell, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.loaded_keys();
    let workload = Popularity::Zipfian.workload(setting, keys, USUAL_SETS, true)?;
    let requests = setting.scale.tiny_or(keys / 32, keys / 4);
    let plan = Plan {
        load: true,
        warmup: 2 * requests,
        placement: Some(Arc::new(tiered(cascade))),
        ..machine.plan(workload, requests)
    };
    Ok(Cell::new(SLICKCACHE_GC, plan))
}
