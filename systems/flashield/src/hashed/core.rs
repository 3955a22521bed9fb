//! [`Hashed`]: what the index holds, and what becomes of entries.
//!
//! ```text
//!   an update ──▶ outdate: dead key, queued ──▶ verify: reads what may be its copy ──▶ entry removed, dead key struck out
//!                     │ too many of them                  │ two keys may have made the entry
//!                     ▼                                   ▼
//!                 candidates removed unread           the key stays dead until the segment goes
//! ```
//!
//! Locks: a partition's, then `members`, `restored` or the queue. All are below those of the store.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::compact::{
    CompactConfig, CompactEntry, CompactTable, Inserted, Location, OutOfRange, PROBES, SlotId,
};
use runtime::sync::Notify;
use runtime::work::{self, Work};

use super::HashedSettings;
use super::dead::{CopyRank, DeadKeys};
use super::members::Members;
use super::restoring::Restoring;
use super::shard::{Naming, Shard};
use super::spot::{Spot, turned};
use super::stats::{Counters, Held};
use engine::Count as _;
use engine::format::hashed::{HashedPositions, entry_mark};
use engine::format::journal::Record;
use engine::format::location::Place;
use engine::format::segment::SegmentId;
use engine::journal::Journal;
use engine::placement::{Displaced, InMemory, Parts};
use engine::reclaim::IndexUse;
use engine::store::SegmentStore;
use engine::{Key, KeyHash};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Dead keys of a partition, about, before entries are removed unread: one for so many slots of its table, or as many as fit
/// this part of the memory of the index, within these bounds.
const SLOTS_PER_DEAD_KEY: usize = 256;
const DEAD_KEYS_SHARE: u64 = 16;
const DEAD_KEY_BYTES: u64 = 128;
const FEW_DEAD_KEYS: std::ops::RangeInclusive<u64> = 16..=1024;

/// A compact index over segments in which the hash of a key says where its item lies.
pub(super) struct Hashed {
    pub(super) store: Arc<SegmentStore>,
    pub(super) index_use: Arc<IndexUse>,
    pub(super) counters: Counters,
    /// Kept beside the locks, so that statistics take none.
    pub(super) held: Held,
    pub(super) shards: Box<[Mutex<Shard>]>,
    pub(super) members: RwLock<Members>,
    pub(super) dead_keys: DeadQueue,
    /// What is known while the items of an earlier run come back. No entry vanishes meanwhile but with its segment.
    pub(super) restoring: Mutex<Restoring>,
    pub(super) is_restoring: AtomicBool,
    /// Where lost entries are recorded; there before anything is placed.
    journal: Arc<OnceLock<Arc<Journal>>>,
    /// So little of the flash is free that some of its items have to be ghosts.
    pub(super) is_full: AtomicBool,
    pub(super) hot_percent: u32,
    /// Memory and flash have one CLOCK.
    pub(super) has_one_clock: bool,
    /// Items that all of the flash holds, about; 0 where that is not known.
    capacity: AtomicU64,
    /// Slots of all tables.
    pub(super) slots: u64,
    partition_bits: u32,
    /// Of the hashes of keys.
    seed: u64,
}

/// Keys whose dead copies are to be looked for.
#[derive(Default)]
pub(super) struct DeadQueue {
    hashes: Mutex<VecDeque<u64>>,
    pub(super) work: Notify,
}

impl DeadQueue {
    /// Queues a key. Returns by how many bytes the queue has grown.
    fn push(&self, hash: u64) -> u64 {
        let mut hashes = self.hashes.lock();
        let before = hashes.capacity();
        hashes.push_back(hash);
        let grown = hashes.capacity() - before;
        drop(hashes);
        self.work.notify_all();
        (grown * size_of::<u64>()) as u64
    }

    /// Takes so many of the keys that have waited longest, at most.
    pub(super) fn take(&self, most: usize) -> Vec<u64> {
        let mut hashes = self.hashes.lock();
        let taken = most.min(hashes.len());
        hashes.drain(..taken).collect()
    }
}

/// An entry that may be a key's, in the generation that its segment had when the table was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) slot: SlotId,
    pub(super) location: Location,
    pub(super) generation: u64,
}

/// The table of a partition: so many slots for all of them together.
pub(super) fn table_config(slots: u64, segments: u32, partition_bits: u32) -> CompactConfig {
    let slots = (slots >> partition_bits) as usize;
    CompactConfig {
        slots: slots.max(crate::compact::PROBES),
        segment_bits: CompactConfig::segment_bits_for(u64::from(segments)),
        skip_bits: partition_bits,
    }
}

