//! `hashed`: a compact index in memory, over segments in which the hash of a key says where its item lies (Flashield,
//! NSDI '19, sections 3.4, 4.1 and 4.3).
//!
//! ```text
//!   GET ──▶ CompactTable of the partition: entries in the 16 slots of the key        segment, function, CLOCK: 29 bits or so
//!             └─▶ Members: which of their segments may have the key                  9.65 bits a key
//!                   └─▶ read at function(key) in the segment: is it the key's?       one read, rarely two
//! ```
//!
//! An entry has no key. Two things follow. What a key's update outdates is not known until flash has been read
//! ([`verify`]); meanwhile the key is listed as dead ([`dead`]). And an entry of one key may lead to a copy of another, if both
//! have a slot in common and lie at the same function of the same segment: so a dead copy is found by what is alive. It
//! counts as dead for as long as that is so, and the entry stays.
//!
//! Invariant: of each copy of a key in a segment that has been settled, either it is the latest, or its key is listed as dead,
//! or no entry in the slots of the key names its location. Nothing gets entries in a settled segment, so that this lasts.
//!
//! What fails: a table in which all slots of a key are taken loses an entry to each new one, a ghost if there is one. Its
//! item is a miss until the next start.

mod core;
mod dead;
mod members;
mod restore;
mod restoring;
mod search;
mod shard;
mod spot;
mod verify;

use std::sync::Arc;

use self::core::{Hashed, table_config};
use super::stats::CompactStats;
use super::{
    BackgroundTask, Counts, Displaced, InMemory, Inserted, PROBES, Parts, Placement,
    PlacementFuture, PlacementKind, Probe, Restored, Token, Unlocated,
};
use crate::config::HashedSettings;
use crate::counter::Count as _;
use crate::durability::OpenError;
use crate::durability::journal::Journal;
use crate::format::location::Place;
use crate::key::{Key, KeyHash};
use crate::reclaim::{Named, Resident, Residents};
use crate::store::{
    AppendItem, Patience, Priority, ReadError, SegmentRecord, Source, StreamLayout, Streams,
};
use crate::sync::atomic::Ordering;
use dead::CopyRank;

/// Bytes of an item on flash that an image is laid out for: those of Flashield's trace (section 3.4).
const ITEM_BYTES: u64 = 257;
/// Memory for each item that an index is laid out for, at least: its tables then take a quarter of the memory at most.
const MEMORY_PER_ITEM: u64 = 16;
/// Bytes of memory for an item in the index, about.
const INDEX_ITEM_BYTES: u64 = 4;
/// Slots for so many of these items, of 100: the load of a table that the items fill.
const LOAD_PERCENT: u64 = 94;
/// Segments that numbers in an index of an unknown flash are laid out for.
const MOST_SEGMENTS: u32 = 1 << 25;
/// Open segments that items go to, the oldest first: how full they get is in `docs/papers/reproduction.md`.
const OPEN_SEGMENTS: usize = 4;
/// Tables with fewer slots are so small that most keys share slots with others.
const SMALL_TABLES: u64 = 1 << 16;
/// Items placed until it is looked again whether the journal has space, where each may displace entries that have to be
/// recorded: so few that they do not use up what the journal has in reserve.
const RECORDED_AT_ONCE: usize = 16;
/// Slots that are swept in one hold of a lock.
const SWEPT_SLOTS: usize = 1 << 14;

impl PlacementKind for HashedSettings {
    fn name(&self) -> &'static str {
        "hashed"
    }

    fn streams(&self, _segment_bytes: u32) -> Arc<dyn Streams> {
        Arc::new(OneOfSeveral)
    }

    fn expected_items(&self, flash_bytes: u64, memory_bytes: u64) -> u64 {
        (flash_bytes / ITEM_BYTES)
            .min(memory_bytes / MEMORY_PER_ITEM)
            .max(1)
    }

    fn locates_displaced(&self) -> bool {
        false
    }

    fn max_index_bytes(&self, memory_bytes: u64) -> u64 {
        memory_bytes / 100 * u64::from(self.index_percent)
    }

    fn least_index_bytes(&self, expected_items: u64, partition_bits: u32) -> u64 {
        let config = table_config(slots_for(expected_items), MOST_SEGMENTS, partition_bits);
        config.memory_bytes() << partition_bits
    }

    fn items_in(&self, index_bytes: u64) -> u64 {
        index_bytes / INDEX_ITEM_BYTES
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        let slots = slots_for(parts.expected_items);
        let hashed = Hashed::new(self, slots, parts);
        Ok(Arc::new(
            hashed.map_err(|error| OpenError::Index(error.to_string()))?,
        ))
    }
}

