//! `exact`: an index in memory of everything on flash, over packed or slotted segments.
//!
//! An entry has 8 bytes: a packed location in as many bits as the flash needs; the other bits tell keys apart. Two keys that
//! agree in all bits displace each other: a miss, never a wrong value. Each partition has a table behind its own lock, which
//! is taken after all other locks.
//!
//! An entry has no generation and needs none: entries of a segment are removed before its generation ends, and the generation
//! of a segment that an entry names is read while the table is locked.
//!
//! The placement's section of a checkpoint is written at an orderly stop. It lists the items that have been read since they
//! were written, for CLOCK and reclaim. If segments have priorities, a restored item that had been read is promoted anew: to
//! the priority above the one that the start has given its segment.

mod recency;

use std::sync::Arc;

use index::{DirectConfig, DirectTable, Entry as TableEntry};
use runtime::work::{self, Work};

use super::{
    Batch, Counts, Description, Displaced, Event, Found, IndexRoom, IndexSizes, Inserted, Located,
    Look, Parts, Placement, PlacementFuture, PlacementKind, Probe, Restored, StreamPlan, read_copy,
};
use crate::counter::Count as _;
use crate::durability::OpenError;
use crate::format::checkpoint::Section;
use crate::format::location::{LocationCodec, Place};
use crate::key::{Key, KeyHash};
use crate::reclaim::{Entered, Entry, IndexUse, Named, Resident, Residents};
use crate::settings::ConfigError;
use crate::store::{
    Layout, MOST_PRIORITIES, Patience, Priority, ReadError, SegmentRecord, SegmentStore,
};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, RwLock};
use recency::Recency;

/// Smallest number of buckets in a small table. More buckets tell more keys apart; each has 64 bytes.
const MIN_BUCKETS: u32 = 64;

/// Least bytes of memory for an item in the index.
const LEAST_ITEM_BYTES: u64 = 9;

/// Most items restored after one prefetch of their places in the table.
const BATCH: usize = 32;

/// Settings of the `exact` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactSettings {
    /// Layout of the items in segments written from now on.
    pub layout: Layout,
    /// Number of priorities of segments, each with its own stream of packed items; 1 if segments are reclaimed in another
    /// order.
    pub priorities: u8,
}

