//! A partition of a cascade: the state of its three tiers in memory, and the moves between them (section 4.1).
//!
//! ```text
//!   hot ──demote──> demoted ──written──> direct ──sink──> buffer ──seal──> sealed ──written──> blocks
//!   (Tier 1)        (memory)             (Tier 2)         (memory)         (memory)            (Tier 3, active)
//!                                                                                                │ at 64 blocks
//!                                        buckets <──────────── compaction ──────────────── compacted
//!                                        (Tier 3, inactive)
//! ```
//!
//! Invariant: of two mappings of a key the older one is further down. Every move is complete in one hold of the
//! partition's lock, so the first match of a search from the top is the newest, whenever the search began. Mappings are
//! dropped from the bottom only: a newer mapping, be it a tombstone or one whose segment is gone, never before an older
//! one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::encoding::mapping::Entry;
use hashbrown::HashTable;
use hashbrown::hash_table;
use on_flash::bloom::mix;

use super::block::{Block, Read};
use super::hot::{Hot, HotTable};
use super::layout::{BlockLayout, PageRef};
use super::layouts::Layouts;
use super::pages::{PageId, PageStore};
use super::slices::{Filter, Slices};

/// Entries taken out of a tier and not on flash yet: one a key, sorted by key.
pub(super) type Sorted = Arc<[Entry]>;

pub(super) struct Partition {
    pub(super) hot: HotTable,
    /// Rises when entries leave a tier. A search that began before does not promote its result.
    pub(super) epoch: u64,
    /// Entries that left Tier 1 and are not on flash yet, in blocks, the oldest first.
    pub(super) demoted: VecDeque<Sorted>,
    /// Tier 2, the newest block first.
    pub(super) direct: VecDeque<Block>,
    /// Filters of the blocks of Tier 2.
    pub(super) filters: Slices,
    pub(super) lists: Box<[ActiveList]>,
}

/// A list of the active table, with its range of inactive buckets.
pub(super) struct ActiveList {
    pub(super) buffer: Buffer,
    pub(super) sealed: Option<Sorted>,
    /// Blocks of the active list, newest first.
    pub(super) blocks: VecDeque<Block>,
    /// Blocks being compacted, newest first.
    pub(super) compacted: Vec<Block>,
    /// Filters of `blocks` and `compacted`.
    pub(super) filters: Slices,
    pub(super) buckets: Box<[Bucket]>,
    /// Buckets before this one have all their filters.
    filtered: usize,
}

