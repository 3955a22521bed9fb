//! The `runs` placement: items collect in memory and are written in the order of their hashes, so that the page of an item
//! follows from its hash, and an index needs to tell only which run has the item. `docs/internals/runs.md` has the design.
//!
//! ```text
//!   group of a partition:  sets of runs, each a sliced ribbon over its runs, and the page boundaries of each run
//!                          items with entries of their own: large ones, and the few that a ribbon leaves behind
//!                          keys whose copies on flash are outdated
//! ```
//!
//! A newer run shadows older ones: a look-up goes through the runs that may hold the key, the newest first, and ends at the
//! first copy that it finds, or at a page that does not verify. Each group is behind a lock of its own, taken after all others.

mod group;
mod run;
mod run_set;

use std::collections::HashMap;
use std::sync::Arc;

use runtime::work::{self, Work};

use super::{
    Batch, Collecting, Counts, Description, Displaced, Event, Found, IndexRoom, IndexSizes,
    Inserted, Look, Parts, Placement, PlacementFuture, PlacementKind, Probe, Restored,
};
use crate::counter::Count as _;
use crate::durability::OpenError;
use crate::durability::dead::DeadCopies;
use crate::format::location::Place;
use crate::key::{Key, KeyHash};
use crate::reclaim::{Entered, Entry, IndexUse, Named, Resident, Residents};
use crate::settings::ConfigError;
use crate::store::{Patience, Priority, ReadError, SegmentRecord, SegmentStore};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use group::{Candidate, Group};

/// Items of a run, about: fewer make short rows, more make the placing of a run long.
const RUN_ITEMS: u64 = 2000;
/// Bytes of an item by which the number of groups is chosen.
const EXPECTED_ITEM_BYTES: u64 = 320;
/// Part of the memory that is for items, about.
const ITEMS_SHARE: (u64, u64) = (5, 8);
/// Most bits of the hash that choose the group of a partition.
const MOST_GROUP_BITS: u32 = 16;
/// Least bits of memory for an item in the index.
const LEAST_ITEM_BYTES: u64 = 1;

/// Settings of the `runs` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunsSettings {
    /// Share of the memory for items in which items collect, in sixteenths: 1 to 14. More makes runs longer and the index
    /// smaller.
    pub collecting_sixteenths: u32,
}

impl RunsSettings {
    fn collecting(&self, room: &IndexRoom) -> Collecting {
        let (some, all) = ITEMS_SHARE;
        let items_bytes = (room.memory_bytes / all * some) >> room.partition_bits;
        // The fullest group has twice the mean.
        let placed_bytes = items_bytes * u64::from(self.collecting_sixteenths) / 16 * 2;
        let groups = (placed_bytes / (RUN_ITEMS * EXPECTED_ITEM_BYTES)).max(1);
        Collecting {
            group_bits: groups.ilog2().min(MOST_GROUP_BITS),
            sixteenths: self.collecting_sixteenths,
        }
    }
}

