//! Bounds on Tier 1, and the pages of the region that are reserved for checkpoints.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::encoding::cascade::{BlockHead, BucketPage, STREAM_BYTES};
use crate::encoding::mapping::ENTRY_BYTES;
use on_flash::NumberedSegment;

use super::shape::{CascadeConfig, MOST_DEMOTED, Shape};

/// A checkpoint reserves at least one page in 16 of the region; two checkpoints reserve twice that.
const RESERVED_SHARE: usize = 16;
/// A checkpoint reserves at most this fraction of the region, so that the tiers below the first have the rest.
const MOST_RESERVED: (usize, usize) = (2, 5);
/// Upper bound on the checkpoint bytes for each page of the region. At worst the page is a block of its own, with its number
/// and two fences, or the only page of its bucket, and there are as many segments as pages.
const CHECKPOINT_PAGE_BYTES: usize = {
    let (block, bucket) = (size_of::<BlockHead>() + 8, size_of::<BucketPage>() + 8);
    let of_page = if block > bucket { block } else { bucket };
    of_page + size_of::<NumberedSegment>()
};

/// Pages reserved for checkpoints, without which no page becomes free again, and the bounds that they set on Tier 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserve {
    pages: usize,
    /// Most entries in Tier 1 of a partition, whatever the memory; then the same with tombstones beyond them.
    hot_entries: usize,
    buried_entries: usize,
}

/// A checkpoint has space for one further tombstone for each 8 entries of Tier 1. At half that number of tombstones
/// everything below Tier 1 is dropped.
const BURIED_SHARE: usize = 8;

impl Reserve {
    fn of(shape: &Shape, pages: usize) -> Self {
        let least = Self::checkpoint_pages(shape, pages);
        let reserved = least
            .max(pages / RESERVED_SHARE)
            .min(pages * MOST_RESERVED.0 / MOST_RESERVED.1);
        let hot_entries = Self::hot_within(shape, pages, reserved).max(shape.most_hot());
        Self {
            pages: reserved,
            hot_entries,
            buried_entries: Self::with_buried(hot_entries),
        }
    }

    /// Most entries in Tier 1 of a partition for which a checkpoint, tombstones included, fits into `reserved` pages.
    fn hot_within(shape: &Shape, pages: usize, reserved: usize) -> usize {
        let left = (reserved.saturating_sub(2) * STREAM_BYTES)
            .saturating_sub(Self::checkpoint_bytes(shape, pages, 0));
        let entries = left / ENTRY_BYTES / shape.partitions();
        entries - entries / BURIED_SHARE
    }

    /// Adds the tombstones beyond which everything below Tier 1 is dropped.
    fn with_buried(hot_entries: usize) -> usize {
        hot_entries + hot_entries / (2 * BURIED_SHARE)
    }

    /// Most pages that a checkpoint of a region of `pages` takes while Tier 1 has its configured size.
    pub(super) fn checkpoint_pages(shape: &Shape, pages: usize) -> usize {
        Self::pages_for(shape, pages, shape.partitions() * shape.most_hot())
    }

    /// Most pages that it takes with `hot` entries in Tier 1 of all partitions together.
    fn pages_for(shape: &Shape, pages: usize, hot: usize) -> usize {
        Self::checkpoint_bytes(shape, pages, hot + hot / BURIED_SHARE) / STREAM_BYTES + 2
    }

    fn checkpoint_bytes(shape: &Shape, pages: usize, hot: usize) -> usize {
        let of_pages = pages * CHECKPOINT_PAGE_BYTES;
        let buffered = 2 * shape.lists() * shape.buffered() + MOST_DEMOTED * shape.demoted();
        (hot + shape.partitions() * buffered) * ENTRY_BYTES + of_pages
    }
}

/// Bounds on Tier 1 of each partition. They follow from this run's settings, unless a start finds a larger Tier 1, or
/// less space for checkpoints, that a run with other settings has left. Lock-free.
#[derive(Debug)]
pub(super) struct Bounds {
    reserve: Reserve,
    pages: usize,
    demoted: usize,
    overshoot: usize,
    hot: AtomicUsize,
    grown: AtomicUsize,
    buried: AtomicUsize,
    /// Pages reserved for a checkpoint once Tier 1 is within its bounds.
    settled: AtomicUsize,
    /// Pages reserved now.
    reserved: AtomicUsize,
    is_settling: AtomicBool,
    /// Entries in Tier 1 of each partition while `is_settling`.
    entries: Box<[AtomicUsize]>,
}

