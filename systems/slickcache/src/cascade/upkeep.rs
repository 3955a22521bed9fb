//! Upkeep: moves mappings from tier to tier. Each partition has one upkeep task.
//!
//! Each step has three parts: choose a job under the partition's lock; read or write pages, which no other task changes,
//! without it; install the result under the lock. Until then searches find the moved mappings in their old place.

use std::time::Duration;

use device::DeviceError;
use format::mapping::Entry;
use format::segment::Position;
use futures_util::future::join_all;

use super::block::{self, Block, Draft};
use super::core::{Cascade, add};
use super::hot::{Hot, HotEntry};
use super::jump::JumpFilter;
use super::layout::{BlockLayout, PageError, PageRef};
use super::pages::PageId;
use super::partition::{Bucket, BucketPage, Partition, Sorted, Spot};
use super::shape::MOST_DEMOTED;

/// Number of pages at which an inactive bucket is rewritten without tombstones and entries of reclaimed segments.
const MOST_BUCKET_PAGES: usize = 12;
/// Pause after a device error, and while no page is free.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of retries before a page counts as lost.
const READS: usize = 4;
/// Number of pauses to wait for free pages before writers stop waiting for upkeep.
const PATIENCE: u32 = 50;
/// Number of pages read at once.
const READ_PAGES: usize = 16;
/// Approximate number of pages of inactive buckets written at once.
const BUCKET_PAGES: usize = 64;

/// Next job of a partition's upkeep.
enum Job {
    WriteDemoted(Sorted),
    /// All entries that left Tier 1 named reclaimed segments; more entries may have to leave.
    DemoteMore,
    Sink(Vec<PageRef>),
    WriteSealed(usize, Sorted),
    Compact(usize),
    /// Pages that a failed sync may have lost, to be written again.
    WriteAgain(Spot, Vec<PageRef>),
    /// Pages whose filters are missing after a start, oldest first.
    MakeFilters(Spot, Vec<PageRef>),
}

impl Cascade {
    /// Moves mappings down whenever a tier is full. Calls `moved` after each step, which may have changed the memory in
    /// use. Never returns; each partition runs one.
    pub async fn upkeep(&self, number: usize, moved: impl Fn()) {
        self.brake.set_makes_way(true);
        loop {
            let changed = self.work[number].listener();
            if self.tidy(number).await {
                moved();
            } else {
                changed.await;
            }
        }
    }

    /// Does one step of upkeep. Returns whether there was a job.
    pub(super) async fn tidy(&self, number: usize) -> bool {
        let job = self.next_job(number);
        let is_any = job.is_some();
        match job {
            Some(Job::WriteDemoted(entries)) => self.write_demoted(number, &entries).await,
            Some(Job::DemoteMore) => runtime::yield_now().await,
            Some(Job::Sink(pages)) => self.sink(number, &pages).await,
            Some(Job::WriteSealed(list, entries)) => {
                self.write_sealed(number, list, &entries).await
            }
            Some(Job::Compact(list)) => self.compact(number, list).await,
            Some(Job::WriteAgain(spot, pages)) => self.write_again(number, spot, &pages).await,
            Some(Job::MakeFilters(spot, pages)) => self.make_filters(number, spot, &pages).await,
            // `account` runs even so: writers may have made space in Tier 1.
            None => {}
        }
        let partition = self.partitions[number].lock();
        self.account(number, &partition);
        is_any
    }

    /// Chooses the job furthest down, as it makes space for the tiers above.
    fn next_job(&self, number: usize) -> Option<Job> {
        let shape = &self.shape;
        let mut partition = self.partitions[number].lock();
        if let Some(spot) = self.doubt.spot(number, &partition) {
            return Some(Job::WriteAgain(spot, partition.pages_at(spot)));
        }
        for (list, of_list) in partition.lists.iter_mut().enumerate() {
            if of_list.compacted.is_empty() && of_list.blocks.len() >= shape.active_blocks {
                of_list.compacted = of_list.blocks.drain(..).collect();
            }
            if !of_list.compacted.is_empty() {
                return Some(Job::Compact(list));
            }
            if of_list.sealed.is_none() && of_list.buffer.len() >= shape.buffered() {
                of_list.sealed = Some(of_list.buffer.seal(shape.buffered()));
            }
            if let Some(sealed) = &of_list.sealed {
                return Some(Job::WriteSealed(list, Sorted::clone(sealed)));
            }
        }
        if partition.direct.len() > shape.direct_blocks {
            let oldest = partition.direct.back()?;
            return Some(Job::Sink(oldest.page_refs().collect()));
        }
        if partition.hot.len() > self.bounds.hot() && partition.demoted.len() < MOST_DEMOTED {
            let before = partition.hot.memory_bytes();
            self.demote(&mut partition);
            let grown = partition.hot.memory_bytes().wrapping_sub(before);
            add(&self.hot_bytes, grown);
            if partition.demoted.is_empty() {
                return Some(Job::DemoteMore);
            }
        }
        if let Some(oldest) = partition.demoted.front() {
            return Some(Job::WriteDemoted(Sorted::clone(oldest)));
        }
        let (spot, pages) = partition.without_filters(&self.layouts)?;
        Some(Job::MakeFilters(spot, pages))
    }