impl PlacementKind for RunsSettings {
    fn describe(&self) -> Description {
        Description {
            dead_copies: DeadCopies::ByVersion,
            demaps_by_itself: true,
            ..Description::new("runs")
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        if !(1..=14).contains(&self.collecting_sixteenths) {
            return Err(ConfigError::Range {
                name: "collecting_sixteenths",
                range: "1 to 14",
            });
        }
        Ok(IndexSizes {
            item_bytes: LEAST_ITEM_BYTES,
            collecting: Some(self.collecting(room)),
            ..IndexSizes::in_memory(room)
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        Ok(Arc::new(Runs::new(parts)))
    }
}

/// The `runs` placement.
struct Runs {
    store: Arc<SegmentStore>,
    /// Groups of all partitions.
    groups: Box<[Mutex<Group>]>,
    partition_bits: u32,
    group_bits: u32,
    /// Sequence number of the next segment.
    next_sequence: Arc<AtomicU64>,
    index_use: Arc<IndexUse>,
    /// Items of the segment that recovery reads, until it has read the whole segment.
    restored: Mutex<Vec<Resident>>,
}

impl Runs {
    fn new(parts: Parts) -> Self {
        let group_bits = parts
            .collecting
            .map_or(0, |collecting| collecting.group_bits);
        let segments = parts.store.table().segments();
        let flash_bytes = u64::from(segments) * u64::from(parts.store.table().segment_bytes());
        let groups = 1u64 << (parts.partition_bits + group_bits);
        let group = || Mutex::new(Group::new(group_bits, flash_bytes / groups));
        let groups: Box<[_]> = (0..groups).map(|_| group()).collect();
        let bytes = groups.iter().map(|group| group.lock().memory_bytes()).sum();
        parts.index_use.bytes.store(bytes, Ordering::Relaxed);
        Self {
            next_sequence: parts.store.appender().next_sequence(),
            store: parts.store,
            groups,
            partition_bits: parts.partition_bits,
            group_bits,
            index_use: parts.index_use,
            restored: Mutex::default(),
        }
    }

    fn number_of(&self, hash: KeyHash) -> usize {
        hash.partition(self.partition_bits) << self.group_bits | hash.group(self.group_bits)
    }

    fn group(&self, hash: KeyHash) -> &Mutex<Group> {
        &self.groups[self.number_of(hash)]
    }

    /// Runs `change` on a group and accounts for the change of its sizes.
    fn change<T>(&self, number: usize, change: impl FnOnce(&mut Group) -> T) -> T {
        work::count(Work::IndexStep, 1);
        let mut group = self.groups[number].lock();
        let (items, bytes) = (group.items(), group.memory_bytes());
        let result = change(&mut group);
        let (new_items, new_bytes) = (group.items(), group.memory_bytes());
        drop(group);
        // The difference may be negative, so it is added with wrap-around.
        self.index_use.objects.add(new_items.wrapping_sub(items));
        self.index_use.bytes.add(new_bytes.wrapping_sub(bytes));
        result
    }

    fn change_of<T>(&self, hash: KeyHash, change: impl FnOnce(&mut Group) -> T) -> T {
        self.change(self.number_of(hash), change)
    }

    /// Makes copies of a key with versions below `version` outdated. Returns whether there may be any.
    fn kill(&self, hash: KeyHash, version: u64) -> bool {
        let before = self.next_sequence.load(Ordering::Acquire);
        self.change_of(hash, |group| group.kill(hash, version, before))
    }

    async fn find(&self, key: Key<'_>, patience: Patience) -> Result<Found, ReadError> {
        let hash = key.hash();
        let candidates = self.group(hash).lock().candidates(hash);
        for candidate in candidates {
            let found = match candidate {
                Candidate::Own(place) => self.read_own(place, key, patience).await?,
                Candidate::Among(stretch) => {
                    let (segment, generation) = (stretch.segment, stretch.generation);
                    let reader = self.store.reader();
                    reader
                        .find_among(segment, generation, stretch.range, key.bytes(), patience)
                        .await?
                }
            };
            if let Some(item) = found {
                let version = item.header().version.get();
                let is_dead = self.group(hash).lock().is_dead(hash, version);
                return Ok(if is_dead {
                    Found::Absent
                } else {
                    Found::Item(item)
                });
            }
        }
        Ok(Found::Absent)
    }

    /// Reads an item that has an entry of its own, which may be another key's of the same hash.
    async fn read_own(
        &self,
        place: Place,
        key: Key<'_>,
        patience: Patience,
    ) -> Result<Option<crate::store::FlashItem>, ReadError> {
        let reader = self.store.reader();
        let memory = reader
            .read_memory(place.segment, place.position, patience)
            .await?;
        let Some(pin) = self.store.table().pin(place.segment, place.generation) else {
            return Ok(None);
        };
        let item = reader.read_into(&pin, place.position, memory).await?;
        Ok((item.item().key == key.bytes()).then_some(item))
    }

    /// Adds the runs of a segment of an earlier run of the cache, which is older than all others so far. Its items `dead` lie
    /// among the others.
    fn add_restored(&self, record: &SegmentRecord, dead: &[Resident]) {
        let living = std::mem::take(&mut *self.restored.lock());
        let of_segment = living
            .into_iter()
            .filter(|item| item.place.segment == record.segment);
        let mut items: Vec<RestoredItem> = of_segment.map(|item| (item, true)).collect();
        items.extend(dead.iter().map(|&item| (item, false)));
        items.sort_unstable_by_key(|(item, _)| item.place.position.offset());
        let is_next = |(a, _): &RestoredItem, (b, _): &RestoredItem| {
            let are_small = !a.place.position.is_large() && !b.place.position.is_large();
            // Two copies of one key are of two runs.
            let is_in_order = a.hash.order() < b.hash.order();
            are_small && is_in_order && self.number_of(a.hash) == self.number_of(b.hash)
        };
        let mut groups: HashMap<usize, Vec<&[RestoredItem]>> = HashMap::new();
        for run in items.chunk_by(is_next) {
            let number = self.number_of(run[0].0.hash);
            groups.entry(number).or_default().push(run);
        }
        for (number, runs) in groups {
            self.change(number, |group| {
                for run in runs.into_iter().rev() {
                    group.add_oldest(run, record.sequence + 1);
                }
            });
        }
    }
}

/// An item of a segment of an earlier run of the cache, and whether it is alive.
type RestoredItem = (Resident, bool);

impl Placement for Runs {
    fn probe(&self, hash: KeyHash, _look: Look) -> Probe {
        work::count(Work::IndexStep, 1);
        match self.group(hash).lock().may_hold(hash) {
            true => Probe::Perhaps,
            false => Probe::Absent,
        }
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        _probe: Probe,
        patience: Patience,
        _counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        Box::pin(self.find(key, patience))
    }

    fn insert(&self, hash: KeyHash, version: u64, place: Place, _clock: u8) -> Inserted {
        let item = Resident {
            hash,
            version,
            place,
        };
        self.change_of(hash, |group| group.add(item));
        // A look-up of each item would take longer than the record of a death for the few that were not in memory.
        Inserted::Yes(Displaced::Unknown)
    }

    fn invalidate(&self, hash: KeyHash, version: u64) -> Displaced {
        match self.kill(hash, version) {
            true => Displaced::Unknown,
            false => Displaced::None,
        }
    }

    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored)) {
        self.restored.lock().extend(batch.items);
        for number in 0..batch.items.len() {
            each(number, Restored::Taken(Displaced::None));
        }
    }

    fn note(&self, event: Event<'_>) {
        match event {
            Event::Placed(hash) => self.change_of(hash, Group::end_run),
            Event::SegmentRestored { segment, dead, .. } => self.add_restored(segment, dead),
            Event::Recovered | Event::CheckpointEnded(_) => {}
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let (mut runs, mut columns, mut own, mut dead) = (0, 0, 0, 0);
        for group in &self.groups {
            let group = group.lock();
            runs += group.runs();
            columns += group.columns();
            own += group.own_entries();
            dead += group.dead_keys();
        }
        visit("index_runs", runs);
        visit("index_run_columns", columns);
        visit("index_own_entries", own);
        visit("index_dead_keys", dead);
    }
}

impl Residents for Runs {
    fn entry(&self, item: &Resident) -> Entered {
        match self.group(item.hash).lock().names(item) {
            true => Entered::Yes(Entry::OWN),
            false => Entered::No,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        if !self.group(item.hash).lock().names(item) || keep(Priority::LOWEST) {
            // A run cannot be moved item by item.
            return Named::No;
        }
        // No older copy comes back in its place.
        self.kill(item.hash, item.version + 1);
        Named::Removed
    }

    fn moved(&self, _item: &Resident, _to: Place) -> bool {
        false
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let forget = |number| self.change(number, |group| group.forget_up_to(record.sequence));
        (0..self.groups.len()).map(forget).sum()
    }
}