/// Slots for so many items.
fn slots_for(items: u64) -> u64 {
    (items.saturating_mul(100) / LOAD_PERCENT).max(1)
}

/// One stream of items, with several open segments.
struct OneOfSeveral;

impl Streams for OneOfSeveral {
    fn layouts(&self) -> Box<[StreamLayout]> {
        [StreamLayout::Hashed; OPEN_SEGMENTS].into()
    }

    fn stream_of(&self, _item: &AppendItem<'_>, _source: Source) -> usize {
        0
    }
}

impl Placement for Hashed {
    fn probe(&self, hash: KeyHash) -> Probe {
        runtime::work::count(runtime::work::Work::IndexStep, 1);
        if self.has_candidates(&self.shard(hash).lock(), hash) {
            Probe::Perhaps
        } else {
            Probe::Absent
        }
    }

    fn note_read(&self, hash: KeyHash) {
        self.change(hash, |shard| {
            // Of what is not the key's among them, one in a hundred.
            for candidate in self.candidates(shard, hash) {
                self.touch(shard, &candidate);
            }
        });
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<super::Found, ReadError>> {
        Box::pin(async move {
            match probe {
                Probe::Absent => Ok(super::Found::Absent),
                Probe::Perhaps | Probe::At(_) => self.find(key, patience, counts).await,
            }
        })
    }

    fn insert(&self, hash: KeyHash, version: u64, place: Place, clock: u8) -> Inserted {
        let Some(spot) = self.spot_of(hash, place) else {
            return Inserted::Full(self.invalidate(hash, version + 1));
        };
        let may_grow = self.index_use.headroom() > 0;
        let clock = match self.has_one_clock {
            true => clock,
            false => shard::CLOCK_WRITTEN,
        };
        let (inserted, is_first) = self.change(hash, |shard| {
            let displaced = self.outdate(shard, hash, spot.rank(version));
            if may_grow && self.put(shard, hash, shard::written(spot.own(), clock)) {
                let is_first = self
                    .change_members(|members| members.add(spot.segment, spot.generation, hash.0));
                if !self.has_one_clock {
                    self.keep_ghosts(shard);
                }
                return (Inserted::Yes(displaced), is_first);
            }
            self.leave_out(shard, hash, &spot, version);
            (Inserted::Full(Displaced::Unknown), false)
        });
        if is_first {
            self.note_fill();
        }
        inserted
    }

    fn takes_larger_first(&self) -> bool {
        // Flashield, section 4.1.
        true
    }

    fn placed_at_once(&self) -> usize {
        RECORDED_AT_ONCE
    }

    fn invalidate(&self, hash: KeyHash, version: u64) -> Displaced {
        self.change(hash, |shard| {
            self.outdate(shard, hash, CopyRank::least_of(version))
        })
    }

    fn forget(&self, _hash: KeyHash, _token: Token) -> Displaced {
        // No probe has given one.
        Displaced::None
    }

    fn restore(
        &self,
        items: &[Resident],
        beaten: Option<Place>,
        each: &mut dyn FnMut(usize, Restored),
    ) {
        self.begin_restoring();
        for (number, item) in items.iter().enumerate() {
            each(number, self.restore_one(item, beaten));
        }
    }

    fn locate(&self, hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(self.find_latest(hash))
    }

    fn segment_restored(&self, record: &SegmentRecord, dead: &[Resident], expired: &[Resident]) {
        self.close_segment(record, dead, expired);
    }

    fn has_been_read(&self, item: &Resident) -> bool {
        let Some(spot) = self.spot_of(item.hash, item.place) else {
            return false;
        };
        let naming = self.naming(&self.shard(item.hash).lock(), item.hash, &spot);
        naming.is_some_and(|naming| naming.clock > shard::CLOCK_WRITTEN)
    }

    fn clock_of(&self, item: &Resident) -> u8 {
        let spot = self.spot_of(item.hash, item.place);
        let Some(spot) = spot.filter(|_| self.has_one_clock) else {
            return 0;
        };
        let naming = self.naming(&self.shard(item.hash).lock(), item.hash, &spot);
        naming.map_or(0, |naming| naming.clock)
    }

    fn keep_one_clock(&self, hash: KeyHash, memory: InMemory) -> u64 {
        self.move_one_hand(hash, memory)
    }

    fn is_recorded(&self, item: &Resident) -> bool {
        let (hash, version) = (item.hash, item.version);
        let Some(spot) = self.spot_of(hash, item.place) else {
            return false;
        };
        let shard = self.shard(hash).lock();
        // Of an entry with another function that leads there, too, the mark is not the item's.
        let naming = self.naming(&shard, hash, &spot);
        naming.is_some_and(|naming| naming.own > 0) && !shard.dead.kills(hash.0, spot.rank(version))
    }

    fn record_in(&self, journal: &Arc<Journal>) {
        self.set_journal(journal);
    }

    fn locates_later(&self) -> bool {
        true
    }

    fn entry_marks(&self, item: &Resident) -> Option<[u32; PROBES]> {
        let spot = self.spot_of(item.hash, item.place)?;
        Some(self.marks(item.hash, &spot))
    }

    fn recovered(&self) {
        self.end_restoring();
    }

    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        self.tasks()
    }