    /// Takes a block's worth of mappings out of Tier 1 (section 4.1.1).
    pub(super) fn demote(&self, partition: &mut Partition) {
        let taken = partition.hot.demote(self.shape.demoted());
        let mut entries = Vec::with_capacity(taken.len());
        entries.extend(
            taken
                .iter()
                .filter_map(|taken| self.on_its_way_down(partition, taken)),
        );
        entries.sort_unstable_by_key(Entry::key);
        add(&self.counters.demoted, entries.len() as u64);
        partition.epoch += 1;
        if !entries.is_empty() {
            partition.demoted.push_back(entries.into());
        }
    }

    /// Returns the entry to write for a mapping that leaves Tier 1. If its segment is gone or its key is dead, this is a
    /// tombstone that hides older mappings, or `None` if no lower tier can have one.
    fn on_its_way_down(&self, partition: &Partition, taken: &HotEntry) -> Option<Entry> {
        let named = match taken.hot {
            Hot::At(code) => self.segments.named_by(code),
            Hot::Dead => None,
        };
        let key = taken.hash;
        match named {
            Some(named) => Some(entry_of(key, named, taken.is_dirty)),
            None => partition
                .may_be_below(&self.layouts, key)
                .then(|| Entry::tombstone(key)),
        }
    }

    async fn write_demoted(&self, number: usize, entries: &Sorted) {
        let layout = &self.layouts.direct;
        if let Some(block) = self.write_block(number, layout, entries, None).await {
            // Only upkeep changes the filters, so they can be rebuilt without the lock.
            let filters = self.partitions[number].lock().filters.clone();
            let filters = filters.with_newest(&layout.filter.of(entries));
            let mut partition = self.partitions[number].lock();
            partition.demoted.pop_front();
            partition.direct.push_front(block);
            partition.filters = filters;
        }
    }

    async fn write_sealed(&self, number: usize, list: usize, entries: &Sorted) {
        let layout = &self.layouts.active;
        let jump = self.jump_filter(number, list, entries).await;
        if let Some(block) = self.write_block(number, layout, entries, jump).await {
            let filters = self.partitions[number].lock().lists[list].filters.clone();
            let filters = filters.with_newest(&layout.filter.of(entries));
            let mut partition = self.partitions[number].lock();
            let list = &mut partition.lists[list];
            list.sealed = None;
            list.blocks.push_front(block);
            list.filters = filters;
        }
    }

    /// Returns the jump filter of a new block: every `jump_distance`-th block of a list has one, over itself and the older
    /// blocks up to the next filter. Returns `None` for other blocks, and if one of these blocks cannot be read.
    async fn jump_filter(&self, number: usize, list: usize, new: &[Entry]) -> Option<JumpFilter> {
        let distance = self.layouts.jump_distance;
        if distance == 0 {
            return None;
        }
        let covered: Vec<PageRef> = {
            let blocks = &self.partitions[number].lock().lists[list].blocks;
            if !(blocks.len() + 1).is_multiple_of(distance) {
                return None;
            }
            let covered = blocks.iter().take(distance - 1);
            covered.flat_map(|block| block.page_refs()).collect()
        };
        let layout = &self.layouts.active;
        let entries = self.read_pages(layout, &covered).await;
        let entries = entries.inspect_err(|error| tracing::warn!(%error, "a list gets no filter"));
        let entries = entries.ok()?;
        let keys: Vec<u64> = entries.iter().chain(new).map(Entry::key).collect();
        Some(JumpFilter::new(layout, distance, &keys))
    }

