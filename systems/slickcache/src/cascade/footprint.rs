//! Memory and flash that a full cascade takes, and settings that fit into less.

use crate::encoding::mapping::ENTRY_BYTES;

use super::bounds::Reserve;
use super::hot;
use super::jump;
use super::layouts::{MORE_ACTIVE_BITS, MORE_DIRECT_BITS, more_filter_bits};
use super::partition::{Bucket, BucketPage};
use super::search::SEARCHES;
use super::shape::{CascadeConfig, Shape};
use super::slices::Filter;

/// Average bytes of an entry of Tier 1.
const HOT_ENTRY_BYTES: u64 = 10;
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

impl CascadeConfig {
    /// Estimates the bytes of memory that the index takes with `capacity` mappings.
    pub fn full_bytes(&self) -> u64 {
        let shape = Shape::of(self);
        let partitions = shape.partitions() as u64;
        let least = partitions * hot::least_bytes(self, &shape);
        let hot = (partitions * shape.hot_entries as u64 * HOT_ENTRY_BYTES).max(least);
        let lists = partitions * shape.lists() as u64;
        let buckets = lists * shape.ratio as u64 * size_of::<Bucket>() as u64;
        let buffers = lists * shape.buffered() as u64 * BUFFERED_BYTES;
        let pages = self.capacity * PAGE_FILL.1 / PAGE_FILL.0 / shape.page_entries as u64;
        let of_page = size_of::<BucketPage>() as u64
            + Filter::new(shape.page_entries, self.filter_bits).bytes as u64;
        let of_block =
            |entries, more| Filter::new(entries, more_filter_bits(self, more)).bytes as u64;
        let direct_blocks = partitions * (shape.direct_blocks as u64 + 1);
        let direct = direct_blocks * of_block(shape.demoted(), MORE_DIRECT_BITS);
        // One list is being compacted, and the others are half full.
        let active_blocks = (lists / 2 + 1) * (shape.active_blocks as u64 + 1);
        let active = active_blocks * of_block(shape.buffered(), MORE_ACTIVE_BITS);
        hot + buckets + buffers + pages * of_page + direct + active
    }

    /// Returns the bytes of memory that a compaction and the most searches at once hold.
    pub fn working_bytes(&self) -> u64 {
        let shape = Shape::of(self);
        let compacted = (shape.active_blocks * shape.buffered()) as u64;
        let compaction = compacted * ENTRY_BYTES as u64 * COMPACTED_TWICE;
        let searches = SEARCHES as u64 * u64::from(self.batch) * device::PAGE_BYTES as u64;
        compaction + searches
    }

    /// Returns the fewest pages of a region with which upkeep can move mappings.
    pub fn least_pages(&self) -> usize {
        let shape = Shape::of(self);
        let jump_pages = if shape.jump_distance > 0 {
            jump::most_pages(shape.active_blocks, shape.active_blocks * shape.buffered())
        } else {
            0
        };
        let of_partition = (shape.direct_blocks + 4) * shape.direct_pages
            + shape.lists() * ((shape.active_blocks + 4) * shape.active_pages + jump_pages);
        let moved = 2 * shape.partitions() * of_partition;
        moved + 2 * Reserve::checkpoint_pages(&shape, moved)
    }

    /// Returns the bytes of a region for `capacity` mappings.
    pub fn region_bytes(&self) -> u64 {
        let more = u64::from(self.hot_percent.saturating_sub(REGION_HOT_PERCENT));
        let bytes = self.capacity * REGION_BYTES + self.capacity * more / 100 * MORE_REGION_BYTES;
        bytes.max(self.least_pages() as u64 * device::PAGE_BYTES as u64)
    }

    /// Reduces a Tier 1 of more than 20 % to the size that a region of `bytes` has space for, 20 % at least.
    #[must_use]
    pub fn within_region(self, bytes: u64) -> Self {
        let of = |hot_percent| Self {
            hot_percent,
            ..self
        };
        let usual = self.hot_percent.min(REGION_HOT_PERCENT);
        let mut smaller = (usual..=self.hot_percent).rev().map(of);
        let fits = smaller.find(|config| config.region_bytes() <= bytes);
        fits.unwrap_or_else(|| of(usual))
    }

    /// Entries that Tier 1 of each partition may have, as far as memory goes, while the lower tiers do not keep up.
    pub(super) fn grown_hot_entries(&self, shape: &Shape) -> usize {
        let more = self.spare_bytes / (shape.partitions() as u64 * HOT_ENTRY_BYTES);
        let more = usize::try_from(more).unwrap_or(usize::MAX);
        shape.hot_entries.saturating_add(more).max(shape.most_hot())
    }

    /// Reduces Tier 1 and the filters until the index takes at most `bytes` of memory, or as little as it can.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        let smaller = SMALLER.into_iter().map(|(hot_percent, filter_bits)| Self {
            hot_percent: self.hot_percent.min(hot_percent),
            filter_bits: self.filter_bits.min(filter_bits),
            ..self
        });
        let mut last = self;
        for config in std::iter::once(self).chain(smaller) {
            last = config;
            if config.full_bytes() <= bytes {
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
        let full = config.full_bytes();
        assert_eq!(config.within(full), config);
        let mut before = config;
        for mib in (10..full / MIB).rev() {
            let smaller = config.within(mib * MIB);
            assert!(smaller.full_bytes() <= before.full_bytes());
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
        let mut before = 0;
        for hot_percent in 1..=100 {
            let bytes = of(hot_percent).region_bytes();
            assert!(bytes >= before, "{hot_percent} %");
            assert_eq!(of(hot_percent).within_region(bytes), of(hot_percent));
            before = bytes;
        }
        assert_eq!(of(20).region_bytes(), of(1).region_bytes());
        let usual = of(16).region_bytes();
        assert_eq!(of(50).within_region(usual).hot_percent, 20);
        assert_eq!(of(50).within_region(0).hot_percent, 20);
    }
}