    fn entries_lost(&self) -> u64 {
        let counted = self.counters.read();
        // Of any segment and function: for each mark as many innocent items as have its slot, at most.
        let sharing = PROBES as u64 * self.index_use.objects.load(Ordering::Relaxed);
        let is_small = self.slots < SMALL_TABLES;
        let by_marks = match is_small {
            true => counted.recorded_lost,
            false => counted.recorded_lost * sharing / self.slots,
        };
        counted.lost() + by_marks
    }

    fn compact(&self) -> CompactStats {
        let mut stats = CompactStats {
            filter_bytes: self.members.read().memory_bytes(),
            ..self.counters.read()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.entries += shard.table.len() as u64;
            stats.ghosts += shard.table.ghosts() as u64;
            stats.dead_keys += shard.dead.len() as u64;
            stats.table_bytes += shard.table.memory_bytes();
        }
        stats
    }
}

impl Residents for Hashed {
    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        let (hash, version) = (item.hash, item.version);
        let Some(spot) = self.spot_of(hash, item.place) else {
            return Named::No;
        };
        self.change(hash, |shard| {
            let Some(naming) = self.naming(shard, hash, &spot) else {
                return Named::No;
            };
            if shard.dead.kills(hash.0, spot.rank(version)) {
                self.remove_dead(shard, hash, &spot, version);
                return Named::No;
            }
            if keep(Priority::of_read(naming.is_hot)) {
                return Named::Kept;
            }
            let others = shard.remove_all(hash.0, &spot) as u64 - 1;
            self.counters.removed_shared.add(others);
            Named::Removed
        })
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        let (hash, version) = (item.hash, item.version);
        let from = self.spot_of(hash, item.place);
        let Some(to) = self.spot_of(hash, to) else {
            return false;
        };
        self.change(hash, |shard| {
            let naming = from.and_then(|from| {
                if shard.dead.kills(hash.0, from.rank(version)) {
                    self.remove_dead(shard, hash, &from, version);
                    return None;
                }
                let naming = self.naming(shard, hash, &from);
                if naming.is_none() {
                    // The item with which it shared an entry has taken that along.
                    self.counters.removed_shared.add(1);
                }
                naming
            });
            let Some(naming) = naming else {
                self.leave_out(shard, hash, &to, version);
                self.record_dead_below(hash, version + 1);
                return false;
            };
            self.change_members(|members| members.add(to.segment, to.generation, hash.0));
            shard.replace(naming, to.own());
            true
        })
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let mut forgotten = 0;
        for shard in &self.shards {
            let slots = shard.lock().table.slots();
            for first in (0..slots).step_by(SWEPT_SLOTS) {
                let mut shard = shard.lock();
                let before = shard.table.len();
                let swept = first..slots.min(first + SWEPT_SLOTS);
                shard
                    .table
                    .sweep_segment(record.segment, swept, |_, _| false);
                forgotten += (before - shard.table.len()) as u64;
            }
        }
        self.index_use.objects.add(forgotten.wrapping_neg());
        forgotten
    }
}