/// The newest entry of each key that has arrived since the last block was sealed.
#[derive(Default)]
pub(super) struct Buffer(HashTable<Entry>);

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.allocation_size()
    }

    pub(super) fn find(&self, key: u64) -> Option<Entry> {
        let is_it = |entry: &Entry| entry.key() == key;
        self.0.find(mix(key), is_it).copied()
    }

    pub(super) fn put(&mut self, new: Entry) {
        let is_it = |entry: &Entry| entry.key() == new.key();
        let hash = |entry: &Entry| mix(entry.key());
        match self.0.entry(mix(new.key()), is_it, hash) {
            hash_table::Entry::Occupied(mut old) => *old.get_mut() = new,
            hash_table::Entry::Vacant(place) => {
                place.insert(new);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Takes out the entries of the lowest hashes, `most` at most: the number that a block and its filter are made for.
    /// More can be there, since a block of Tier 2 comes from a few buckets of Tier 1 and may fall into one list.
    pub(super) fn seal(&mut self, most: usize) -> Sorted {
        let mut entries: Vec<Entry> = self.0.drain().collect();
        entries.sort_unstable_by_key(Entry::key);
        let rest = entries.split_off(most.min(entries.len()));
        rest.into_iter().for_each(|entry| self.put(entry));
        entries.into()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A page of an inactive bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketPage {
    pub(super) page: PageRef,
    /// The highest segment number in the page.
    pub(super) newest: u32,
    pub(super) entries: u16,
}

/// An inactive bucket: pages that compactions have appended.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Pages, oldest first.
    pub(super) pages: Vec<BucketPage>,
    /// Filters of the pages, in the same order. Fewer if filters are off, or not made yet after a start.
    filters: Vec<u8>,
}

impl Bucket {
    pub(super) fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<BucketPage>() + self.filters.capacity()
    }

    /// Appends a page. Leaves its filter out if those of earlier pages are missing.
    pub(super) fn append(&mut self, page: BucketPage, filter: &[u8]) {
        let is_complete = self.filters.len() == self.pages.len() * filter.len();
        self.pages.reserve_exact(1);
        self.pages.push(page);
        if is_complete {
            self.filters.reserve_exact(filter.len());
            self.filters.extend_from_slice(filter);
        }
    }

    /// Whether filters are still to be made.
    pub(super) fn lacks_filters(&self, filter: &Filter) -> bool {
        self.filters.len() != self.pages.len() * filter.bytes
    }

    /// Sets the filters of these pages, if the bucket still has the same pages: some may have been dropped while they
    /// were read.
    pub(super) fn set_filters(&mut self, of: &[PageRef], filters: Vec<u8>) {
        if self.pages.iter().map(|page| &page.page).eq(of) {
            self.filters = filters;
        }
    }

    /// Removes the `count` oldest pages and returns them.
    pub(super) fn drop_oldest(&mut self, filter: &Filter, count: usize) -> Vec<PageId> {
        if self.lacks_filters(filter) {
            self.filters.clear();
        } else {
            self.filters.drain(..count * filter.bytes);
        }
        let dropped = self.pages.drain(..count);
        dropped.map(|page| page.page.page).collect()
    }

    /// Frees the memory of dropped pages.
    pub(super) fn shrink(&mut self) {
        self.pages.shrink_to_fit();
        self.filters.shrink_to_fit();
    }

    /// Returns the pages that may have a key, newest first.
    pub(super) fn candidates<'b>(
        &'b self,
        filter: &'b Filter,
        key: u64,
    ) -> impl Iterator<Item = PageRef> + 'b {
        let is_filtered = filter.is_kept() && !self.lacks_filters(filter);
        let key = filter.key_bits(key);
        let numbered = self.pages.iter().enumerate().rev();
        numbered.filter_map(move |(number, page)| {
            let may_have = !is_filtered || filter.may_have(&self.filters, number, &key);
            may_have.then_some(page.page)
        })
    }
}

/// Place of a page in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// A block of Tier 2, by its number.
    Direct(u64),
    /// A block of a list: the list, the block's number.
    Active(usize, u64),
    /// A page of a bucket: the list, the bucket, the page.
    Bucket(usize, usize, PageRef),
}

/// The parts of the lower tiers that may name a key, newest first.
pub(super) struct Plan {
    /// Reads of Tier 2.
    pub(super) direct: Vec<Read>,
    /// Entry in a buffer of Tier 3, which ends the search behind Tier 2 without a read.
    pub(super) buffered: Option<Entry>,
    /// Reads of Tier 3: blocks, filters and pages.
    pub(super) indirect: Vec<Read>,
}

/// Returns the entry of a key in a sorted slice.
pub(super) fn find_sorted(entries: &[Entry], key: u64) -> Option<Entry> {
    let at = entries.binary_search_by_key(&key, Entry::key).ok()?;
    Some(entries[at])
}

impl Partition {
    pub(super) fn new(hot: HotTable, layouts: &Layouts) -> Self {
        let list = |_| ActiveList {
            buffer: Buffer::default(),
            sealed: None,
            blocks: VecDeque::new(),
            compacted: Vec::new(),
            filters: Slices::default(),
            buckets: (0..layouts.ratio).map(|_| Bucket::default()).collect(),
            filtered: 0,
        };
        Self {
            hot,
            epoch: 0,
            demoted: VecDeque::new(),
            direct: VecDeque::new(),
            filters: Slices::default(),
            lists: (0..1usize << layouts.list_bits).map(list).collect(),
        }
    }