impl Bounds {
    pub(super) fn new(config: &CascadeConfig, shape: &Shape, pages: usize) -> Self {
        let reserve = Reserve::of(shape, pages);
        let grown = shape.grown_hot_entries(config.spare_bytes);
        let grown = grown.min(reserve.hot_entries);
        Self {
            reserve,
            pages,
            demoted: shape.demoted(),
            overshoot: shape.most_hot() - shape.hot_entries,
            hot: AtomicUsize::new(shape.hot_entries),
            grown: AtomicUsize::new(grown),
            buried: AtomicUsize::new(reserve.buried_entries),
            settled: AtomicUsize::new(reserve.pages),
            reserved: AtomicUsize::new(reserve.pages),
            is_settling: AtomicBool::new(false),
            entries: (0..shape.partitions())
                .map(|_| AtomicUsize::new(0))
                .collect(),
        }
    }

    /// Number of entries above which some are demoted.
    pub(super) fn hot(&self) -> usize {
        self.hot.load(Ordering::Relaxed)
    }

    /// Number of entries allowed whatever the memory.
    pub(super) fn most_hot(&self) -> usize {
        self.hot() + self.overshoot
    }

    /// Number of entries allowed while the lower tiers do not keep up.
    pub(super) fn grown(&self) -> usize {
        self.grown.load(Ordering::Relaxed)
    }

    /// Number of entries, tombstones included, above which everything below Tier 1 is dropped.
    pub(super) fn buried(&self) -> usize {
        self.buried.load(Ordering::Relaxed)
    }

    /// Number of entries of a demotion.
    pub(super) fn demoted(&self) -> usize {
        self.demoted
    }

    /// Pages reserved for one checkpoint. Two of this size are reserved.
    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Adapts the bounds to the index that a start found: `found` entries in Tier 1 of each partition, and `free` pages
    /// that are free or belong to the last checkpoint. Call it before upkeep runs. Returns whether Tier 1 stays smaller
    /// than configured.
    pub(super) fn resume(&self, shape: &Shape, found: &[usize], free: usize) -> bool {
        let space = free / 2;
        let is_smaller = space < self.reserve.pages;
        let most_found = found.iter().copied().max().unwrap_or(0);
        if is_smaller {
            // The last run reserved fewer pages and filled the rest, so Tier 1 stays as small as it was then.
            let hot = Reserve::hot_within(shape, self.pages, space);
            let rest = hot.saturating_sub(self.overshoot).max(shape.page_entries);
            self.hot.fetch_min(rest, Ordering::Relaxed);
            self.grown
                .fetch_min(hot.max(self.most_hot()), Ordering::Relaxed);
            self.settled.store(space, Ordering::Relaxed);
        }
        let mut reserved = self.settled.load(Ordering::Relaxed);
        if most_found > self.reserve.hot_entries {
            // The last run had a larger Tier 1. Checkpoints need the space until its entries have moved down.
            let buried = Reserve::with_buried(most_found);
            self.buried.fetch_max(buried, Ordering::Relaxed);
            for (entries, &found) in self.entries.iter().zip(found) {
                entries.store(found, Ordering::Relaxed);
            }
            self.is_settling.store(true, Ordering::Relaxed);
            let all = found.iter().sum();
            reserved =
                Reserve::pages_for(shape, self.pages, all).clamp(reserved, space.max(reserved));
        }
        self.reserved.store(reserved, Ordering::Relaxed);
        is_smaller
    }

