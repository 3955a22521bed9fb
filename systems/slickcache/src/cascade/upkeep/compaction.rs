//! Compaction of an active list (section 4.1.3, Dual-mode Mapping).

use crate::encoding::mapping::Entry;
use parking_lot::Mutex;

use super::super::block;
use super::super::counters::add;
use super::super::flash::Flash;
use super::super::layout::PageRef;
use super::super::partition::{BucketPage, Partition};
use super::super::tiers::Tiers;
use super::writer::Writer;

/// Number of pages at which an inactive bucket is rewritten without tombstones and entries of reclaimed segments.
const MOST_BUCKET_PAGES: usize = 12;
/// Approximate number of pages of inactive buckets written at once.
const BUCKET_PAGES: usize = 64;

/// The compaction of one list of a partition.
///
/// Invariant: the blocks stay in the list until the buckets have all their mappings. Mappings that eviction drops while they
/// are rewritten are not written back.
pub(super) struct Compaction<'u> {
    partition: &'u Mutex<Partition>,
    tiers: &'u Tiers,
    flash: &'u Flash,
    writer: &'u Writer<'u>,
    list: usize,
}

impl<'u> Compaction<'u> {
    pub(super) fn new(writer: &'u Writer<'u>, list: usize) -> Self {
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
            list,
        }
    }

    /// Moves the mappings of a list's `compacted` blocks to its inactive buckets (section 4.1.3, Dual-mode Mapping).
    pub(super) async fn run(&self) {
        let blocks: Vec<Vec<PageRef>> = {
            let partition = self.partition.lock();
            let blocks = partition.lists[self.list].compacted.iter();
            blocks.map(|block| block.page_refs().collect()).collect()
        };
        let mut entries = Vec::new();
        let mut whole = 0;
        for pages in &blocks {
            match self
                .flash
                .read_pages(&self.tiers.layouts.active, pages)
                .await
            {
                Ok(of_block) => entries.extend(of_block),
                Err(error) => {
                    tracing::warn!(%error, "a block of the index is lost, with older mappings of its list");
                    break;
                }
            }
            whole += 1;
        }
        if whole < blocks.len() {
            let mut partition = self.partition.lock();
            partition.epoch += 1;
            let (layouts, store) = (&self.tiers.layouts, &self.flash.store);
            let list = &mut partition.lists[self.list];
            let lost = list.compacted[whole..].iter();
            let lost: u64 = lost.map(|block| u64::from(block.entries)).sum();
            let lost = lost + list.drop_buckets(layouts, store) as u64;
            add(&self.tiers.counters.dropped_behind_damage, lost);
        }
        // Keeps the newest entry of each key: newer blocks come first, and the sort is stable.
        entries.sort_by_key(Entry::key);
        entries.dedup_by_key(|entry| entry.key());
        for of_some in self.by_buckets(&entries) {
            while !self.append_to_buckets(of_some).await {
                if self.partition.lock().lists[self.list].compacted.is_empty() {
                    // Everything below Tier 1 was dropped, these blocks included.
                    return;
                }
            }
        }
        let mut partition = self.partition.lock();
        partition.epoch += 1;
        let list = &mut partition.lists[self.list];
        let compacted = std::mem::take(&mut list.compacted);
        list.filters.truncate(list.blocks.len());
        for block in compacted {
            self.flash.store.release(block.all_pages());
        }
        add(&self.tiers.counters.compactions, 1);
    }

    /// Cuts sorted entries into parts of whole buckets, each of about [`BUCKET_PAGES`] pages.
    fn by_buckets<'e>(&self, mut entries: &'e [Entry]) -> Vec<&'e [Entry]> {
        let mut parts = Vec::new();
        while !entries.is_empty() {
            let at = (BUCKET_PAGES * self.tiers.shape.page_entries / 2).min(entries.len()) - 1;
            let bucket = self.tiers.layouts.bucket(entries[at].key());
            let end =
                entries.partition_point(|entry| self.tiers.layouts.bucket(entry.key()) <= bucket);
            let (part, rest) = entries.split_at(end);
            parts.push(part);
            entries = rest;
        }
        parts
    }

    /// Appends entries to their buckets, and rewrites buckets that have become long. Returns false, with nothing changed,
    /// if the device fails or if pages that were to be replaced are evicted before that. The caller then tries again.
    async fn append_to_buckets(&self, entries: &[Entry]) -> bool {
        let mut groups = Vec::new();
        let is_same = |one: &Entry, other: &Entry| {
            self.tiers.layouts.bucket(one.key()) == self.tiers.layouts.bucket(other.key())
        };
        for of_bucket in entries.chunk_by(is_same) {
            groups.push(self.for_bucket(of_bucket).await);
        }
        let layout = &self.tiers.layouts.active;
        let contents: Vec<&[Entry]> = groups
            .iter()
            .flat_map(|group| group.entries.chunks(layout.page_entries))
            .collect();
        let Some(written) = self.writer.write_single_pages(&contents).await else {
            return false;
        };
        let filter = &layout.page_filter;
        let mut partition = self.partition.lock();
        let buckets = &partition.lists[self.list].buckets;
        let has_lost_some = |group: &Group| buckets[group.bucket].pages.len() < group.replaces;
        if groups.iter().any(has_lost_some) {
            // Eviction took pages that a group replaces. If one of their keys was deleted since, it has no tombstone, and
            // its old mapping must not be written back.
            self.flash
                .store
                .release(written.iter().map(|page| page.page));
            return false;
        }
        let mut written = contents.into_iter().zip(written);
        partition.epoch += 1;
        let horizon = self.tiers.segments.horizon();
        for group in &groups {
            let bucket = &mut partition.lists[self.list].buckets[group.bucket];
            let oldest = bucket.pages.iter();
            let gone = oldest.take_while(|page| page.newest < horizon).count();
            let dropped = bucket.drop_oldest(filter, gone.max(group.replaces));
            self.flash.store.release(dropped);
            for (entries, page) in written.by_ref().take(layout.pages_for(group.entries.len())) {
                let page = BucketPage {
                    page,
                    newest: block::newest(entries),
                    entries: entries.len() as u16,
                };
                bucket.append(page, &filter.of(entries));
            }
        }
        true
    }

    /// Returns the entries to write to the bucket of `new`, and the number of pages that they replace.
    async fn for_bucket(&self, new: &[Entry]) -> Group {
        let bucket = self.tiers.layouts.bucket(new[0].key());
        let pages: Vec<BucketPage> = {
            let partition = self.partition.lock();
            let pages = &partition.lists[self.list].buckets[bucket].pages;
            pages.iter().rev().copied().collect()
        };
        if !pages.is_empty() && pages.len() < MOST_BUCKET_PAGES {
            return Group {
                bucket,
                entries: new.to_vec(),
                replaces: 0,
            };
        }
        let mut entries = new.to_vec();
        for (at, page) in pages.iter().enumerate() {
            match self
                .flash
                .read_pages(&self.tiers.layouts.active, &[page.page])
                .await
            {
                Ok(of_page) => entries.extend(of_page),
                Err(error) => {
                    tracing::warn!(%error, "a page of the index is lost, with older mappings of its bucket");
                    let lost = pages[at..].iter();
                    let lost: u64 = lost.map(|page| u64::from(page.entries)).sum();
                    add(&self.tiers.counters.dropped_behind_damage, lost);
                    break;
                }
            }
        }
        entries.sort_by_key(Entry::key);
        entries.dedup_by_key(|entry| entry.key());
        // The bucket has no older entries that tombstones would hide.
        entries.retain(|entry| self.is_there(entry));
        Group {
            bucket,
            entries,
            replaces: pages.len(),
        }
    }

    fn is_there(&self, entry: &Entry) -> bool {
        self.tiers.segments.code_of(entry).is_some()
    }
}

/// Entries to write to one bucket.
struct Group {
    bucket: usize,
    entries: Vec<Entry>,
    /// Number of the bucket's oldest pages that they replace: 0, or all it had.
    replaces: usize,
}