    /// Returns the newest entry of a key among those on their way to Tier 2.
    pub(super) fn find_demoted(&self, key: u64) -> Option<Entry> {
        let newest_first = self.demoted.iter().rev();
        newest_first
            .filter_map(|entries| find_sorted(entries, key))
            .next()
    }

    /// Whether an entry of a key that no lower tier has is on its way to Tier 2.
    pub(super) fn is_unwritten(&self, key: u64) -> bool {
        let mut entries = self.demoted.iter();
        entries.any(|entries| find_sorted(entries, key).is_some_and(|entry| !entry.is_clean()))
    }

    /// Plans a search for a key below Tier 1 and `demoted`.
    pub(super) fn plan(&self, layouts: &Layouts, key: u64) -> Plan {
        let list = &self.lists[layouts.list(key)];
        let buffered = list.find_buffered(key);
        let indirect = match buffered {
            Some(_) => Vec::new(),
            None => list.reads(layouts, key),
        };
        let mut direct = Vec::new();
        for (block, may_have) in self.direct_candidates(layouts, key) {
            block.append_reads(&layouts.direct, may_have, &mut direct);
        }
        Plan {
            direct,
            buffered,
            indirect,
        }
    }

    /// Returns the blocks of Tier 2 that may have a key, newest first, with the range of pages that may.
    fn direct_candidates<'a>(
        &'a self,
        layouts: &'a Layouts,
        key: u64,
    ) -> impl Iterator<Item = (&'a Block, Range<usize>)> + 'a {
        let layout = &layouts.direct;
        let blocks = self.filters.may_have(layout.filter.key_bits(key));
        let blocks = blocks.map(move |number| {
            let block = &self.direct[number];
            (block, block.span(layout, key))
        });
        blocks.filter(|(_, may_have)| !may_have.is_empty())
    }

    /// Whether a tier below the first may name a key.
    pub(super) fn may_be_below(&self, layouts: &Layouts, key: u64) -> bool {
        self.find_demoted(key).is_some()
            || self.direct_candidates(layouts, key).next().is_some()
            || self.lists[layouts.list(key)].may_have(layouts, key)
    }

    /// Whether Tier 1 maps a key to this place.
    pub(super) fn says(&self, key: u64, code: u64) -> bool {
        let said = self.hot.get(key);
        said.is_some_and(|entry| entry.hot == Hot::At(code))
    }

    /// Removes all mappings of a key.
    pub(super) fn bury(&mut self, layouts: &Layouts, key: u64) {
        if self.may_be_below(layouts, key) {
            self.hot.put(key, Hot::Dead, true);
        } else {
            self.hot.remove(key);
            // A search may have read an older mapping in a lower tier that has dropped it since.
            self.epoch += 1;
        }
    }

    /// Whether a search for `key` may still read a page.
    pub(super) fn names(&self, layouts: &Layouts, key: u64, page: PageRef) -> bool {
        let list = &self.lists[layouts.list(key)];
        let bucket = &list.buckets[layouts.bucket(key)];
        let blocks = self
            .direct
            .iter()
            .chain(&list.blocks)
            .chain(&list.compacted);
        blocks.into_iter().any(|block| block.has(page))
            || bucket.pages.iter().any(|of_bucket| of_bucket.page == page)
    }

    /// Moves the entries of the oldest block of Tier 2 to the buffers of their lists. Leaves out entries that a lower
    /// tier has, and tombstones with nothing below them.
    pub(super) fn sink(&mut self, layouts: &Layouts, entries: &[Entry]) -> Option<Block> {
        let block = self.direct.pop_back()?;
        self.filters.truncate(self.direct.len());
        self.epoch += 1;
        for entry in entries.iter().filter(|entry| !entry.is_clean()) {
            let list = &mut self.lists[layouts.list(entry.key())];
            if entry.item().is_some() || list.may_have(layouts, entry.key()) {
                list.buffer.put(*entry);
            }
        }
        Some(block)
    }

    /// Drops Tier 3, and releases its pages. Returns the number of mappings dropped.
    pub(super) fn drop_tier_3(&mut self, layouts: &Layouts, store: &PageStore) -> u64 {
        self.epoch += 1;
        let mut dropped = 0;
        for list in &mut self.lists {
            dropped += list.buffer.len() + list.sealed.take().map_or(0, |sealed| sealed.len());
            list.buffer.clear();
            for block in list.blocks.drain(..).chain(list.compacted.drain(..)) {
                dropped += block.entries as usize;
                store.release(block.all_pages());
            }
            list.filters.truncate(0);
            dropped += list.drop_buckets(layouts, store);
        }
        dropped as u64
    }

    /// Returns the pages at a spot.
    pub(super) fn pages_at(&self, spot: Spot) -> Vec<PageRef> {
        let block = match spot {
            Spot::Direct(number) => self.direct.iter().find(|block| block.number == number),
            Spot::Active(list, number) => {
                let list = &self.lists[list];
                let mut blocks = list.blocks.iter().chain(&list.compacted);
                blocks.find(|block| block.number == number)
            }
            Spot::Bucket(_, _, page) => return vec![page],
        };
        block.map_or_else(Vec::new, |block| block.page_refs().collect())
    }

    /// Returns the block at a spot, and the filters that include its own, with its place among them.
    pub(super) fn block_at(&mut self, spot: Spot) -> Option<(&mut Block, &mut Slices, usize)> {
        let (mut blocks, filters, number): (Box<dyn Iterator<Item = &mut Block>>, _, _) = match spot
        {
            Spot::Direct(number) => {
                let blocks = self.direct.iter_mut();
                (Box::new(blocks), &mut self.filters, number)
            }
            Spot::Active(list, number) => {
                let list = &mut self.lists[list];
                let blocks = list.blocks.iter_mut().chain(&mut list.compacted);
                (Box::new(blocks), &mut list.filters, number)
            }
            Spot::Bucket(..) => return None,
        };
        let mut numbered = (0..).zip(&mut blocks);
        let (place, block) = numbered.find(|(_, block)| block.number == number)?;
        Some((block, filters, place))
    }

    /// Returns a block or bucket that lacks filters, and its pages, those of a bucket oldest first. After a start most
    /// lack them.
    pub(super) fn without_filters(&mut self, layouts: &Layouts) -> Option<(Spot, Vec<PageRef>)> {
        let lacks = |block: &&Block| block.lacks_filter(&layouts.direct.filter);
        if let Some(block) = self.direct.iter().find(lacks) {
            return Some((Spot::Direct(block.number), block.page_refs().collect()));
        }
        let filter = &layouts.active.page_filter;
        for (number, list) in self.lists.iter_mut().enumerate() {
            let mut blocks = list.blocks.iter().chain(&list.compacted);
            if let Some(block) = blocks.find(lacks) {
                let spot = Spot::Active(number, block.number);
                return Some((spot, block.page_refs().collect()));
            }
            while let Some(bucket) = list.buckets.get(list.filtered) {
                if bucket.lacks_filters(filter) {
                    let spot = Spot::Bucket(number, list.filtered, bucket.pages[0].page);
                    return Some((spot, bucket.pages.iter().map(|page| page.page).collect()));
                }
                list.filtered += 1;
            }
        }
        None
    }

    /// Returns the bytes of memory of everything below Tier 1.
    pub(super) fn heap_bytes(&self) -> usize {
        let blocks = |blocks: &VecDeque<Block>| {
            let of_blocks: usize = blocks.iter().map(Block::heap_bytes).sum();
            of_blocks + blocks.capacity() * size_of::<Block>()
        };
        let demoted: usize = self
            .demoted
            .iter()
            .map(|entries| size_of_val(&**entries))
            .sum();
        let lists = self.lists.iter().map(|list| {
            let sealed = list
                .sealed
                .as_ref()
                .map_or(0, |entries| size_of_val(&**entries));
            let compacted: usize = list.compacted.iter().map(Block::heap_bytes).sum();
            let buckets: usize = list.buckets.iter().map(Bucket::heap_bytes).sum();
            let of_list =
                size_of::<ActiveList>() + size_of_val(&*list.buckets) + list.filters.heap_bytes();
            of_list + list.buffer.heap_bytes() + sealed + blocks(&list.blocks) + compacted + buckets
        });
        demoted + blocks(&self.direct) + self.filters.heap_bytes() + lists.sum::<usize>()
    }
}

