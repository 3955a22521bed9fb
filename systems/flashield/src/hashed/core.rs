//! [`Hashed`]: the parts of the index, and the life of an entry.
//!
//! ```text
//!   an update ──▶ outdate: dead key, queued ──▶ verify: reads possible copies ──▶ entry removed, dead key struck out
//!                     │ too many dead keys                │ two keys may have made the entry
//!                     ▼                                   ▼
//!                 candidates removed unread           the key stays dead until the segment goes
//! ```
//!
//! Lock order: locks of the store, then a partition's, then `members`, `restoring` or the queue.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::compact::{
    CompactConfig, CompactEntry, CompactTable, Inserted, Location, OutOfRange, PROBES, SlotId,
};
use runtime::sync::Notify;
use runtime::work::{self, Work};

use super::dead::{CopyRank, DeadKeys};
use super::hot::HotShare;
use super::members::Members;
use super::restoring::Restoring;
use super::settings::HashedSettings;
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
use engine::{HashSeed, Key, KeyHash};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, Ordering};

/// Estimate of the dead keys of a partition beyond which entries are removed unread: one for [`SLOTS_PER_DEAD_KEY`] slots of
/// the table or, if that is more, as many as fit a share of the index's memory, within [`FEW_DEAD_KEYS`].
const SLOTS_PER_DEAD_KEY: usize = 256;
const DEAD_KEYS_SHARE: u64 = 16;
const DEAD_KEY_BYTES: u64 = 128;
const FEW_DEAD_KEYS: std::ops::RangeInclusive<u64> = 16..=1024;
/// Number of slots below which most keys share slots with other keys.
const SMALL_TABLES: u64 = 1 << 16;

/// A compact index over segments in which the hash of a key gives the position of its item.
pub(super) struct Hashed {
    pub(super) store: Arc<SegmentStore>,
    pub(super) index_use: Arc<IndexUse>,
    pub(super) counters: Counters,
    /// Kept beside the locks, so that statistics take none.
    pub(super) held: Held,
    pub(super) shards: Box<[Mutex<Shard>]>,
    pub(super) members: RwLock<Members>,
    pub(super) dead_keys: DeadQueue,
    /// Keys seen while items of an earlier run are restored. Until that ends, entries are removed only with their segment.
    pub(super) restoring: Mutex<Restoring>,
    pub(super) is_restoring: AtomicBool,
    /// Journal that records lost entries. Set before anything is placed.
    journal: Arc<OnceLock<Arc<Journal>>>,
    pub(super) hot: HotShare,
    /// Number of slots of all tables.
    slots: u64,
    partition_bits: u32,
    /// Seed of the key hashes.
    seed: HashSeed,
}

/// Queue of keys whose dead copies must be found.
#[derive(Default)]
pub(super) struct DeadQueue {
    hashes: Mutex<VecDeque<u64>>,
    pub(super) work: Notify,
}

impl DeadQueue {
    /// Queues a key. Returns the bytes by which the queue has grown.
    fn push(&self, hash: u64) -> u64 {
        let mut hashes = self.hashes.lock();
        let before = hashes.capacity();
        hashes.push_back(hash);
        let grown = hashes.capacity() - before;
        drop(hashes);
        self.work.notify_all();
        (grown * size_of::<u64>()) as u64
    }

    /// Takes at most `most` keys: the ones that have waited longest.
    pub(super) fn take(&self, most: usize) -> Vec<u64> {
        let mut hashes = self.hashes.lock();
        let taken = most.min(hashes.len());
        hashes.drain(..taken).collect()
    }
}

/// An entry that may belong to a key, with the generation that its segment had while the table was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) slot: SlotId,
    pub(super) location: Location,
    pub(super) generation: u64,
}

