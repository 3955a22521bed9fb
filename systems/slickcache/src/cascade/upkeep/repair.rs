//! Repair of a part of the lower tiers: pages in doubt, missing filters, and losses.

use parking_lot::Mutex;

use super::super::block::Block;
use super::super::counters::add;
use super::super::flash::Flash;
use super::super::layout::{BlockLayout, PageRef};
use super::super::partition::{Partition, Spot};
use super::super::tiers::Tiers;
use super::writer::Writer;

/// The repair of one block or bucket of a partition.
///
/// Invariant: a part that cannot be read is dropped with all older mappings, so that no look-up finds an outdated one.
pub(super) struct Repair<'u> {
    partition: &'u Mutex<Partition>,
    tiers: &'u Tiers,
    flash: &'u Flash,
    writer: &'u Writer<'u>,
    spot: Spot,
}

impl<'u> Repair<'u> {
    pub(super) fn new(writer: &'u Writer<'u>, spot: Spot) -> Self {
        let &Writer {
            partition,
            tiers,
            flash,
        } = writer;
        Self {
            partition,
            tiers,
            flash,
            writer,
            spot,
        }
    }

    fn layout(&self) -> &'u BlockLayout {
        match self.spot {
            Spot::Direct(_) => &self.tiers.layouts.direct,
            Spot::Active(..) | Spot::Bucket(..) => &self.tiers.layouts.active,
        }
    }

    /// Writes pages that a failed sync may have lost to other pages.
    pub(super) async fn write_again(&self, pages: &[PageRef]) {
        let (spot, layout) = (self.spot, self.layout());
        let entries = match self.flash.read_pages(layout, pages).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "a part of the index is lost, with older mappings");
                return self.lose(&mut self.partition.lock(), spot);
            }
        };
        if let Spot::Bucket(list, bucket, old) = spot {
            let Some(new) = self.writer.write_single_pages(&[&entries]).await else {
                return;
            };
            let mut partition = self.partition.lock();
            let pages = &mut partition.lists[list].buckets[bucket].pages;
            let released = match pages.iter_mut().find(|page| page.page == old) {
                Some(page) => std::mem::replace(&mut page.page, new[0]),
                // The page was evicted before.
                None => new[0],
            };
            self.flash.store.release([released.page]);
            return;
        }
        // Written without its jump filter, which would need the keys of older blocks, too.
        if let Some(mut new) = self.writer.write_block(layout, &entries, None).await {
            let mut partition = self.partition.lock();
            if let Some((block, ..)) = partition.block_at(spot) {
                new.is_filtered = block.is_filtered;
                std::mem::swap(block, &mut new);
            }
            self.flash.store.release(new.all_pages());
        }
    }

    /// Makes the filters of these pages, which are missing after a start.
    pub(super) async fn make_filters(&self, pages: &[PageRef]) {
        let (spot, layout) = (self.spot, self.layout());
        let mut entries = Vec::new();
        let mut filters = Vec::new();
        for page in pages {
            match self
                .flash
                .read_pages(layout, std::slice::from_ref(page))
                .await
            {
                Ok(of_page) if matches!(spot, Spot::Bucket(..)) => {
                    layout.page_filter.append(&of_page, &mut filters);
                }
                Ok(of_page) => entries.extend(of_page),
                Err(error) => {
                    tracing::warn!(%error, "a part of the index is lost, with older mappings");
                    let lost = match spot {
                        Spot::Bucket(list, bucket, _) => Spot::Bucket(list, bucket, *page),
                        Spot::Direct(_) | Spot::Active(..) => spot,
                    };
                    return self.lose(&mut self.partition.lock(), lost);
                }
            }
        }
        let filter = layout.filter.of(&entries);
        let mut partition = self.partition.lock();
        if let Spot::Bucket(list, bucket, _) = spot {
            partition.lists[list].buckets[bucket].set_filters(pages, filters);
        } else if let Some((block, filters, place)) = partition.block_at(spot) {
            filters.fill(place, &filter);
            block.is_filtered = true;
        }
    }

    /// Drops the lost part at `spot`, and all older mappings.
    fn lose(&self, partition: &mut Partition, spot: Spot) {
        partition.epoch += 1;
        let mut dropped = Vec::new();
        match spot {
            Spot::Direct(number) => {
                let at = partition
                    .direct
                    .iter()
                    .position(|block| block.number == number);
                dropped.extend(partition.direct.drain(at.unwrap_or(0)..));
                let left = partition.direct.len();
                partition.filters.truncate(left);
                let dropped = partition.drop_tier_3(&self.tiers.layouts, &self.flash.store);
                add(&self.tiers.counters.dropped_behind_damage, dropped);
            }
            Spot::Active(list, number) => {
                let list = &mut partition.lists[list];
                let is_it = |block: &Block| block.number == number;
                if let Some(at) = list.blocks.iter().position(is_it) {
                    dropped.extend(list.blocks.drain(at..));
                    dropped.append(&mut list.compacted);
                } else if let Some(at) = list.compacted.iter().position(is_it) {
                    dropped.extend(list.compacted.drain(at..));
                }
                let left = list.blocks.len() + list.compacted.len();
                list.filters.truncate(left);
                let lost = list.drop_buckets(&self.tiers.layouts, &self.flash.store);
                add(&self.tiers.counters.dropped_behind_damage, lost as u64);
            }
            Spot::Bucket(list, bucket, page) => {
                let bucket = &mut partition.lists[list].buckets[bucket];
                if let Some(at) = bucket.pages.iter().position(|other| other.page == page) {
                    let of_dropped = bucket.pages[..=at]
                        .iter()
                        .map(|page| u64::from(page.entries));
                    add(&self.tiers.counters.dropped_behind_damage, of_dropped.sum());
                    let filter = &self.tiers.layouts.active.page_filter;
                    self.flash.store.release(bucket.drop_oldest(filter, at + 1));
                }
            }
        }
        for block in dropped {
            add(
                &self.tiers.counters.dropped_behind_damage,
                u64::from(block.entries),
            );
            self.flash.store.release(block.all_pages());
        }
    }
}
