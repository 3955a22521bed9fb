//! `SlickCache` (`SoCC` 2018), figure 11: the lists of Tier 3, and the buckets into which they are compacted.

use systems::slickcache::cascade::{CascadeConfig, Sizes};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, PAPERS_HOT, Popularity};
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};

/// Returns the numbers of blocks of a list when it is compacted, and the numbers of buckets for each list.
fn shapes(scale: Scale) -> (Vec<u32>, Vec<u32>) {
    scale.pick(
        (vec![16], vec![32]),
        (vec![4, 16, 64, 256], vec![32, 128]),
        (vec![4, 16, 64, 256, 1024], vec![128, 256, 512, 1024]),
    )
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
        Ok(Cell::new(SLICKCACHE_GC, plan)
            .cascade(cascade)
            .with("list_blocks", length)
            .with("ratio", ratio))
    });
    setting.told_each(cells, Cell::row, TOLD)
}

const TOLD: &str = "
for ratio, list_blocks
 for $of = lists of {list_blocks} blocks, ratio {ratio}
  requests a second, {of} | requests_per_s | 64 blocks 2.9 times 4, the peak
  reads of the index for a hit, {of} | index_reads_a_hit
  bytes of the index written for a SET, {of} | index_bytes_written_a_set
  flash of the index, share of the cache, {of} | index_flash_share
  hit ratio, {of} | hit_ratio
  items kept, {of} | items_kept
plot 11. Throughput | list_blocks: log2 length of a list (blocks) | requests_per_s: requests (1/s) | ratio: ratio {ratio}
";
