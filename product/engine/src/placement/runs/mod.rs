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

use std::sync::Arc;

use runtime::work::{self, Work};

use super::{
    AppendHeader, Batch, Collecting, Counts, Description, Displaced, Event, Found, IndexRoom,
    IndexSizes, Inserted, Look, Parts, Placement, PlacementFuture, PlacementKind, Probe, Restored,
    Superseded, Unlocated,
};
use crate::counter::Count as _;
use crate::durability::OpenError;
use crate::durability::dead::DeadCopies;
use crate::format::item::{ItemHeader, ItemRef, state};
use crate::format::location::Place;
use crate::format::run_header::{HEADER_VERSION, RunHeader, RunPiece};
use crate::format::segment::{SegmentId, largest_item};
use crate::key::{HashSeed, Key, KeyHash};
use crate::reclaim::{Entered, Entry, IndexUse, Named, Resident, Residents};
use crate::settings::ConfigError;
use crate::store::{
    AppendItem, FlashItem, Patience, Priority, ReadError, SegmentRecord, SegmentStore,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use group::{Candidate, Group};
use run::{HashBits, header_of};

/// Items of a run, about: fewer make short rows, more make the placing of a run long.
const RUN_ITEMS: u64 = 2000;
/// Fewer items than these have entries of their own instead.
const LEAST_RUN_ITEMS: usize = 32;
/// Bytes of an item by which the number of groups is chosen.
const EXPECTED_ITEM_BYTES: u64 = 320;
/// Bytes of memory for each item that the index of an image is laid out for. With flash of sixteen times the memory these are the
/// items on flash.
const MEMORY_PER_EXPECTED_ITEM: u64 = 16;
/// Part of the memory in which items collect, about.
const COLLECTING_SHARE: (u64, u64) = (5, 16);
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
    /// Whether items that are read while they are in the older half of the segments are marked, so that they can be taken back
    /// when their segment goes.
    pub marks_reads: bool,
}

impl RunsSettings {
    /// The groups are those of an image for good: they follow from the memory for which it was made.
    fn collecting(&self, expected_items: u64, partition_bits: u32) -> Collecting {
        let (some, all) = COLLECTING_SHARE;
        let bytes = (expected_items * MEMORY_PER_EXPECTED_ITEM / all * some) >> partition_bits;
        // The fullest group has twice the mean.
        let groups = (2 * bytes / (RUN_ITEMS * EXPECTED_ITEM_BYTES)).max(1);
        Collecting {
            group_bits: groups.ilog2().min(MOST_GROUP_BITS),
            sixteenths: self.collecting_sixteenths,
            least_unlisted: LEAST_RUN_ITEMS,
        }
    }
}