    /// Notes the number of entries in Tier 1 of a partition. Returns the number of reserved pages if it has fallen.
    pub(super) fn settle(&self, shape: &Shape, number: usize, entries: usize) -> Option<usize> {
        if !self.is_settling.load(Ordering::Relaxed) {
            return None;
        }
        self.entries[number].store(entries, Ordering::Relaxed);
        let each = || self.entries.iter().map(|of| of.load(Ordering::Relaxed));
        let settled = self.settled.load(Ordering::Relaxed);
        let reserved = if each().all(|entries| entries <= self.reserve.hot_entries) {
            self.is_settling.store(false, Ordering::Relaxed);
            self.buried
                .store(self.reserve.buried_entries, Ordering::Relaxed);
            settled
        } else {
            Reserve::pages_for(shape, self.pages, each().sum()).max(settled)
        };
        (self.reserved.fetch_min(reserved, Ordering::Relaxed) > reserved).then_some(reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worst case: Tier 1 with all its tombstones, full buffers, every page a block of its own, as many segments as
    /// pages.
    #[test]
    fn what_is_reserved_has_space_for_the_largest_checkpoint() {
        let capacities = [120_000, 560_000, 7_500_000, 190_000_000];
        let each = |capacity| [16, 20, 45, 83, 100].map(|hot_percent| (capacity, hot_percent));
        for (capacity, hot_percent) in capacities.into_iter().flat_map(each) {
            let config = CascadeConfig {
                hot_percent,
                ..CascadeConfig::new(capacity, 34)
            };
            let pages = crate::cascade::Footprint::of(&config).region_bytes() as usize / 4096;
            let shape = Shape::of(&config);
            let reserve = Reserve::of(&shape, pages);
            let buffered = 2 * shape.lists() * shape.buffered() + MOST_DEMOTED * shape.demoted();
            let entries = shape.partitions() * (reserve.buried_entries + buffered);
            // Where a block lies, and its two fences.
            let of_block = size_of::<BlockHead>() + size_of::<u32>() + 2 * size_of::<u16>();
            let of_page = of_block + size_of::<NumberedSegment>();
            let bytes = entries * ENTRY_BYTES + pages * of_page;
            let needed = bytes.div_ceil(STREAM_BYTES);
            assert!(
                needed <= reserve.pages,
                "{needed} of {reserve:?}, {pages} pages, {hot_percent} %"
            );
        }
    }

    fn bounds(hot_percent: u32) -> (Bounds, Shape, usize) {
        let config = CascadeConfig {
            hot_percent,
            spare_bytes: 0,
            ..CascadeConfig::new(560_000, 34)
        };
        let pages = crate::cascade::Footprint::of(&CascadeConfig::new(560_000, 34)).region_bytes()
            as usize
            / 4096;
        let shape = Shape::of(&config);
        (Bounds::new(&config, &shape, pages), shape, pages)
    }

    #[test]
    fn a_region_with_less_space_for_checkpoints_keeps_tier_1_small() {
        let (small, shape, _) = bounds(2);
        let entries = vec![small.most_hot(); shape.partitions()];
        let (large, shape, pages) = bounds(20);
        let asked = (large.hot(), large.grown(), large.reserved());
        assert!(!large.resume(&shape, &entries, 2 * large.reserved()));
        assert_eq!((large.hot(), large.grown(), large.reserved()), asked);
        // Pages that the last run had to leave free.
        let free = 2 * small.reserved();
        assert!(large.resume(&shape, &entries, free));
        assert!(large.hot() < asked.0 && large.grown() < asked.1);
        assert!(2 * large.reserved() <= free);
        let all = shape.partitions() * large.grown();
        assert!(Reserve::pages_for(&shape, pages, all) <= large.reserved() + 1);
        assert_eq!(
            large.settle(&shape, 0, 0),
            None,
            "there is nothing to wait for"
        );
    }

    #[test]
    fn a_larger_tier_1_has_space_for_checkpoints_until_it_has_moved_down() {
        let (large, shape, _) = bounds(20);
        let found = vec![large.grown(); shape.partitions()];
        let (small, shape, pages) = bounds(2);
        let asked = (small.hot(), small.buried(), small.reserved());
        assert!(!small.resume(&shape, &found, 2 * large.reserved()));
        assert!(small.buried() > large.grown(), "nothing is dropped for it");
        let needed = Reserve::pages_for(&shape, pages, found.iter().sum());
        assert!(small.reserved() >= needed.min(large.reserved()));
        let mut reserved = small.reserved();
        for entries in (0..found[0]).rev().step_by(1000) {
            for number in 0..shape.partitions() {
                if let Some(less) = small.settle(&shape, number, entries) {
                    assert!(less < reserved);
                    reserved = less;
                }
            }
        }
        assert_eq!((small.hot(), small.buried(), small.reserved()), asked);
        assert_eq!(reserved, asked.2);
    }
}