    /// Writes a block once there are pages for it. Returns `None` if the device fails (the caller's job is then tried
    /// again) or the partition's lower tiers were dropped.
    async fn write_block(
        &self,
        number: usize,
        layout: &BlockLayout,
        entries: &[Entry],
        jump: Option<JumpFilter>,
    ) -> Option<Block> {
        let jump_pages = jump.as_ref().map_or(0, |jump| jump.pages.len());
        let pages = layout.pages_for(entries.len()) + jump_pages;
        let pages = self.take_pages(number, pages).await?;
        let (_writing, first) = self.doubt.writing(|| self.take_numbers(pages.len()));
        let draft = Draft::new(layout, first, entries, jump.as_ref(), &pages);
        match draft.write(&self.store).await {
            Ok(()) => Some(draft.block),
            Err(error) => {
                self.write_failed(number, &pages, &error).await;
                None
            }
        }
    }

    async fn write_failed(&self, number: usize, pages: &[PageId], error: &DeviceError) {
        self.store.release(pages.iter().copied());
        self.lose_all_if_overwhelmed(number);
        add(&self.counters.write_errors, 1);
        self.brake.set_makes_way(false);
        tracing::warn!(%error, "the index cannot be written");
        runtime::sleep(PAUSE).await;
    }

    fn take_numbers(&self, count: usize) -> u64 {
        use std::sync::atomic::Ordering;
        self.next_number.fetch_add(count as u64, Ordering::Relaxed)
    }

    /// Takes `count` pages. While too few are free, asks for a checkpoint if it would free some, and drops the oldest
    /// mappings of the partition if even checkpoints would not free enough. Returns `None` if everything below Tier 1 was
    /// dropped, together with the entries that the pages were for.
    async fn take_pages(&self, number: usize, count: usize) -> Option<Box<[PageId]>> {
        for tries in 0.. {
            let freed = self.store.freed.listener();
            // Writing again after a failed sync may use reserved pages: no checkpoint is made before, and no page becomes
            // free without one.
            let pages = if self.doubt.is_any() {
                self.store.take_reserved(count)
            } else {
                self.store.take(count)
            };
            if let Some(pages) = pages {
                if self.store.is_checkpoint_due() {
                    self.ask_for_checkpoint();
                }
                self.brake.set_makes_way(true);
                return Some(pages);
            }
            let missing = self
                .store
                .missing_pages(count.max(self.store.worth_freeing()));
            // Other tasks may find pages and report progress, though this task blocks all compactions: hence `PATIENCE`.
            let is_stuck = missing > 0 && !self.evict(number, missing) || tries >= PATIENCE;
            if is_stuck && self.brake.set_makes_way(false) {
                tracing::warn!(pages = count, "the index region is full");
            }
            if self.lose_all_if_overwhelmed(number) {
                return None;
            }
            if self.store.would_checkpoint_free() {
                self.ask_for_checkpoint();
            }
            let _ = runtime::timeout(PAUSE, freed).await;
        }
        None
    }

    /// Drops everything below Tier 1 of a partition, if the tombstones for it take so much of Tier 1 that soon no
    /// checkpoint would have space for it and no page would become free again. Returns whether it did.
    fn lose_all_if_overwhelmed(&self, number: usize) -> bool {
        let partition = &mut *self.partitions[number].lock();
        if !self.is_overwhelmed(partition) {
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
            self.store.release(block.all_pages());
        }
        partition.filters.truncate(0);
        add(
            &self.counters.evicted,
            dropped as u64 + self.drop_tier_3(partition),
        );
        partition.hot.take_dead();
        let grown = partition.hot.memory_bytes().wrapping_sub(before);
        add(&self.hot_bytes, grown);
        true
    }

