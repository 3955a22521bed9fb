//! Memory and flash that a full cascade takes, and settings that fit into less.

use crate::encoding::mapping::ENTRY_BYTES;

use super::bounds::Reserve;
use super::hot;
use super::jump;
use super::layouts::{MORE_ACTIVE_BITS, MORE_DIRECT_BITS, more_filter_bits};
use super::partition::{Bucket, BucketPage};
use super::search::SEARCHES;
use super::shape::{CascadeConfig, HOT_ENTRY_BYTES, Shape};
use super::slices::Filter;

/// Bytes of an entry in the buffer of an active list, a hash table that doubles.
const BUFFERED_BYTES: u64 = 2 * ENTRY_BYTES as u64;
/// Average fill of a page of an inactive bucket.
const PAGE_FILL: (u64, u64) = (4, 5);
/// Copies of a list's entries during compaction, the memory for sorting included.
const COMPACTED_TWICE: u64 = 2;

/// Bytes of the region per mapping: its entry, unfilled space in buckets, pages that wait for a checkpoint, and
/// checkpoints.
const REGION_BYTES: u64 = 22;
/// Size of Tier 1, in percent, for which `REGION_BYTES` suffices.
const REGION_HOT_PERCENT: u32 = 20;
/// Further bytes for each mapping that Tier 1 may hold beyond that. A clean mapping is stored below as well; a dirty one
/// is in two checkpoints.
const MORE_REGION_BYTES: u64 = 36;

/// (`hot_percent`, `filter_bits`) to try in turn, those that cost little speed first.
const SMALLER: [(u32, u32); 10] = [
    (12, 6),
    (10, 6),
    (8, 6),
    (6, 6),
    (4, 6),
    (4, 4),
    (3, 4),
    (2, 4),
    (2, 2),
    (1, 2),
];

/// Memory and flash of a full cascade with these settings. Follows from the settings alone.
pub struct Footprint<'a> {
    config: &'a CascadeConfig,
    shape: Shape,
}

impl<'a> Footprint<'a> {
    /// Returns the footprint of a cascade with these settings.
    pub fn of(config: &'a CascadeConfig) -> Self {
        let shape = Shape::of(config);
        Self { config, shape }
    }

    /// Estimates the bytes of memory that the index takes with `capacity` mappings.
    pub fn full_bytes(&self) -> u64 {
        let Self { config, shape } = self;
        let partitions = shape.partitions() as u64;
        let least = partitions * hot::least_bytes(config, shape);
        let hot = (partitions * shape.hot_entries as u64 * HOT_ENTRY_BYTES).max(least);
        let lists = partitions * shape.lists() as u64;
        let buckets = lists * shape.ratio as u64 * size_of::<Bucket>() as u64;
        let buffers = lists * shape.buffered() as u64 * BUFFERED_BYTES;
        let pages = config.capacity * PAGE_FILL.1 / PAGE_FILL.0 / shape.page_entries as u64;
        let of_page = size_of::<BucketPage>() as u64
            + Filter::new(shape.page_entries, config.filter_bits).bytes as u64;
        let of_block =
            |entries, more| Filter::new(entries, more_filter_bits(config, more)).bytes as u64;
        let direct_blocks = partitions * (shape.direct_blocks as u64 + 1);
        let direct = direct_blocks * of_block(shape.demoted(), MORE_DIRECT_BITS);
        // One list is being compacted, and the others are half full.
        let active_blocks = (lists / 2 + 1) * (shape.active_blocks as u64 + 1);
        let active = active_blocks * of_block(shape.buffered(), MORE_ACTIVE_BITS);
        hot + buckets + buffers + pages * of_page + direct + active
    }

    /// Returns the bytes of memory that a compaction and the most searches at once hold.
    pub fn working_bytes(&self) -> u64 {
        let Self { config, shape } = self;
        let compacted = (shape.active_blocks * shape.buffered()) as u64;
        let compaction = compacted * ENTRY_BYTES as u64 * COMPACTED_TWICE;
        let searches = SEARCHES as u64 * u64::from(config.batch) * device::PAGE_BYTES as u64;
        compaction + searches
    }