impl Hashed {
    pub(super) fn new(
        settings: &HashedSettings,
        slots: u64,
        parts: Parts,
    ) -> Result<Self, OutOfRange> {
        let segments = parts.store.segments();
        let config = table_config(slots, segments, parts.partition_bits);
        let (least, most) = FEW_DEAD_KEYS.into_inner();
        let affordable = parts.index_use.max_bytes / DEAD_KEYS_SHARE / DEAD_KEY_BYTES;
        let affordable = (affordable >> parts.partition_bits).clamp(least, most);
        let most_dead = (config.slots / SLOTS_PER_DEAD_KEY).max(affordable as usize);
        let shard = |_| {
            let table = CompactTable::new(config)?;
            let dead = DeadKeys::new(most_dead);
            Ok(Mutex::new(Shard::new(table, dead)))
        };
        let hashed = Self {
            shards: (0..1u64 << parts.partition_bits)
                .map(shard)
                .collect::<Result<_, _>>()?,
            members: RwLock::new(Members::new(segments)),
            store: parts.store,
            index_use: parts.index_use,
            counters: Counters::default(),
            held: Held::default(),
            dead_keys: DeadQueue::default(),
            restoring: Mutex::default(),
            is_restoring: AtomicBool::new(false),
            journal: parts.journal,
            is_full: AtomicBool::new(false),
            hot_percent: settings.hot_percent,
            has_one_clock: settings.one_clock,
            capacity: AtomicU64::new(0),
            slots: (config.slots << parts.partition_bits) as u64,
            partition_bits: parts.partition_bits,
            seed: parts.image,
        };
        let (tables, filters) = (hashed.table_bytes(), hashed.members.read().memory_bytes());
        hashed.held.table_bytes.add(tables);
        hashed.held.filter_bytes.add(filters);
        hashed
            .index_use
            .bytes
            .store(tables + filters, Ordering::Relaxed);
        Ok(hashed)
    }

    pub(super) fn journal(&self) -> &Arc<Journal> {
        self.journal
            .get()
            .expect("nothing is placed before there is a journal")
    }

    /// The mark of an entry in a slot of the key's table.
    fn mark(&self, shard: &Shard, hash: KeyHash, slot: SlotId, function: u8) -> u32 {
        let partition = hash.partition(self.partition_bits);
        let slot = partition * shard.table.slots() + slot.0;
        entry_mark(slot as u64, function)
    }

    /// The marks of the entries that a copy of a key may have had.
    pub(super) fn marks(&self, shard: &Shard, hash: KeyHash, spot: &Spot) -> [u32; PROBES] {
        let slots = shard.table.slots_of(hash.0);
        slots.map(|slot| self.mark(shard, hash, slot, spot.own().function))
    }

    /// An entry in a slot of this key has gone, and perhaps it was another key's: its copy is dead from here on, since an
    /// update of that key may find no sign of it. While the partition is locked.
    pub(super) fn record_lost(&self, shard: &Shard, hash: KeyHash, slot: SlotId, at: Location) {
        let generation = self.store.sequence(at.segment);
        if generation == 0 {
            return;
        }
        self.counters.recorded_lost.add(1);
        self.journal().append(Record::EntryLost {
            segment: at.segment.0,
            generation,
            mark: self.mark(shard, hash, slot, at.function),
        });
    }

    /// Removes the entry of a dead copy of a key, as [`Shard::remove_dead`] does.
    pub(super) fn remove_dead(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        spot: &Spot,
        version: u64,
    ) -> bool {
        let (removed, is_unnamed) = shard.remove_dead(hash.0, spot, version);
        if let Some((slot, location)) = removed {
            self.record_lost(shard, hash, slot, location);
        }
        is_unnamed
    }

    /// No later start may find a copy of a key with a lower version.
    pub(super) fn record_dead_below(&self, hash: KeyHash, version: u64) {
        let hash = hash.0;
        self.journal().append(Record::KeyDead { hash, version });
    }

    /// Bytes of all tables.
    pub(super) fn table_bytes(&self) -> u64 {
        let tables = self.shards.iter();
        tables.map(|shard| shard.lock().table.memory_bytes()).sum()
    }

    /// The hash of a key that has been read.
    pub(super) fn hash_of(&self, key: &[u8]) -> Option<KeyHash> {
        Key::new(key, self.seed).map(|key| key.hash())
    }

    /// The shard of a key.
    pub(super) fn shard(&self, hash: KeyHash) -> &Mutex<Shard> {
        &self.shards[hash.partition(self.partition_bits)]
    }