impl PlacementKind for ExactSettings {
    fn describe(&self) -> Description {
        let streams = match self.priorities {
            0 | 1 => StreamPlan::Classes(self.layout),
            several => StreamPlan::Priorities(several),
        };
        Description {
            streams,
            ..Description::new("exact")
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        let range = |name, range| Err(ConfigError::Range { name, range });
        if !(1..=MOST_PRIORITIES).contains(&self.priorities) {
            return range("priorities", "1 to 8");
        }
        if self.priorities > 1 && self.layout != Layout::Packed {
            return range("layout", "packed where segments have priorities");
        }
        let sizes = IndexSizes::in_memory(room);
        let config = table_config(1, 1, sizes.expected_items, room.partition_bits);
        let tables = 1u64 << room.partition_bits;
        Ok(IndexSizes {
            least_bytes: config.least_bytes().saturating_mul(tables),
            item_bytes: LEAST_ITEM_BYTES,
            ..sizes
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        let exact = Exact::new(parts, self.priorities)
            .map_err(|error| OpenError::Index(error.to_string()))?;
        Ok(Arc::new(exact))
    }
}

/// Returns the settings of a partition's table. There are two to the power of `partition_bits` tables.
fn table_config(
    value_bits: u32,
    rank_bits: u32,
    expected_items: u64,
    partition_bits: u32,
) -> DirectConfig {
    DirectConfig {
        value_bits,
        rank_bits,
        max_entries_hint: (expected_items >> partition_bits).max(1),
        skip_bits: partition_bits,
        min_buckets: MIN_BUCKETS,
    }
}

/// Returns the bits of an entry for the priority that reads have given an item. With one priority the bit tells whether the
/// item has been read.
fn rank_bits(priorities: u8) -> u32 {
    let highest = priorities.saturating_sub(1).max(1);
    highest.ilog2() + 1
}

/// The `exact` placement.
pub(super) struct Exact {
    store: Arc<SegmentStore>,
    priorities: u8,
    codec: LocationCodec,
    tables: Box<[Mutex<DirectTable>]>,
    partition_bits: u32,
    index_use: Arc<IndexUse>,
    items_to_restore: usize,
    /// Items that the last run's section lists as read, until all items have been restored.
    recency: RwLock<Recency>,
}

impl Exact {
    fn new(parts: Parts, priorities: u8) -> Result<Self, index::ConfigError> {
        let config = table_config(
            parts.codec.bits(),
            rank_bits(priorities),
            parts.expected_items,
            parts.partition_bits,
        );
        let tables = (0..1u64 << parts.partition_bits)
            .map(|_| DirectTable::new(config, Arc::clone(&parts.pool)).map(Mutex::new))
            .collect::<Result<Box<[_]>, _>>()?;
        let bytes: u64 = tables.iter().map(|table| table.lock().memory_bytes()).sum();
        let recency = Recency::read(parts.section);
        parts.index_use.bytes.store(bytes, Ordering::Relaxed);
        parts.index_use.recovery_bytes.add(recency.memory_bytes());
        Ok(Self {
            recency: RwLock::new(recency),
            store: parts.store,
            priorities,
            codec: parts.codec,
            tables,
            partition_bits: parts.partition_bits,
            index_use: parts.index_use,
            items_to_restore: parts.items_to_restore,
        })
    }

    fn table(&self, hash: KeyHash) -> &Mutex<DirectTable> {
        &self.tables[hash.partition(self.partition_bits)]
    }

    /// Runs `change` on the table of `hash` and accounts for the change of the table's size.
    fn change<T>(&self, hash: KeyHash, change: impl FnOnce(&mut DirectTable) -> T) -> T {
        work::count(Work::IndexStep, 1);
        let mut table = self.table(hash).lock();
        let (len, bytes) = (table.len(), table.memory_bytes());
        let result = change(&mut table);
        let (new_len, new_bytes) = (table.len(), table.memory_bytes());
        drop(table);
        // The difference may be negative, so it is added with wrap-around.
        if new_len != len {
            let grown = (new_len as u64).wrapping_sub(len as u64);
            self.index_use.objects.add(grown);
        }
        if new_bytes != bytes {
            let grown = new_bytes.wrapping_sub(bytes);
            self.index_use.bytes.add(grown);
        }
        result
    }

    fn pack(&self, place: Place) -> u64 {
        self.codec.encode(place.segment, place.position)
    }

    /// Returns the place that an entry names. The table must be locked, so that the segment keeps its generation.
    fn place(&self, value: u64) -> Place {
        let (segment, position) = self.codec.decode(value);
        Place {
            segment,
            generation: self.store.table().sequence(segment),
            position,
        }
    }

    fn displaced(&self, value: Option<u64>) -> Displaced {
        value.map_or(Displaced::None, |value| Displaced::Known(self.place(value)))
    }

    /// Returns whether an entry names this very copy. The table must be locked.
    fn names(&self, entry: &TableEntry, item: &Resident) -> bool {
        let is_there = entry.value == self.pack(item.place);
        is_there && self.store.table().sequence(item.place.segment) == item.place.generation
    }

    fn probe_of(&self, entry: Option<TableEntry>) -> Probe {
        entry.map_or(Probe::Absent, |entry| {
            Probe::At(Located {
                place: self.place(entry.value),
                fetched: entry.is_recent(),
            })
        })
    }

    /// Looks up a key for a read. If there are priorities, promotes the item to the priority above that of its segment,
    /// unless it has a higher one. If reclaim keeps the item, it copies it to a segment of that priority.
    fn read_entry(&self, table: &mut DirectTable, hash: KeyHash) -> Option<TableEntry> {
        if self.priorities == 1 {
            return table.access(hash.0);
        }
        table.promote(hash.0, |entry| {
            let (segment, _) = self.codec.decode(entry.value);
            let of_segment = self.store.table().priority(segment);
            let before = Priority(entry.rank);
            before.after_read(of_segment, self.priorities).0
        })
    }

    fn restore_one(
        &self,
        table: &mut DirectTable,
        recency: &Recency,
        item: &Resident,
        beaten: Option<Place>,
    ) -> Restored {
        if let Some(found) = table.lookup(item.hash.0) {
            let rival = self.place(found.value);
            if beaten != Some(rival) {
                return Restored::Contested(rival);
            }
        }
        match table.insert(item.hash.0, self.pack(item.place)) {
            Ok(replaced) => {
                if recency.contains(item.place) {
                    self.read_entry(table, item.hash);
                }
                Restored::Taken(self.displaced(replaced))
            }
            Err(_) => Restored::Refused,
        }
    }
}

impl Placement for Exact {
    fn probe(&self, hash: KeyHash, look: Look) -> Probe {
        work::count(Work::IndexStep, 1);
        let mut table = self.table(hash).lock();
        self.probe_of(match look {
            Look::Peek => table.lookup(hash.0),
            Look::Read | Look::Found => self.read_entry(&mut table, hash),
        })
    }

    fn warm(&self, hashes: &mut dyn Iterator<Item = KeyHash>) {
        let Some(first) = hashes.next() else { return };
        let table = self.table(first).lock();
        table.warm(hashes.map(|hash| hash.0));
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        _counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        let look = move || self.probe(key.hash(), Look::Peek);
        let read = read_copy(&self.store, key, probe, patience, look, async || Ok(None));
        Box::pin(read)
    }

    fn insert(&self, hash: KeyHash, _version: u64, place: Place, _clock: u8) -> Inserted {
        let is_bounded = self.index_use.headroom() == 0;
        self.change(hash, |table| {
            // At its bound a table may fill up, but not grow.
            let bytes = table.memory_bytes();
            table.set_max_bytes(if is_bounded { bytes } else { u64::MAX });
            match table.insert(hash.0, self.pack(place)) {
                Ok(replaced) => Inserted::Yes(self.displaced(replaced)),
                Err(_) => Inserted::Full(self.displaced(table.remove(hash.0))),
            }
        })
    }

    fn invalidate(&self, hash: KeyHash, _version: u64) -> Displaced {
        self.change(hash, |table| self.displaced(table.remove(hash.0)))
    }

    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored)) {
        let Batch { items, beaten, .. } = batch;
        let Some(first) = items.first() else { return };
        let recency = self.recency.read();
        self.change(first.hash, |table| {
            table.set_max_bytes(table.memory_bytes() + self.index_use.headroom());
            // An estimate: items that turn out to be dead leave some of the space unused.
            table.reserve(self.items_to_restore / self.tables.len());
            for (number, batch) in (0..).step_by(BATCH).zip(items.chunks(BATCH)) {
                table.warm(batch.iter().map(|item| item.hash.0));
                for (number, item) in (number..).zip(batch) {
                    each(number, self.restore_one(table, &recency, item, beaten));
                }
            }
        });
    }

    fn note(&self, event: Event<'_>) {
        if matches!(event, Event::Recovered) {
            *self.recency.write() = Recency::default();
            self.index_use.recovery_bytes.store(0, Ordering::Relaxed);
        }
    }

    fn section(&self, live: &[SegmentRecord], last: bool) -> PlacementFuture<'_, Option<Section>> {
        let section = if last {
            self.recency_of(live)
        } else {
            Section::default()
        };
        Box::pin(std::future::ready(Some(section)))
    }
}