    /// Returns the fewest pages of a region with which upkeep can move mappings.
    pub fn least_pages(&self) -> usize {
        let shape = &self.shape;
        let jump_pages = if shape.jump_distance > 0 {
            jump::most_pages(shape.active_blocks, shape.active_blocks * shape.buffered())
        } else {
            0
        };
        let of_partition = (shape.direct_blocks + 4) * shape.direct_pages
            + shape.lists() * ((shape.active_blocks + 4) * shape.active_pages + jump_pages);
        let moved = 2 * shape.partitions() * of_partition;
        moved + 2 * Reserve::checkpoint_pages(shape, moved)
    }

    /// Returns the bytes of a region for `capacity` mappings.
    pub fn region_bytes(&self) -> u64 {
        let config = self.config;
        let more = u64::from(config.hot_percent.saturating_sub(REGION_HOT_PERCENT));
        let bytes =
            config.capacity * REGION_BYTES + config.capacity * more / 100 * MORE_REGION_BYTES;
        bytes.max(self.least_pages() as u64 * device::PAGE_BYTES as u64)
    }

    /// Reduces a Tier 1 of more than 20 % to the size that a region of `bytes` has space for, 20 % at least.
    #[must_use]
    pub fn within_region(config: CascadeConfig, bytes: u64) -> CascadeConfig {
        let of = |hot_percent| CascadeConfig {
            hot_percent,
            ..config
        };
        let usual = config.hot_percent.min(REGION_HOT_PERCENT);
        let mut smaller = (usual..=config.hot_percent).rev().map(of);
        let fits = smaller.find(|config| Footprint::of(config).region_bytes() <= bytes);
        fits.unwrap_or_else(|| of(usual))
    }

    /// Reduces Tier 1 and the filters until the index takes at most `bytes` of memory, or as little as it can.
    #[must_use]
    pub fn within(config: CascadeConfig, bytes: u64) -> CascadeConfig {
        let smaller = SMALLER
            .into_iter()
            .map(|(hot_percent, filter_bits)| CascadeConfig {
                hot_percent: config.hot_percent.min(hot_percent),
                filter_bits: config.filter_bits.min(filter_bits),
                ..config
            });
        let mut last = config;
        for config in std::iter::once(config).chain(smaller) {
            last = config;
            if Footprint::of(&config).full_bytes() <= bytes {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_has_enough_memory_stays_as_it_is_and_others_get_smaller() {
        let config = CascadeConfig::new(20_000_000, 36);
        let full = Footprint::of(&config).full_bytes();
        assert_eq!(Footprint::within(config, full), config);
        let mut before = config;
        for mib in (10..full / MIB).rev() {
            let smaller = Footprint::within(config, mib * MIB);
            let full = |config| Footprint::of(config).full_bytes();
            assert!(full(&smaller) <= full(&before));
            assert!(smaller.hot_percent <= before.hot_percent);
            assert!(smaller.filter_bits <= before.filter_bits);
            assert_eq!(Shape::of(&smaller).ratio, Shape::of(&config).ratio);
            assert_eq!(Shape::of(&smaller).list_bits, Shape::of(&config).list_bits);
            before = smaller;
        }
        assert_eq!((before.hot_percent, before.filter_bits), (1, 2));
    }

    #[test]
    fn a_region_bounds_tier_1_and_is_larger_for_a_larger_one() {
        let of = |hot_percent| CascadeConfig {
            hot_percent,
            ..CascadeConfig::new(20_000_000, 36)
        };
        let region_bytes = |hot_percent| Footprint::of(&of(hot_percent)).region_bytes();
        let mut before = 0;
        for hot_percent in 1..=100 {
            let bytes = region_bytes(hot_percent);
            assert!(bytes >= before, "{hot_percent} %");
            assert_eq!(
                Footprint::within_region(of(hot_percent), bytes),
                of(hot_percent)
            );
            before = bytes;
        }
        assert_eq!(region_bytes(20), region_bytes(1));
        let usual = region_bytes(16);
        assert_eq!(Footprint::within_region(of(50), usual).hot_percent, 20);
        assert_eq!(Footprint::within_region(of(50), 0).hot_percent, 20);
    }
}