    /// Runs `change` on the shard of a key and accounts for what it did.
    pub(super) fn change<T>(&self, hash: KeyHash, change: impl FnOnce(&mut Shard) -> T) -> T {
        work::count(Work::IndexStep, 1);
        self.change_shard(self.shard(hash), change)
    }

    /// Runs `change` on a shard and accounts for its effect.
    pub(super) fn change_shard<T>(
        &self,
        shard: &Mutex<Shard>,
        change: impl FnOnce(&mut Shard) -> T,
    ) -> T {
        let mut shard = shard.lock();
        let sizes = |shard: &Shard| {
            [
                shard.table.len() as u64,
                shard.table.ghosts() as u64,
                shard.dead.len() as u64,
                shard.dead.memory_bytes(),
            ]
        };
        let before = sizes(&shard);
        let result = change(&mut shard);
        let after = sizes(&shard);
        drop(shard);
        let sums = [
            &self.index_use.objects,
            &self.held.ghosts,
            &self.held.dead_keys,
            &self.index_use.bytes,
        ];
        for ((sum, before), after) in sums.into_iter().zip(before).zip(after) {
            if after != before {
                // Wrapping addition of the difference: it may be negative.
                sum.add(after.wrapping_sub(before));
            }
        }
        result
    }

    /// Runs `change` on what is known of segments and accounts for what it did.
    pub(super) fn change_members<T>(&self, change: impl FnOnce(&mut Members) -> T) -> T {
        let mut members = self.members.write();
        let bytes = members.memory_bytes();
        let result = change(&mut members);
        let grown = members.memory_bytes().wrapping_sub(bytes);
        drop(members);
        if grown != 0 {
            self.index_use.bytes.add(grown);
            self.held.filter_bytes.add(grown);
        }
        result
    }

    /// Queues a key whose dead copies are to be looked for.
    pub(super) fn queue(&self, hash: u64) {
        let grown = self.dead_keys.push(hash);
        if grown > 0 {
            self.index_use.bytes.add(grown);
        }
    }

    /// Where an item lies; `None` where its segment is in another generation.
    pub(super) fn spot_of(&self, hash: KeyHash, place: Place) -> Option<Spot> {
        if self.store.sequence(place.segment) != place.generation {
            return None;
        }
        let (segment, generation) = (place.segment, place.generation);
        let positions = self.positions(hash, generation);
        Spot::at(
            segment,
            generation,
            &positions,
            place.position.offset(),
            hash,
        )
    }

    /// Where a candidate for a key leads.
    pub(super) fn spot(&self, hash: KeyHash, candidate: &Candidate) -> Option<Spot> {
        let (location, generation) = (candidate.location, candidate.generation);
        let positions = self.positions(hash, generation);
        let offset = positions.offset(turned(hash, location.function).into());
        Spot::at(location.segment, generation, &positions, offset, hash)
    }

    fn positions(&self, hash: KeyHash, generation: u64) -> HashedPositions {
        HashedPositions::new(self.store.segment_bytes(), generation, hash.0)
    }

    /// The entries that lead to a place of a key; none where look-ups would not find it, as the segment does not seem to have
    /// the key.
    pub(super) fn naming(&self, shard: &Shard, hash: KeyHash, spot: &Spot) -> Option<Naming> {
        let naming = shard.naming(hash.0, spot)?;
        let members = self.members.read();
        let may_have = members.may_have(spot.segment, spot.generation, hash.0);
        may_have.then_some(naming)
    }

    /// Whether a key may be on flash.
    pub(super) fn has_candidates(&self, shard: &Shard, hash: KeyHash) -> bool {
        let members = self.members.read();
        let mut entries = shard.table.entries(hash.0);
        entries.any(|(_, entry)| {
            let segment = entry.location.segment;
            let generation = self.store.sequence(segment);
            // Free segments have none.
            generation != 0 && members.may_have(segment, generation, hash.0)
        })
    }

    /// The entries that may be a key's.
    pub(super) fn candidates(&self, shard: &Shard, hash: KeyHash) -> Vec<Candidate> {
        let members = self.members.read();
        let entries = shard.table.entries(hash.0);
        let candidate = |(slot, entry): (SlotId, CompactEntry)| {
            let location = entry.location;
            let generation = self.store.sequence(location.segment);
            let may_have =
                generation != 0 && members.may_have(location.segment, generation, hash.0);
            may_have.then_some(Candidate {
                slot,
                location,
                generation,
            })
        };
        entries.filter_map(candidate).collect()
    }