impl ActiveList {
    pub(super) fn find_buffered(&self, key: u64) -> Option<Entry> {
        let sealed = || find_sorted(self.sealed.as_deref()?, key);
        self.buffer.find(key).or_else(sealed)
    }

    /// Returns the numbers of the blocks that may have a key, newest first, with the range of pages that may.
    fn candidates<'a>(
        &'a self,
        layout: &'a BlockLayout,
        key: u64,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + 'a {
        let blocks = self.filters.may_have(layout.filter.key_bits(key));
        let blocks = blocks.map(move |number| (number, self.block(number).span(layout, key)));
        blocks.filter(|(_, may_have)| !may_have.is_empty())
    }

    /// Returns the pages of the inactive bucket that may have a key, newest first.
    fn of_bucket<'a>(
        &'a self,
        layouts: &'a Layouts,
        key: u64,
    ) -> impl Iterator<Item = PageRef> + 'a {
        let bucket = &self.buckets[layouts.bucket(key)];
        bucket.candidates(&layouts.active.page_filter, key)
    }

    /// Returns the reads of a search for a key in this list, in order.
    fn reads(&self, layouts: &Layouts, key: u64) -> Vec<Read> {
        let layout = &layouts.active;
        let mut reads = Vec::new();
        let mut candidates = self.candidates(layout, key).peekable();
        let all = 0..self.blocks.len() + self.compacted.len();
        for number in all.filter(|_| layouts.jump_distance > 0) {
            let block = self.block(number);
            let Some(jump) = &block.jump else { continue };
            // Blocks in front of those that the filter covers.
            while let Some((number, may_have)) = candidates.next_if(|&(other, _)| other < number) {
                let block = self.block(number);
                block.append_reads(layout, may_have, &mut reads);
            }
            let end = number + jump.blocks as usize;
            let mut over = Vec::new();
            while let Some((number, may_have)) = candidates.next_if(|&(other, _)| other < end) {
                self.block(number).append_reads(layout, may_have, &mut over);
            }
            // A filter costs one read, so it must be able to save more than one.
            if over.len() > 1
                && let Some(page) = block.jump_page(layout, key)
            {
                reads.push(Read::Jump(page, over.len()));
            }
            reads.append(&mut over);
        }
        for (number, may_have) in candidates {
            self.block(number)
                .append_reads(layout, may_have, &mut reads);
        }
        reads.extend(self.of_bucket(layouts, key).map(Read::Page));
        reads
    }

    /// Returns a block by its place: `blocks` first, then `compacted`.
    fn block(&self, number: usize) -> &Block {
        let compacted = || &self.compacted[number - self.blocks.len()];
        self.blocks.get(number).unwrap_or_else(compacted)
    }

    pub(super) fn may_have(&self, layouts: &Layouts, key: u64) -> bool {
        self.find_buffered(key).is_some()
            || self.candidates(&layouts.active, key).next().is_some()
            || self.of_bucket(layouts, key).next().is_some()
    }

    /// Drops the mappings of the buckets, and releases their pages. Returns the number of mappings dropped.
    pub(super) fn drop_buckets(&mut self, layouts: &Layouts, store: &PageStore) -> usize {
        let mut dropped = 0;
        for bucket in &mut self.buckets {
            let pages = bucket.pages.iter();
            dropped += pages.map(|page| usize::from(page.entries)).sum::<usize>();
            let all = bucket.pages.len();
            store.release(bucket.drop_oldest(&layouts.active.page_filter, all));
        }
        dropped
    }
}
