//! Upkeep: moves mappings from tier to tier. Each partition has one upkeep task.
//!
//! Each step has three parts: choose a job under the partition's lock; read or write pages, which no other task changes,
//! without it; install the result under the lock. Until then searches find the moved mappings in their old place.

mod compaction;
mod repair;
mod writer;

use crate::encoding::mapping::Entry;
use format::segment::Position;
use parking_lot::Mutex;
use runtime::sync::Semaphore;

use super::counters::add;
use super::flash::Flash;
use super::hot::{Hot, HotEntry};
use super::jump::JumpFilter;
use super::layout::PageRef;
use super::partition::{Partition, Sorted, Spot};
use super::shape::MOST_DEMOTED;
use super::tiers::Tiers;
use compaction::Compaction;
use repair::Repair;
use writer::Writer;

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

/// Upkeep of one partition.
///
/// Invariant: only the task that runs it moves mappings below Tier 1, so everything that it has chosen under the lock stays
/// in its place, or is dropped, until it installs the result.
pub struct Upkeep<'c> {
    /// Number of the partition.
    number: usize,
    partition: &'c Mutex<Partition>,
    tiers: &'c Tiers,
    flash: &'c Flash,
    writer: Writer<'c>,
    /// One permit for each compaction of the cascade.
    compactions: &'c Semaphore,
}

impl<'c> Upkeep<'c> {
    pub(super) fn new(
        number: usize,
        tiers: &'c Tiers,
        flash: &'c Flash,
        compactions: &'c Semaphore,
    ) -> Self {
        let partition = &tiers.partitions[number];
        Self {
            number,
            partition,
            tiers,
            flash,
            writer: Writer {
                partition,
                tiers,
                flash,
            },
            compactions,
        }
    }

    /// Moves mappings down whenever a tier is full. Calls `moved` after each step, which may have changed the memory in
    /// use. Never returns; one task for each partition.
    pub async fn run(&self, moved: impl Fn()) {
        self.tiers.brake.set_makes_way(true);
        loop {
            let changed = self.tiers.work[self.number].listener();
            if self.tidy().await {
                moved();
            } else {
                changed.await;
            }
        }
    }

    /// Does one step of upkeep. Returns whether there was a job.
    pub(super) async fn tidy(&self) -> bool {
        let job = self.next_job();
        let is_any = job.is_some();
        match job {
            Some(Job::WriteDemoted(entries)) => self.write_demoted(&entries).await,
            Some(Job::DemoteMore) => runtime::yield_now().await,
            Some(Job::Sink(pages)) => self.sink(&pages).await,
            Some(Job::WriteSealed(list, entries)) => self.write_sealed(list, &entries).await,
            Some(Job::Compact(list)) => {
                let _turn = self.compactions.acquire().await;
                Compaction::new(&self.writer, list).run().await;
            }
            Some(Job::WriteAgain(spot, pages)) => {
                Repair::new(&self.writer, spot).write_again(&pages).await;
            }
            Some(Job::MakeFilters(spot, pages)) => {
                Repair::new(&self.writer, spot).make_filters(&pages).await;
            }
            // `account` runs even so: writers may have made space in Tier 1.
            None => {}
        }
        let partition = self.partition.lock();
        self.tiers
            .account(self.number, &partition, &self.flash.store);
        is_any
    }