    /// The copies of a key below a rank are dead. Called before the entry of the one that outdates them is made.
    ///
    /// Where nothing leads to one, none is left that a start would find: that is recorded when an entry is lost.
    pub(super) fn outdate(&self, shard: &mut Shard, hash: KeyHash, below: CopyRank) -> Displaced {
        let open = self.members.read().open_with(hash.0, u64::MAX);
        let is_listed = shard.dead.get(hash.0).is_some();
        if !is_listed && open.is_none() && !self.has_candidates(shard, hash) {
            // Nothing will lead to one: entries of a segment come while it is open.
            return Displaced::None;
        }
        let must_list = open.is_some() || self.is_restoring();
        if !must_list && !shard.dead.has_room_for(hash.0) {
            // Each of its copies is recorded by the entry that it loses.
            self.remove_unread(shard, hash, |_| true);
            return Displaced::None;
        }
        if shard.dead.outdate(hash.0, below, open) {
            self.queue(hash.0);
        }
        Displaced::Unknown
    }

    /// A copy of a key has been appended to an open segment and gets no entry: entries that come may lead to it.
    pub(super) fn leave_out(&self, shard: &mut Shard, hash: KeyHash, spot: &Spot, version: u64) {
        let generation = spot.generation;
        self.change_members(|members| members.add(spot.segment, generation, hash.0));
        shard
            .dead
            .exclude(hash.0, spot.rank(version), Some(generation));
    }

    /// Removes all that may be a key's, and some of other keys.
    pub(super) fn remove_unread(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        is_chosen: impl Fn(&Candidate) -> bool,
    ) {
        for candidate in self.candidates(shard, hash) {
            let (slot, location) = (candidate.slot, candidate.location);
            if is_chosen(&candidate) && shard.table.remove_if_at(slot, location).is_some() {
                self.counters.removed_unread.add(1);
                self.record_lost(shard, hash, slot, location);
            }
        }
    }

    /// Whether items of an earlier run are coming back.
    pub(super) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Ordering::SeqCst)
    }

    /// Makes an entry for an item. Returns whether there was a place for it: while items come back it takes none from
    /// others.
    pub(super) fn put(&self, shard: &mut Shard, hash: KeyHash, entry: CompactEntry) -> bool {
        if self.is_restoring() && !shard.has_room_for(hash.0) {
            return false;
        }
        let age = |segment: SegmentId| u64::MAX - self.store.sequence(segment);
        let Inserted { slot, displaced } = shard.put(hash.0, entry, age);
        if let Some(displaced) = displaced {
            let counter = match displaced.is_ghost() {
                true => &self.counters.displaced_ghosts,
                false => &self.counters.displaced_hot,
            };
            counter.add(1);
            self.record_lost(shard, hash, slot, displaced.location);
        }
        true
    }

    /// Makes ghosts of some entries, if that is due.
    pub(super) fn keep_ghosts(&self, shard: &mut Shard) {
        if self.has_one_clock {
            // Of what is on flash alone: memory is not to pay for it.
            shard.move_hand(shard.most_hot);
        } else if self.is_full.load(Ordering::Relaxed) {
            shard.keep_ghosts(self.hot_percent);
        }
    }

    /// Moves the hand of one CLOCK over memory and flash: hot may be what fits all of memory and a part of the flash (Flashield,
    /// section 4.3: DRAM + SSD x hot), in each partition. Returns how many items in memory it has passed.
    pub(super) fn move_one_hand(&self, hash: KeyHash, memory: InMemory) -> u64 {
        let capacity = self.capacity.load(Ordering::Relaxed);
        if capacity == 0 {
            return 0;
        }
        let store = &self.store;
        let flash_bytes = u64::from(store.segments()) * u64::from(store.segment_bytes());
        let item_bytes = (flash_bytes / capacity).max(1);
        let of_flash = (capacity * u64::from(self.hot_percent) / 100) >> self.partition_bits;
        let of_memory = memory.spare_bytes / item_bytes;
        self.change_shard(self.shard(hash), |shard| {
            shard.most_hot = (of_flash + of_memory) as usize;
            shard.move_one_hand(memory.items)
        })
    }

    /// Looks whether the flash is nearly full, and how much it holds.
    pub(super) fn note_fill(&self) {
        let store = &self.store;
        let mean_keys = self.members.read().mean_keys();
        let capacity = mean_keys * u64::from(store.segments());
        self.capacity.store(capacity, Ordering::Relaxed);
        // Watermarks keep half of it free at most.
        let is_full = !store.is_first_fill() && store.free_segments() <= store.segments() / 2;
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}