impl Exact {
    fn recency_of(&self, live: &[SegmentRecord]) -> Section {
        let most = recency::most_positions(self.index_use.max_bytes);
        recency::write(live, self.store.table().segments(), most, |visit| {
            for table in &self.tables {
                let table = table.lock();
                work::count(Work::IndexStep, table.len() as u64);
                table.for_each_recent(|value| {
                    let (segment, position) = self.codec.decode(value);
                    visit(segment, position);
                });
            }
        })
    }
}

impl Residents for Exact {
    fn entry(&self, item: &Resident) -> Entered {
        work::count(Work::IndexStep, 1);
        let table = self.table(item.hash).lock();
        match table.lookup(item.hash.0) {
            Some(found) if self.names(&found, item) => Entered::Yes(Entry::OWN),
            _ => Entered::No,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        self.change(item.hash, |table| {
            let found = table.lookup(item.hash.0);
            match found.filter(|found| self.names(found, item)) {
                None => Named::No,
                Some(found) if keep(Priority(found.rank)) => Named::Kept,
                Some(_) => {
                    table.remove(item.hash.0);
                    Named::Removed
                }
            }
        })
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        let (old, new) = (self.pack(item.place), self.pack(to));
        self.change(item.hash, |table| table.replace_if(item.hash.0, old, new))
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let mut forgotten = 0;
        for (number, table) in (0u64..).zip(&self.tables) {
            let table_bits = (number << 1) << (63 - self.partition_bits);
            let mut named = Vec::new();
            table.lock().for_each(|hash, entry| {
                if self.codec.decode(entry.value).0 == record.segment {
                    named.push((KeyHash(hash | table_bits), entry.value));
                }
            });
            for (hash, value) in named {
                let removed = self.change(hash, |table| table.remove_if(hash.0, value));
                forgotten += u64::from(removed);
            }
        }
        forgotten
    }
}