    /// Drops the oldest page of up to `count` buckets of a partition. Returns whether there was one.
    fn evict(&self, number: usize, count: usize) -> bool {
        let mut partition = self.partitions[number].lock();
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
            let filter = &self.layouts.active.page_filter;
            self.store.release(bucket.drop_oldest(filter, 1));
        }
        add(&self.counters.evicted, evicted);
        evicted > 0
    }

    /// Returns all entries of the pages, or the error of the first page that is lost.
    async fn read_pages(
        &self,
        layout: &BlockLayout,
        pages: &[PageRef],
    ) -> Result<Vec<Entry>, PageError> {
        let mut entries = Vec::with_capacity(pages.len() * layout.page_entries);
        for some in pages.chunks(READ_PAGES) {
            for of_page in join_all(some.iter().map(|&page| self.read_page(layout, page))).await {
                entries.extend(of_page?);
            }
        }
        Ok(entries)
    }

    async fn read_page(
        &self,
        layout: &BlockLayout,
        page: PageRef,
    ) -> Result<Vec<Entry>, PageError> {
        let mut tries = 0;
        loop {
            let mut entries = Vec::new();
            match block::read(&self.store, layout, page, &mut entries).await {
                Ok(()) => return Ok(entries),
                Err(error) if error.is_passing() && tries < READS => tries += 1,
                Err(error) => {
                    add(&self.counters.damaged_pages, 1);
                    return Err(error);
                }
            }
            runtime::sleep(PAUSE).await;
        }
    }

    async fn sink(&self, number: usize, pages: &[PageRef]) {
        let entries = self.read_pages(&self.layouts.direct, pages).await;
        let mut partition = self.partitions[number].lock();
        let sunk = match entries {
            Ok(entries) => partition.sink(&self.layouts, &entries),
            Err(error) => {
                tracing::warn!(%error, "a block of the index is lost, with all older mappings of its partition");
                let sunk = partition.direct.pop_back();
                let left = partition.direct.len();
                partition.filters.truncate(left);
                let lost = sunk.as_ref().map_or(0, |block| u64::from(block.entries));
                add(&self.counters.dropped_behind_damage, lost);
                let dropped = self.drop_tier_3(&mut partition);
                add(&self.counters.dropped_behind_damage, dropped);
                sunk
            }
        };
        if let Some(block) = sunk {
            self.store.release(block.all_pages());
        }
    }

    /// Drops Tier 3 of a partition. Returns the number of mappings dropped.
    fn drop_tier_3(&self, partition: &mut Partition) -> u64 {
        partition.epoch += 1;
        let mut dropped = 0;
        for list in &mut partition.lists {
            dropped += list.buffer.len() + list.sealed.take().map_or(0, |sealed| sealed.len());
            list.buffer.clear();
            for block in list.blocks.drain(..).chain(list.compacted.drain(..)) {
                dropped += block.entries as usize;
                self.store.release(block.all_pages());
            }
            list.filters.truncate(0);
            dropped += self.drop_buckets(&mut list.buckets);
        }
        dropped as u64
    }

    /// Drops all pages of the buckets. Returns the number of mappings dropped.
    fn drop_buckets(&self, buckets: &mut [Bucket]) -> usize {
        let mut dropped = 0;
        for bucket in buckets {
            let pages = bucket.pages.iter();
            dropped += pages.map(|page| usize::from(page.entries)).sum::<usize>();
            let all = bucket.pages.len();
            self.store
                .release(bucket.drop_oldest(&self.layouts.active.page_filter, all));
        }
        dropped
    }

    /// Moves the mappings of a list's `compacted` blocks to its inactive buckets (section 4.1.3, Dual-mode Mapping).
    async fn compact(&self, number: usize, list: usize) {
        let _turn = self.compactions.acquire().await;
        let blocks: Vec<Vec<PageRef>> = {
            let partition = self.partitions[number].lock();
            let blocks = partition.lists[list].compacted.iter();
            blocks.map(|block| block.page_refs().collect()).collect()
        };
        let mut entries = Vec::new();
        let mut whole = 0;
        for pages in &blocks {
            match self.read_pages(&self.layouts.active, pages).await {
                Ok(of_block) => entries.extend(of_block),
                Err(error) => {
                    tracing::warn!(%error, "a block of the index is lost, with older mappings of its list");
                    break;
                }
            }
            whole += 1;
        }
        if whole < blocks.len() {
            let mut partition = self.partitions[number].lock();
            partition.epoch += 1;
            let list = &mut partition.lists[list];
            let lost = list.compacted[whole..].iter();
            let lost: u64 = lost.map(|block| u64::from(block.entries)).sum();
            let lost = lost + self.drop_buckets(&mut list.buckets) as u64;
            add(&self.counters.dropped_behind_damage, lost);
        }
        // Keeps the newest entry of each key: newer blocks come first, and the sort is stable.
        entries.sort_by_key(Entry::key);
        entries.dedup_by_key(|entry| entry.key());
        for of_some in self.by_buckets(&entries) {
            while !self.append_to_buckets(number, list, of_some).await {
                if self.partitions[number].lock().lists[list]
                    .compacted
                    .is_empty()
                {
                    // Everything below Tier 1 was dropped, these blocks included.
                    return;
                }
            }
        }
        let mut partition = self.partitions[number].lock();
        partition.epoch += 1;
        let list = &mut partition.lists[list];
        let compacted = std::mem::take(&mut list.compacted);
        list.filters.truncate(list.blocks.len());
        for block in compacted {
            self.store.release(block.all_pages());
        }
        add(&self.counters.compactions, 1);
    }

    /// Cuts sorted entries into parts of whole buckets, each of about [`BUCKET_PAGES`] pages.
    fn by_buckets<'e>(&self, mut entries: &'e [Entry]) -> Vec<&'e [Entry]> {
        let mut parts = Vec::new();
        while !entries.is_empty() {
            let at = (BUCKET_PAGES * self.shape.page_entries / 2).min(entries.len()) - 1;
            let bucket = self.layouts.bucket(entries[at].key());
            let end = entries.partition_point(|entry| self.layouts.bucket(entry.key()) <= bucket);
            let (part, rest) = entries.split_at(end);
            parts.push(part);
            entries = rest;
        }
        parts
    }

    /// Appends entries to their buckets, and rewrites buckets that have become long. Returns false, with nothing changed,
    /// if the device fails or if pages that were to be replaced are evicted before that. The caller then tries again.
    async fn append_to_buckets(&self, number: usize, list: usize, entries: &[Entry]) -> bool {
        let mut groups = Vec::new();
        let is_same = |one: &Entry, other: &Entry| {
            self.layouts.bucket(one.key()) == self.layouts.bucket(other.key())
        };
        for of_bucket in entries.chunk_by(is_same) {
            groups.push(self.for_bucket(number, list, of_bucket).await);
        }
        let layout = &self.layouts.active;
        let contents: Vec<&[Entry]> = groups
            .iter()
            .flat_map(|group| group.entries.chunks(layout.page_entries))
            .collect();
        let Some(written) = self.write_single_pages(number, &contents).await else {
            return false;
        };
        let filter = &layout.page_filter;
        let mut partition = self.partitions[number].lock();
        let buckets = &partition.lists[list].buckets;
        let has_lost_some = |group: &Group| buckets[group.bucket].pages.len() < group.replaces;
        if groups.iter().any(has_lost_some) {
            // Eviction took pages that a group replaces. If one of their keys was deleted since, it has no tombstone, and
            // its old mapping must not be written back.
            self.store.release(written.iter().map(|page| page.page));
            return false;
        }
        let mut written = contents.into_iter().zip(written);
        partition.epoch += 1;
        let horizon = self.segments.horizon();
        for group in &groups {
            let bucket = &mut partition.lists[list].buckets[group.bucket];
            let oldest = bucket.pages.iter();
            let gone = oldest.take_while(|page| page.newest < horizon).count();
            let dropped = bucket.drop_oldest(filter, gone.max(group.replaces));
            self.store.release(dropped);
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

    /// Writes each slice of `contents` to a page of its own, many pages at once.
    async fn write_single_pages(
        &self,
        number: usize,
        contents: &[&[Entry]],
    ) -> Option<Vec<PageRef>> {
        if contents.is_empty() {
            return Some(Vec::new());
        }
        let pages = self.take_pages(number, contents.len()).await?;
        let (_writing, first) = self.doubt.writing(|| self.take_numbers(pages.len()));
        let bytes = block::encode_pages(self.image, first, contents, &[]);
        if let Err(error) = self.store.write(&pages, &bytes).await {
            self.write_failed(number, &pages, &error).await;
            return None;
        }
        let numbered = pages.iter().zip(first..);
        Some(
            numbered
                .map(|(&page, number)| PageRef { page, number })
                .collect(),
        )
    }

    /// Returns the entries to write to the bucket of `new`, and the number of pages that they replace.
    async fn for_bucket(&self, number: usize, list: usize, new: &[Entry]) -> Group {
        let bucket = self.layouts.bucket(new[0].key());
        let pages: Vec<BucketPage> = {
            let partition = self.partitions[number].lock();
            let pages = &partition.lists[list].buckets[bucket].pages;
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
            match self.read_pages(&self.layouts.active, &[page.page]).await {
                Ok(of_page) => entries.extend(of_page),
                Err(error) => {
                    tracing::warn!(%error, "a page of the index is lost, with older mappings of its bucket");
                    let lost = pages[at..].iter();
                    let lost: u64 = lost.map(|page| u64::from(page.entries)).sum();
                    add(&self.counters.dropped_behind_damage, lost);
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
        self.code_of(entry).is_some()
    }

    /// Writes pages that a failed sync may have lost to other pages.
    async fn write_again(&self, number: usize, spot: Spot, pages: &[PageRef]) {
        let layout = match spot {
            Spot::Direct(_) => &self.layouts.direct,
            Spot::Active(..) | Spot::Bucket(..) => &self.layouts.active,
        };
        let entries = match self.read_pages(layout, pages).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "a part of the index is lost, with older mappings");
                return self.lose(&mut self.partitions[number].lock(), spot);
            }
        };
        if let Spot::Bucket(list, bucket, old) = spot {
            let Some(new) = self.write_single_pages(number, &[&entries]).await else {
                return;
            };
            let mut partition = self.partitions[number].lock();
            let pages = &mut partition.lists[list].buckets[bucket].pages;
            let released = match pages.iter_mut().find(|page| page.page == old) {
                Some(page) => std::mem::replace(&mut page.page, new[0]),
                // The page was evicted before.
                None => new[0],
            };
            self.store.release([released.page]);
            return;
        }
        // Written without its jump filter, which would need the keys of older blocks, too.
        if let Some(mut new) = self.write_block(number, layout, &entries, None).await {
            let mut partition = self.partitions[number].lock();
            if let Some((block, ..)) = partition.block_at(spot) {
                new.is_filtered = block.is_filtered;
                std::mem::swap(block, &mut new);
            }
            self.store.release(new.all_pages());
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
                let dropped = self.drop_tier_3(partition);
                add(&self.counters.dropped_behind_damage, dropped);
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
                let lost = self.drop_buckets(&mut list.buckets);
                add(&self.counters.dropped_behind_damage, lost as u64);
            }
            Spot::Bucket(list, bucket, page) => {
                let bucket = &mut partition.lists[list].buckets[bucket];
                if let Some(at) = bucket.pages.iter().position(|other| other.page == page) {
                    let of_dropped = bucket.pages[..=at]
                        .iter()
                        .map(|page| u64::from(page.entries));
                    add(&self.counters.dropped_behind_damage, of_dropped.sum());
                    let filter = &self.layouts.active.page_filter;
                    self.store.release(bucket.drop_oldest(filter, at + 1));
                }
            }
        }
        for block in dropped {
            add(
                &self.counters.dropped_behind_damage,
                u64::from(block.entries),
            );
            self.store.release(block.all_pages());
        }
    }

    async fn make_filters(&self, number: usize, spot: Spot, pages: &[PageRef]) {
        let layout = match spot {
            Spot::Direct(_) => &self.layouts.direct,
            Spot::Active(..) | Spot::Bucket(..) => &self.layouts.active,
        };
        let mut entries = Vec::new();
        let mut filters = Vec::new();
        for page in pages {
            match self.read_pages(layout, std::slice::from_ref(page)).await {
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
                    return self.lose(&mut self.partitions[number].lock(), lost);
                }
            }
        }
        let filter = layout.filter.of(&entries);
        let mut partition = self.partitions[number].lock();
        if let Spot::Bucket(list, bucket, _) = spot {
            partition.lists[list].buckets[bucket].set_filters(pages, filters);
        } else if let Some((block, filters, place)) = partition.block_at(spot) {
            filters.fill(place, &filter);
            block.is_filtered = true;
        }
    }
}

/// Returns the flash entry of a mapping of Tier 1.
pub(super) fn entry_of(key: u64, named: (u32, Position), is_dirty: bool) -> Entry {
    let entry = Entry::new(key, named.0, named.1);
    if is_dirty { entry } else { entry.clean() }
}

/// Entries to write to one bucket.
struct Group {
    bucket: usize,
    entries: Vec<Entry>,
    /// Number of the bucket's oldest pages that they replace: 0, or all it had.
    replaces: usize,
}
