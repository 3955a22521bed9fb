//! Layouts of the blocks of each tier, and the division of keys into lists and buckets.

use super::layout::BlockLayout;
use super::shape::{CascadeConfig, Shape};
use super::slices::Filter;

/// Filter bits per entry that Tier 2 and active lists have beyond those of inactive buckets. A look-up checks 64 small
/// blocks of Tier 2, half as many blocks of a list, and six pages of a bucket. Tier 2 holds a 48th of all entries, lists
/// a twelfth. For a given memory reads are fewest if the number of checks times the false-positive rate is in proportion
/// to the share of entries.
pub(super) const MORE_DIRECT_BITS: u32 = 12;
pub(super) const MORE_ACTIVE_BITS: u32 = 8;

/// Returns the filter bits per entry: `more` than inactive buckets have, or 0 if these have no filters.
pub(super) fn more_filter_bits(config: &CascadeConfig, more: u32) -> u32 {
    match config.filter_bits {
        0 => 0,
        bits => bits + more,
    }
}

/// Layouts of a partition's blocks, and the division of keys into lists and buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layouts {
    pub(super) direct: BlockLayout,
    pub(super) active: BlockLayout,
    pub(super) list_bits: u32,
    pub(super) ratio: usize,
    /// Blocks of an active list that a jump filter covers; 0 without jump filters.
    pub(super) jump_distance: usize,
}

impl Layouts {
    pub(super) fn new(config: &CascadeConfig, shape: &Shape, image: u64) -> Self {
        let layout = |prefix_bits, block_entries, more_bits| BlockLayout {
            image,
            prefix_bits,
            filter: Filter::new(block_entries, more_filter_bits(config, more_bits)),
            page_filter: Filter::new(shape.page_entries, config.filter_bits),
            page_entries: shape.page_entries,
            whole_blocks: config.whole_blocks,
        };
        let list_bits = shape.partition_bits + shape.list_bits;
        Self {
            direct: layout(shape.partition_bits, shape.demoted(), MORE_DIRECT_BITS),
            active: layout(list_bits, shape.buffered(), MORE_ACTIVE_BITS),
            list_bits: shape.list_bits,
            ratio: shape.ratio,
            jump_distance: shape.jump_distance,
        }
    }

    /// Returns the active list of a key.
    pub(super) fn list(&self, key: u64) -> usize {
        let ours = key << self.direct.prefix_bits;
        // Two shifts: a shift by 64 would not be zero.
        ((ours >> 1) >> (63 - self.list_bits)) as usize
    }

    /// Returns the inactive bucket of a key within its list. Buckets are in the order of keys.
    pub(super) fn bucket(&self, key: u64) -> usize {
        let ours = key << self.active.prefix_bits;
        ((u128::from(ours) * self.ratio as u128) >> 64) as usize
    }
}