impl PlacementKind for RunsSettings {
    fn describe(&self) -> Description {
        Description {
            dead_copies: DeadCopies::AtReads,
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
        let of_memory = || (room.memory_bytes / MEMORY_PER_EXPECTED_ITEM).max(1);
        let expected_items = room.expected_items.unwrap_or_else(of_memory);
        Ok(IndexSizes {
            expected_items,
            item_bytes: LEAST_ITEM_BYTES,
            collecting: Some(self.collecting(expected_items, room.partition_bits)),
            ..IndexSizes::in_memory(room)
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        Ok(Arc::new(Runs::new(parts, self.marks_reads)))
    }
}

/// The `runs` placement.
struct Runs {
    store: Arc<SegmentStore>,
    /// Groups of all partitions.
    groups: Box<[Mutex<Group>]>,
    bits: HashBits,
    /// Sequence number of the next segment.
    next_sequence: Arc<AtomicU64>,
    index_use: Arc<IndexUse>,
    hash_seed: HashSeed,
    superseded: Arc<Superseded>,
    /// Whether recovery may still find copies.
    recovers: AtomicBool,
    marks_reads: bool,
    /// Sequence number of the oldest segment, as of the last one that has gone.
    oldest: AtomicU64,
}

impl Runs {
    fn new(parts: Parts, marks_reads: bool) -> Self {
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
        let next_sequence = parts.store.appender().next_sequence();
        // Items of an earlier run of the cache are old until the first segment goes.
        let oldest = AtomicU64::new(next_sequence.load(Ordering::Relaxed));
        Self {
            next_sequence,
            store: parts.store,
            groups,
            bits: HashBits {
                partition: parts.partition_bits,
                group: group_bits,
            },
            index_use: parts.index_use,
            hash_seed: parts.hash_seed,
            superseded: parts.superseded,
            recovers: AtomicBool::new(true),
            marks_reads,
            oldest,
        }
    }

    fn number_of(&self, hash: KeyHash) -> usize {
        hash.partition(self.bits.partition) << self.bits.group | hash.group(self.bits.group)
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
        let recovers = self.recovers.load(Ordering::Acquire);
        self.change_of(hash, |group| group.kill(hash, version, before, recovers))
    }

    /// Finds the newest copy of an item, with its place.
    async fn find(
        &self,
        hash: KeyHash,
        is_wanted: impl Fn(&ItemRef<'_>) -> bool,
        patience: Patience,
    ) -> Result<Option<(Place, FlashItem)>, ReadError> {
        let candidates = self.group(hash).lock().candidates(hash);
        for candidate in candidates {
            let (segment, generation) = candidate.generation();
            let found = match candidate {
                Candidate::Own(place) => {
                    let item = self.read_own(place, patience).await?;
                    item.filter(|item| is_wanted(&item.item()))
                        .map(|item| (place, item))
                }
                Candidate::Among(stretch) => {
                    let reader = self.store.reader();
                    let found = reader
                        .find_among(segment, generation, stretch.range, &is_wanted, patience)
                        .await?;
                    found.map(|(position, item)| {
                        let place = Place {
                            segment,
                            generation,
                            position,
                        };
                        (place, item)
                    })
                }
            };
            if let Some((place, item)) = found {
                let version = item.header().version.get();
                let is_dead = self.group(hash).lock().is_dead(hash, version);
                return Ok((!is_dead).then_some((place, item)));
            }
            if self.store.table().sequence(segment) != generation {
                // A segment that could not be written: it may have held the newest copy.
                break;
            }
        }
        Ok(None)
    }

    async fn get_item(
        &self,
        key: Key<'_>,
        patience: Patience,
        counts: Counts<'_>,
    ) -> Result<Found, ReadError> {
        let hash = key.hash();
        let is_wanted = |item: &ItemRef<'_>| item.key == key.bytes();
        let Some((place, item)) = self.find(hash, is_wanted, patience).await? else {
            return Ok(Found::Absent);
        };
        if self.marks_reads && counts() && self.is_old(place.generation) {
            self.change_of(hash, |group| group.mark(hash, place));
        }
        Ok(Found::Item(item))
    }

    /// Returns whether a segment is in the older half.
    fn is_old(&self, generation: u64) -> bool {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let next = self.next_sequence.load(Ordering::Relaxed);
        generation < oldest.midpoint(next)
    }

    /// Reads an item that has an entry of its own, which may be another key's of the same hash.
    async fn read_own(
        &self,
        place: Place,
        patience: Patience,
    ) -> Result<Option<FlashItem>, ReadError> {
        let reader = self.store.reader();
        let memory = reader
            .read_memory(place.segment, place.position, patience)
            .await?;
        let Some(pin) = self.store.table().pin(place.segment, place.generation) else {
            return Ok(None);
        };
        Ok(Some(reader.read_into(&pin, place.position, memory).await?))
    }

    /// Ends the placing of items of a group. Those that no summary lists become a run, once its header is on its way to flash.
    fn end_placing(&self, number: usize, append_header: Option<AppendHeader<'_>>) {
        let are_unlisted = append_header.is_some();
        let recovers = self.recovers.load(Ordering::Acquire);
        let (items, shape) = self.change(number, |group| {
            let items = group.end_placing(are_unlisted, &self.superseded, recovers);
            let shape = group.shape_for(&items);
            (items, shape)
        });
        let Some(append_header) = append_header.filter(|_| !items.is_empty()) else {
            return;
        };
        let header = header_of(&items, number, self.bits, shape);
        match self.append(&header, append_header) {
            Some(place) => self.change(number, |group| {
                group.publish(&header, &items, place.generation, &self.superseded);
            }),
            None => {
                let before = self.next_sequence.load(Ordering::Acquire);
                self.change(number, |group| group.give_up(&items, before));
                for item in &items {
                    let place = item.place;
                    self.store
                        .table()
                        .count_out(place.segment, place.generation);
                }
            }
        }
    }

    /// Appends a run header. Returns the place of its first copy; `None` if there is no space.
    fn append(&self, header: &RunHeader, append_header: AppendHeader<'_>) -> Option<Place> {
        let first = header.pieces.first()?;
        let mut name = [0; 12];
        name[..8].copy_from_slice(&first.sequence.to_le_bytes());
        name[8..].copy_from_slice(&first.first.to_le_bytes());
        let value = header.encode();
        let item_header = ItemHeader {
            version: HEADER_VERSION.into(),
            value_bytes: (value.len() as u32).into(),
            client_flags: 0.into(),
            expiry: 0.into(),
            last_access: 0.into(),
            key_bytes: name.len() as u8,
            state: state::BINARY_KEY,
            reads: 0,
            updates: 0,
        };
        let item = ItemRef {
            header: &item_header,
            cas_unique: HEADER_VERSION,
            key: &name,
            value: &value,
        };
        if item.flash_bytes() > largest_item(self.store.table().segment_bytes()) as usize {
            return None;
        }
        append_header(AppendItem {
            hash: Key::new(&name, self.hash_seed)?.hash(),
            item,
            priority: Priority::LOWEST,
            is_listed: true,
        })
    }

    /// Adds a run of an earlier run of the cache, which is older than all others of its group so far.
    fn restore_run(&self, header: &RunHeader) {
        let number = header.group as usize;
        let bits = HashBits {
            partition: header.partition_bits.into(),
            group: header.group_bits.into(),
        };
        let is_own = bits == self.bits && number < self.groups.len();
        let table = self.store.table();
        let is_there = |piece: &RunPiece| {
            piece.segment < table.segments()
                && table.sequence(SegmentId(piece.segment)) == piece.sequence
        };
        if !is_own || !self.change(number, |group| group.restore(header, is_there)) {
            tracing::warn!(header.group, "a run header is none of this image's");
        }
    }
}

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
        counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        Box::pin(self.get_item(key, patience, counts))
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
        for (number, item) in batch.items.iter().enumerate() {
            self.change_of(item.hash, |group| group.restore_own(item));
            each(number, Restored::Taken(Displaced::None));
        }
    }

    fn locate(&self, hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(async move {
            let is_wanted = |item: &ItemRef<'_>| {
                let key = Key::new(item.key, self.hash_seed);
                key.is_some_and(|key| key.hash() == hash)
            };
            let found = self.find(hash, is_wanted, Patience::Endless).await;
            let place = found.map(|found| found.map(|(place, _)| place));
            place.map_err(|_| Unlocated)
        })
    }

    fn note(&self, event: Event<'_>) {
        match event {
            Event::Placed {
                last,
                append_header,
            } => self.end_placing(self.number_of(last), append_header),
            Event::RunFound(header) => self.restore_run(header),
            Event::Recovered => {
                self.recovers.store(false, Ordering::Release);
                for number in 0..self.groups.len() {
                    self.change(number, Group::end_restoring);
                }
            }
            Event::DeadKeysWanted(each) => {
                for group in &self.groups {
                    group.lock().each_dead(each);
                }
            }
            Event::CheckpointEnded(_) | Event::SegmentRestored { .. } => {}
        }
    }

    fn load(&self, outdated: Vec<(KeyHash, u64)>) -> PlacementFuture<'_, Result<(), OpenError>> {
        let before = self.next_sequence.load(Ordering::Acquire);
        for (hash, version) in outdated {
            self.change_of(hash, |group| group.note_dead(hash, version, before));
        }
        Box::pin(std::future::ready(Ok(())))
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
        let group = self.group(item.hash).lock();
        match group.places_before(item) {
            Some(0) => Entered::Yes(Entry {
                was_read: !self.marks_reads || group.is_marked(item),
                ..Entry::OWN
            }),
            // A newer run may have the key, or another one with the same fingerprint.
            Some(_) => Entered::Perhaps,
            None => Entered::No,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        let group = self.group(item.hash).lock();
        if group.places_before(item) != Some(0) || keep(Priority::LOWEST) {
            // A run cannot be moved item by item.
            return Named::No;
        }
        // No older copy comes back in its place. If there is none, the copy is outdated until its segment has gone, which is soon.
        let is_last = self.marks_reads
            && self.is_old(item.place.generation)
            && self.store.table().is_on_flash(item.place.segment)
            && group.is_alone(item);
        drop(group);
        let before = match is_last {
            true => item.place.generation + 1,
            false => self.next_sequence.load(Ordering::Acquire),
        };
        self.change_of(item.hash, |group| group.give_up(&[*item], before));
        Named::Removed
    }

    fn moved(&self, _item: &Resident, _to: Place) -> bool {
        false
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        // A segment that goes before an older one keeps its entries: reads find that it is gone, and end there.
        let table = self.store.table();
        let others = (0..table.segments()).filter(|&number| number != record.segment.0);
        let sequences = others.map(|number| table.sequence(SegmentId(number)));
        let oldest_left = sequences.filter(|&sequence| sequence != 0).min();
        let up_to = match oldest_left {
            Some(left) => left - 1,
            None => record.sequence,
        };
        self.oldest.store(up_to + 1, Ordering::Relaxed);
        // A crash may come before the segment is released.
        let oldest = record.sequence.min(oldest_left.unwrap_or(u64::MAX));
        let forget = |number| self.change(number, |group| group.forget(up_to, oldest));
        (0..self.groups.len()).map(forget).sum()
    }
}