    /// Chooses the job furthest down, as it makes space for the tiers above.
    fn next_job(&self) -> Option<Job> {
        let shape = &self.tiers.shape;
        let mut partition = self.partition.lock();
        if let Some(spot) = self.flash.doubt.spot(self.number, &partition) {
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
        if partition.hot.len() > self.tiers.bounds.hot() && partition.demoted.len() < MOST_DEMOTED {
            let before = partition.hot.memory_bytes();
            self.demote(&mut partition);
            let grown = partition.hot.memory_bytes().wrapping_sub(before);
            self.tiers.memory.hot_has_grown(grown);
            if partition.demoted.is_empty() {
                return Some(Job::DemoteMore);
            }
        }
        if let Some(oldest) = partition.demoted.front() {
            return Some(Job::WriteDemoted(Sorted::clone(oldest)));
        }
        let (spot, pages) = partition.without_filters(&self.tiers.layouts)?;
        Some(Job::MakeFilters(spot, pages))
    }

    /// Takes a block's worth of mappings out of Tier 1 (section 4.1.1).
    pub(super) fn demote(&self, partition: &mut Partition) {
        let taken = partition.hot.demote(self.tiers.shape.demoted());
        let mut entries = Vec::with_capacity(taken.len());
        entries.extend(
            taken
                .iter()
                .filter_map(|taken| self.on_its_way_down(partition, taken)),
        );
        entries.sort_unstable_by_key(Entry::key);
        add(&self.tiers.counters.demoted, entries.len() as u64);
        partition.epoch += 1;
        if !entries.is_empty() {
            partition.demoted.push_back(entries.into());
        }
    }

    /// Returns the entry to write for a mapping that leaves Tier 1. If its segment is gone or its key is dead, this is a
    /// tombstone that hides older mappings, or `None` if no lower tier can have one.
    fn on_its_way_down(&self, partition: &Partition, taken: &HotEntry) -> Option<Entry> {
        let named = match taken.hot {
            Hot::At(code) => self.tiers.segments.named_by(code),
            Hot::Dead => None,
        };
        let key = taken.hash;
        match named {
            Some(named) => Some(entry_of(key, named, taken.is_dirty)),
            None => partition
                .may_be_below(&self.tiers.layouts, key)
                .then(|| Entry::tombstone(key)),
        }
    }

    async fn write_demoted(&self, entries: &Sorted) {
        let layout = &self.tiers.layouts.direct;
        if let Some(block) = self.writer.write_block(layout, entries, None).await {
            // Only upkeep changes the filters, so they can be rebuilt without the lock.
            let filters = self.partition.lock().filters.clone();
            let filters = filters.with_newest(&layout.filter.of(entries));
            let mut partition = self.partition.lock();
            partition.demoted.pop_front();
            partition.direct.push_front(block);
            partition.filters = filters;
        }
    }

    async fn write_sealed(&self, list: usize, entries: &Sorted) {
        let layout = &self.tiers.layouts.active;
        let jump = self.jump_filter(list, entries).await;
        if let Some(block) = self.writer.write_block(layout, entries, jump).await {
            let filters = self.partition.lock().lists[list].filters.clone();
            let filters = filters.with_newest(&layout.filter.of(entries));
            let mut partition = self.partition.lock();
            let list = &mut partition.lists[list];
            list.sealed = None;
            list.blocks.push_front(block);
            list.filters = filters;
        }
    }

    /// Returns the jump filter of a new block: every `jump_distance`-th block of a list has one, over itself and the older
    /// blocks up to the next filter. Returns `None` for other blocks, and if one of these blocks cannot be read.
    async fn jump_filter(&self, list: usize, new: &[Entry]) -> Option<JumpFilter> {
        let distance = self.tiers.layouts.jump_distance;
        if distance == 0 {
            return None;
        }
        let covered: Vec<PageRef> = {
            let blocks = &self.partition.lock().lists[list].blocks;
            if !(blocks.len() + 1).is_multiple_of(distance) {
                return None;
            }
            let covered = blocks.iter().take(distance - 1);
            covered.flat_map(|block| block.page_refs()).collect()
        };
        let layout = &self.tiers.layouts.active;
        let entries = self.flash.read_pages(layout, &covered).await;
        let entries = entries.inspect_err(|error| tracing::warn!(%error, "a list gets no filter"));
        let entries = entries.ok()?;
        let keys: Vec<u64> = entries.iter().chain(new).map(Entry::key).collect();
        Some(JumpFilter::new(layout, distance, &keys))
    }

    async fn sink(&self, pages: &[PageRef]) {
        let entries = self
            .flash
            .read_pages(&self.tiers.layouts.direct, pages)
            .await;
        let mut partition = self.partition.lock();
        let sunk = match entries {
            Ok(entries) => partition.sink(&self.tiers.layouts, &entries),
            Err(error) => {
                tracing::warn!(%error, "a block of the index is lost, with all older mappings of its partition");
                let sunk = partition.direct.pop_back();
                let left = partition.direct.len();
                partition.filters.truncate(left);
                let lost = sunk.as_ref().map_or(0, |block| u64::from(block.entries));
                add(&self.tiers.counters.dropped_behind_damage, lost);
                let dropped = partition.drop_tier_3(&self.tiers.layouts, &self.flash.store);
                add(&self.tiers.counters.dropped_behind_damage, dropped);
                sunk
            }
        };
        if let Some(block) = sunk {
            self.flash.store.release(block.all_pages());
        }
    }
}

/// Returns the flash entry of a mapping of Tier 1.
pub(super) fn entry_of(key: u64, named: (u32, Position), is_dirty: bool) -> Entry {
    let entry = Entry::new(key, named.0, named.1);
    if is_dirty { entry } else { entry.clean() }
}
