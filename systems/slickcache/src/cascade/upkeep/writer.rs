//! Writes of a partition's upkeep, and the pages for them.

use crate::encoding::mapping::Entry;
use device::DeviceError;
use parking_lot::Mutex;

use super::super::block::{self, Block, Draft};
use super::super::counters::add;
use super::super::flash::{Flash, PAUSE};
use super::super::jump::JumpFilter;
use super::super::layout::{BlockLayout, PageRef};
use super::super::pages::PageId;
use super::super::partition::{Bucket, Partition};
use super::super::tiers::Tiers;

/// Number of pauses to wait for free pages before writers stop waiting for upkeep.
const PATIENCE: u32 = 50;

/// Writes blocks and pages for the lower tiers of one partition, and makes space for them.
///
/// Invariant: a page that it takes is written and returned, or released. Space comes from checkpoints first, then from the
/// oldest mappings of the partition.
pub(super) struct Writer<'c> {
    pub(super) partition: &'c Mutex<Partition>,
    pub(super) tiers: &'c Tiers,
    pub(super) flash: &'c Flash,
}

impl Writer<'_> {
    /// Writes a block once there are pages for it. Returns `None` if the device fails (the caller's job is then tried
    /// again) or the partition's lower tiers were dropped.
    pub(super) async fn write_block(
        &self,
        layout: &BlockLayout,
        entries: &[Entry],
        jump: Option<JumpFilter>,
    ) -> Option<Block> {
        let jump_pages = jump.as_ref().map_or(0, |jump| jump.pages.len());
        let pages = layout.pages_for(entries.len()) + jump_pages;
        let pages = self.take_pages(pages).await?;
        let (_writing, first) = self.flash.begin_write(pages.len());
        let draft = Draft::new(layout, first, entries, jump.as_ref(), &pages);
        match draft.write(&self.flash.store).await {
            Ok(()) => Some(draft.block),
            Err(error) => {
                self.write_failed(&pages, &error).await;
                None
            }
        }
    }

    /// Writes each slice of `contents` to a page of its own, many pages at once.
    pub(super) async fn write_single_pages(&self, contents: &[&[Entry]]) -> Option<Vec<PageRef>> {
        if contents.is_empty() {
            return Some(Vec::new());
        }
        let pages = self.take_pages(contents.len()).await?;
        let (_writing, first) = self.flash.begin_write(pages.len());
        let bytes = block::encode_pages(self.tiers.layouts.active.image, first, contents, &[]);
        if let Err(error) = self.flash.store.write(&pages, &bytes).await {
            self.write_failed(&pages, &error).await;
            return None;
        }
        let numbered = pages.iter().zip(first..);
        Some(
            numbered
                .map(|(&page, number)| PageRef { page, number })
                .collect(),
        )
    }

    async fn write_failed(&self, pages: &[PageId], error: &DeviceError) {
        self.flash.store.release(pages.iter().copied());
        self.lose_all_if_overwhelmed();
        add(&self.tiers.counters.write_errors, 1);
        self.tiers.brake.set_makes_way(false);
        tracing::warn!(%error, "the index cannot be written");
        runtime::sleep(PAUSE).await;
    }

    /// Takes `count` pages. While too few are free, asks for a checkpoint if it would free some, and drops the oldest
    /// mappings of the partition if even checkpoints would not free enough. Returns `None` if everything below Tier 1 was
    /// dropped, together with the entries that the pages were for.
    async fn take_pages(&self, count: usize) -> Option<Box<[PageId]>> {
        for tries in 0.. {
            let freed = self.flash.store.freed.listener();
            // Writing again after a failed sync may use reserved pages: no checkpoint is made before, and no page becomes
            // free without one.
            let pages = if self.flash.doubt.is_any() {
                self.flash.store.take_reserved(count)
            } else {
                self.flash.store.take(count)
            };
            if let Some(pages) = pages {
                if self.flash.store.is_checkpoint_due() {
                    self.flash.request.make();
                }
                self.tiers.brake.set_makes_way(true);
                return Some(pages);
            }
            let missing = self
                .flash
                .store
                .missing_pages(count.max(self.flash.store.worth_freeing()));
            // Other tasks may find pages and report progress, though this task blocks all compactions: hence `PATIENCE`.
            let is_stuck = missing > 0 && !self.evict(missing) || tries >= PATIENCE;
            if is_stuck && self.tiers.brake.set_makes_way(false) {
                tracing::warn!(pages = count, "the index region is full");
            }
            if self.lose_all_if_overwhelmed() {
                return None;
            }
            if self.flash.store.would_checkpoint_free() {
                self.flash.request.make();
            }
            let _ = runtime::timeout(PAUSE, freed).await;
        }
        None
    }

    /// Drops everything below Tier 1 of a partition, if the tombstones for it take so much of Tier 1 that soon no
    /// checkpoint would have space for it and no page would become free again. Returns whether it did.
    fn lose_all_if_overwhelmed(&self) -> bool {
        let partition = &mut *self.partition.lock();
        if !self.tiers.is_overwhelmed(partition) {
            return false;
        }
        tracing::warn!(
            "the index region is full of what has been deleted: a part of the index is dropped"
        );
        let before = partition.hot.memory_bytes();
        let mut dropped: usize = partition
            .demoted
            .drain(..)
            .map(|entries| entries.len())
            .sum();
        for block in partition.direct.drain(..) {
            dropped += block.entries as usize;
            self.flash.store.release(block.all_pages());
        }
        partition.filters.truncate(0);
        add(
            &self.tiers.counters.evicted,
            dropped as u64 + partition.drop_tier_3(&self.tiers.layouts, &self.flash.store),
        );
        partition.hot.take_dead();
        let grown = partition.hot.memory_bytes().wrapping_sub(before);
        self.tiers.memory.hot_has_grown(grown);
        true
    }

    /// Drops the oldest page of up to `count` buckets of a partition. Returns whether there was one.
    fn evict(&self, count: usize) -> bool {
        let mut partition = self.partition.lock();
        partition.epoch += 1;
        let buckets = partition
            .lists
            .iter_mut()
            .flat_map(|list| &mut list.buckets);
        let mut filled: Vec<&mut Bucket> =
            buckets.filter(|bucket| !bucket.pages.is_empty()).collect();
        filled.sort_by_key(|bucket| bucket.pages[0].newest);
        let mut evicted = 0;
        for bucket in filled.into_iter().take(count) {
            evicted += u64::from(bucket.pages[0].entries);
            let filter = &self.tiers.layouts.active.page_filter;
            self.flash.store.release(bucket.drop_oldest(filter, 1));
        }
        add(&self.tiers.counters.evicted, evicted);
        evicted > 0
    }
}