/// Returns the settings of a partition's table. `slots` is the number for all partitions together.
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
        let segments = parts.store.table().segments();
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
            hot: HotShare::new(settings.hot_percent, settings.one_clock),
            slots: (config.slots << parts.partition_bits) as u64,
            partition_bits: parts.partition_bits,
            seed: parts.hash_seed,
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

    /// Returns the mark of an entry with `function` in a slot of the key's table.
    fn mark(&self, shard: &Shard, hash: KeyHash, slot: SlotId, function: u8) -> u32 {
        let partition = hash.partition(self.partition_bits);
        let slot = partition * shard.table.slots() + slot.0;
        entry_mark(slot as u64, function)
    }

    /// Returns the marks of all entries that a copy of a key may have had.
    pub(super) fn marks(&self, shard: &Shard, hash: KeyHash, spot: &Spot) -> [u32; PROBES] {
        let slots = shard.table.slots_of(hash.0);
        slots.map(|slot| self.mark(shard, hash, slot, spot.own().function))
    }

    /// Records the loss of an entry in a slot of this key. The entry may have belonged to another key. That key's copy is
    /// dead from now on, because an update of that key may not find it. The partition must be locked.
    pub(super) fn record_lost(&self, shard: &Shard, hash: KeyHash, slot: SlotId, at: Location) {
        let generation = self.store.table().sequence(at.segment);
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

    /// Removes the entry of a dead copy of a key like [`Shard::remove_dead`], and records its loss. Returns whether no entry
    /// leads to the copy any more.
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

    /// Records that copies of a key with lower versions are dead, so that no later start restores one.
    pub(super) fn record_dead_below(&self, hash: KeyHash, version: u64) {
        let hash = hash.0;
        self.journal().append(Record::KeyDead { hash, version });
    }

    /// Returns the bytes of all tables.
    pub(super) fn table_bytes(&self) -> u64 {
        let tables = self.shards.iter();
        tables.map(|shard| shard.lock().table.memory_bytes()).sum()
    }

    /// Returns the hash of a key in an item that has been read.
    pub(super) fn hash_of(&self, key: &[u8]) -> Option<KeyHash> {
        Key::new(key, self.seed).map(|key| key.hash())
    }

    /// Returns the shard of a key.
    pub(super) fn shard(&self, hash: KeyHash) -> &Mutex<Shard> {
        &self.shards[hash.partition(self.partition_bits)]
    }

    /// Runs `change` on the shard of a key and accounts for the change of its size.
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

    /// Runs `change` on the keys of the segments and accounts for the change of their size.
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

    /// Queues a key whose dead copies must be found.
    pub(super) fn queue(&self, hash: u64) {
        let grown = self.dead_keys.push(hash);
        if grown > 0 {
            self.index_use.bytes.add(grown);
        }
    }

    /// Returns the spot of an item; `None` if its segment has another generation by now.
    pub(super) fn spot_of(&self, hash: KeyHash, place: Place) -> Option<Spot> {
        if self.store.table().sequence(place.segment) != place.generation {
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

    /// Returns the spot to which a candidate for a key leads.
    pub(super) fn spot(&self, hash: KeyHash, candidate: &Candidate) -> Option<Spot> {
        let (location, generation) = (candidate.location, candidate.generation);
        let positions = self.positions(hash, generation);
        let offset = positions.offset(turned(hash, location.function).into());
        Spot::at(location.segment, generation, &positions, offset, hash)
    }

    fn positions(&self, hash: KeyHash, generation: u64) -> HashedPositions {
        HashedPositions::new(self.store.table().segment_bytes(), generation, hash.0)
    }

    /// Returns the entries that lead to a spot of a key. Returns `None` if look-ups would not use them because the segment
    /// does not seem to have the key.
    pub(super) fn naming(&self, shard: &Shard, hash: KeyHash, spot: &Spot) -> Option<Naming> {
        let naming = shard.naming(hash.0, spot)?;
        let members = self.members.read();
        let may_have = members.may_have(spot.segment, spot.generation, hash.0);
        may_have.then_some(naming)
    }

    /// Returns whether a key may be on flash.
    pub(super) fn has_candidates(&self, shard: &Shard, hash: KeyHash) -> bool {
        let members = self.members.read();
        let mut entries = shard.table.entries(hash.0);
        entries.any(|(_, entry)| {
            let segment = entry.location.segment;
            let generation = self.store.table().sequence(segment);
            // A free segment has no generation.
            generation != 0 && members.may_have(segment, generation, hash.0)
        })
    }

    /// Returns the entries that may belong to a key.
    pub(super) fn candidates(&self, shard: &Shard, hash: KeyHash) -> Vec<Candidate> {
        let members = self.members.read();
        let entries = shard.table.entries(hash.0);
        let candidate = |(slot, entry): (SlotId, CompactEntry)| {
            let location = entry.location;
            let generation = self.store.table().sequence(location.segment);
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

    /// Declares the copies of a key below a rank dead. Called before the copy that outdates them gets its entry.
    ///
    /// If no entry leads to such a copy, no start would restore one either: the loss of its entry has been recorded.
    pub(super) fn outdate(&self, shard: &mut Shard, hash: KeyHash, below: CopyRank) -> Displaced {
        let open = self.members.read().open_with(hash.0, u64::MAX);
        let is_listed = shard.dead.get(hash.0).is_some();
        if !is_listed && open.is_none() && !self.has_candidates(shard, hash) {
            // No entry will lead to such a copy later: a segment gets entries only while it is open.
            return Displaced::None;
        }
        let must_list = open.is_some() || self.is_restoring();
        if !must_list && !shard.dead.has_room_for(hash.0) {
            // The loss of an entry records its copy as dead.
            self.remove_unread(shard, hash, |_| true);
            return Displaced::None;
        }
        if shard.dead.outdate(hash.0, below, open) {
            self.queue(hash.0);
        }
        Displaced::Unknown
    }

    /// Lists a copy of a key as dead that has been appended to an open segment and gets no entry: later entries may lead to
    /// it.
    pub(super) fn leave_out(&self, shard: &mut Shard, hash: KeyHash, spot: &Spot, version: u64) {
        let generation = spot.generation;
        self.change_members(|members| members.add(spot.segment, generation, hash.0));
        shard
            .dead
            .exclude(hash.0, spot.rank(version), Some(generation));
    }

    /// Removes the chosen candidates of a key without a read of their items. Some may be entries of other keys.
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

    /// Returns whether items of an earlier run are being restored.
    pub(super) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Ordering::SeqCst)
    }

    /// Adds an entry for an item. Returns whether it found a slot: while items are restored it displaces no other entry.
    pub(super) fn put(&self, shard: &mut Shard, hash: KeyHash, entry: CompactEntry) -> bool {
        if self.is_restoring() && !shard.has_room_for(hash.0) {
            return false;
        }
        let age = |segment: SegmentId| u64::MAX - self.store.table().sequence(segment);
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

    /// Moves the hand of the shared CLOCK over memory and flash. Returns how many items in memory the hand has passed.
    pub(super) fn move_one_hand(&self, hash: KeyHash, memory: InMemory) -> u64 {
        let most_hot = self.hot.most_hot(&self.store, self.partition_bits, memory);
        let Some(most_hot) = most_hot else {
            return 0;
        };
        self.change_shard(self.shard(hash), |shard| {
            shard.most_hot = most_hot;
            shard.move_one_hand(memory.items)
        })
    }

    /// Updates the capacity of the flash, and whether it is nearly full.
    pub(super) fn note_fill(&self) {
        let mean_keys = self.members.read().mean_keys();
        self.hot.note_fill(&self.store, mean_keys);
    }

    /// Notes that a candidate's item has been read. Returns the entry before the change; `None` if the entry is gone.
    pub(super) fn touch(&self, shard: &mut Shard, candidate: &Candidate) -> Option<CompactEntry> {
        let (slot, location) = (candidate.slot, candidate.location);
        let before = shard.table.touch_if_at(slot, location)?;
        if before.is_ghost() {
            self.hot.keep_ghosts(shard);
        }
        Some(before)
    }

    /// Settles a generation of a segment: it gets no more entries.
    pub(super) fn settle(&self, segment: SegmentId, generation: u64) {
        // Built before the lock is taken for writing, so that look-ups do not wait for it.
        let filter = self.members.read().filter_of(segment, generation);
        if let Some(filter) = filter {
            self.change_members(|members| members.settle(segment, generation, filter));
        }
    }

    /// Queues all dead keys that are not queued.
    pub(super) fn queue_dead(&self) {
        for shard in &self.shards {
            shard.lock().dead.queue_all(|hash| self.queue(hash));
        }
        self.dead_keys.work.notify_all();
    }

    /// Returns an upper bound of the live items whose entries the index has lost, or that a start may lose.
    pub(super) fn entries_lost(&self) -> u64 {
        let counts = self.counters.read();
        // Counts a mark as if it matched every segment and function: on average it hits this many other items, which share
        // its slot.
        let sharing = PROBES as u64 * self.index_use.objects.load(Ordering::Relaxed);
        let is_small = self.slots < SMALL_TABLES;
        let by_marks = match is_small {
            true => counts.recorded_lost,
            false => counts.recorded_lost * sharing / self.slots,
        };
        counts.lost() + by_marks
    }
}
