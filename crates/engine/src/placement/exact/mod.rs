//! `exact`: an index of everything in memory over packed or slotted segments.
//!
//! ```text
//!   place ──> segment store: append ──> index: insert          (under the item's partition lock)
//!   access ─> index: lookup ──> get: pin ──> one flash read ──> checksum, key
//!   reclaim ─> victim: summary ──> policy ──> copy or drop ──> release
//! ```
//!
//! An index entry holds a [`Location`] in as many bits as the flash needs; the rest of its 8 bytes
//! tells keys apart. Two keys that agree in all those bits displace each other: a miss, never a
//! wrong value. Locks: a shard's table, and under it the journal's.
//!
//! Whatever leaves the index before its segment goes is declared dead in the journal, in the same
//! hold of the shard's lock: `docs/recovery.md` says why that is enough to start from.

mod background;
pub(crate) mod checkpoint;
pub(crate) mod dead;
pub(crate) mod location;
mod reclaim;
mod recover;
mod reserve;

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use index::direct::{DirectConfig, DirectTable, Entry};
use parking_lot::Mutex;
use runtime::sync::Notify;
use runtime::work::{self, Work};

pub use checkpoint::{CheckpointHead, Written};
pub use dead::CheckpointContents;
pub use reclaim::ReclaimConfig;
pub use recover::RecoveryStats;
pub use reserve::Watermarks;

use super::{
    BackgroundTask, Displaced, DumpCursor, DumpItem, Found, MemoryUse, Placement, PlacementFuture,
    PlacementStats, Probe, Token,
};
use crate::config::Schedule;
use crate::format::item::{CHECKSUM_BYTES, state};
use crate::format::journal::{Record, kept_hash};
use crate::format::segment::{Position, largest_item};
use crate::horizon::Horizon;
use crate::journal::Journal;
use crate::key::{Key, KeyHash};
use crate::partition::Passthrough;
use crate::store::{
    AppendItem, Filled, ReadError, SavedCheckpoint, SegmentId, SegmentRecord, SegmentStore, Source,
};
use dead::Dead;
use location::{Location, LocationCodec};
use recover::Recovery;

/// How an [`Exact`] placement is set up.
#[derive(Clone, Debug)]
pub struct ExactConfig {
    /// Bound on the index's memory, in bytes.
    pub index_max_bytes: u64,
    /// Bits of the hash that choose the partition; the index has as many shards.
    pub partition_bits: u32,
    /// Items the index is laid out for, for the life of the image: decides into how many small
    /// tables a shard is cut, not how many items it can hold.
    pub expected_items: u64,
    /// When segments are written and reclaimed.
    pub schedule: Schedule,
    /// Free buffers with which sealed segments are not yet written; `None` writes them at once.
    pub spare_buffers: Option<usize>,
    /// Segments written at once.
    pub writers: usize,
    /// When and how segments are reclaimed.
    pub reclaim: ReclaimConfig,
    /// Segments reclaimed at once.
    pub reclaimers: usize,
}

/// The `exact` placement.
pub struct Exact {
    store: Arc<SegmentStore>,
    codec: LocationCodec,
    shards: Box<[Mutex<Shard>]>,
    journal: Arc<Journal>,
    recovery: Recovery,
    partition_bits: u32,
    index_max_bytes: u64,
    /// Bytes of all shards; kept here so that asking takes no lock.
    index_bytes: AtomicU64,
    objects: AtomicU64,
    horizon: Arc<Horizon>,
    policy: reclaim::Policy,
    reclaimers: usize,
    schedule: Schedule,
    spare_buffers: Option<usize>,
    writers: usize,
    /// A caller has asked for room.
    is_asked: AtomicBool,
    /// An orderly stop has begun: the reserve may be filled.
    winding_down: AtomicBool,
    /// Reclaim begins no more.
    frozen: AtomicBool,
    /// Reclaims that have a segment in their hands, or are about to.
    reclaiming: AtomicU32,
    stopping: AtomicBool,
    /// Told whenever a segment has been written or given up.
    progress: Notify,
    /// Memory that a checkpoint takes while it is written.
    checkpoint_memory_bytes: u64,
    counters: Counters,
}

/// The index entries of a partition.
struct Shard {
    table: DirectTable,
    /// The keys that this run has written or deleted, while recovery goes on.
    overlay: Option<HashSet<u64, BuildHasherDefault<Passthrough>>>,
}

impl Shard {
    /// Whether this run has written or deleted a key that recovery has yet to come to.
    fn has_written(&self, hash: KeyHash) -> bool {
        let overlay = self.overlay.as_ref();
        overlay.is_some_and(|overlay| overlay.contains(&kept_hash(hash.0)))
    }
}

#[derive(Debug, Default)]
struct Counters {
    segments_reclaimed: AtomicU64,
    segments_dropped: AtomicU64,
    wear_levelings: AtomicU64,
    segments_leveled: AtomicU64,
    bytes_copied_to_level: AtomicU64,
    items_copied: AtomicU64,
    bytes_copied: AtomicU64,
    items_evicted: AtomicU64,
    items_expired: AtomicU64,
    index_full: AtomicU64,
    items_lost: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// The configuration cannot be indexed.
#[derive(Debug, thiserror::Error)]
#[error("the index cannot be set up: {0}")]
pub struct ExactError(#[from] index::direct::ConfigError);

/// Bytes an object takes in a checkpoint at most: dead, or read since it was written.
const CHECKPOINT_ENTRY_BYTES: u64 = 2;
/// Segments a checkpoint may need beyond those of its lists.
const CHECKPOINT_SPARE_SEGMENTS: u32 = 2;
/// Tasks that read summaries at a start; each goes to a worker of its own, while there are so many.
const RECOVERY_TASKS: usize = 8;
/// Smallest buckets of a small table: more of them tell more keys apart, at 64 bytes each.
const MIN_BUCKETS: u32 = 64;

impl Exact {
    /// The placement over `store`.
    ///
    /// # Errors
    /// When the flash is too large for the index's entries.
    pub fn new(
        store: Arc<SegmentStore>,
        horizon: Arc<Horizon>,
        journal: Arc<Journal>,
        config: &ExactConfig,
    ) -> Result<Self, ExactError> {
        let codec = LocationCodec::new(store.segments(), store.segment_bytes());
        let shards = 1u64 << config.partition_bits;
        let table = DirectConfig {
            value_bits: codec.bits(),
            max_entries_hint: (config.expected_items / shards).max(1),
            skip_bits: config.partition_bits,
            min_buckets: MIN_BUCKETS,
            max_bytes: u64::MAX,
        };
        let shards = (0..shards)
            .map(|_| {
                let table = DirectTable::new(table)?;
                let overlay = None;
                Ok(Mutex::new(Shard { table, overlay }))
            })
            .collect::<Result<Box<[_]>, index::direct::ConfigError>>()?;
        let index_bytes = shards
            .iter()
            .map(|shard| shard.lock().table.memory_bytes())
            .sum();
        let policy = reclaim::Policy::new(config.reclaim);
        store.keep_back(policy.kept_back());
        let checkpoint_memory_bytes = checkpoint::memory_bytes(store.segments(), journal.fill().0);
        Ok(Self {
            store,
            codec,
            shards,
            journal,
            recovery: Recovery::none(),
            partition_bits: config.partition_bits,
            index_max_bytes: config.index_max_bytes,
            index_bytes: AtomicU64::new(index_bytes),
            objects: AtomicU64::new(0),
            horizon,
            policy,
            reclaimers: config.reclaimers,
            schedule: config.schedule,
            spare_buffers: config.spare_buffers,
            writers: config.writers,
            is_asked: AtomicBool::new(false),
            winding_down: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            reclaiming: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            progress: Notify::new(),
            checkpoint_memory_bytes,
            counters: Counters::default(),
        })
    }

    /// The segments underneath.
    #[must_use]
    pub fn store(&self) -> &Arc<SegmentStore> {
        &self.store
    }

    /// What has been found of an earlier run: living segments, oldest first, and what has died in
    /// them. The background tasks put what lives into the index. `clock` is the latest Unix second
    /// known to have been, `first_sequence` that of this run.
    pub(crate) fn recover(
        &mut self,
        segments: Vec<SegmentRecord>,
        dead: Dead,
        clock: u32,
        first_sequence: u64,
    ) {
        self.recovery = Recovery::new(segments, Some(dead), clock, first_sequence);
        if self.recovery.is_running() {
            for shard in &self.shards {
                shard.lock().overlay = Some(HashSet::default());
            }
        }
    }

    /// The index does not name a packed location any more, whose segment is not being reclaimed.
    fn displace(&self, location: u64) {
        self.store.count_out(self.codec.decode(location).segment);
        self.declare_dead(location, self.life(location));
    }

    /// An item has been copied from a packed location; whether the index names the copy now.
    fn move_entry(&self, hash: KeyHash, old: u64, filled: Filled) -> bool {
        let new = self.codec.encode(Location {
            segment: filled.segment,
            position: filled.position,
        });
        let replaced = self.change(hash, |shard| {
            let replaced = shard.table.replace_if(hash.0, old, new);
            if replaced {
                self.store.count_in(filled.segment);
            }
            replaced
        });
        if !replaced {
            // Overwritten or deleted meanwhile: the copy is garbage from the start.
            self.declare_dead(new, self.life(new));
        }
        replaced
    }

    /// The item at a packed location, in a life of its segment, will never be read again.
    fn declare_dead(&self, location: u64, life: u64) {
        self.journal.append(Record::Dead { location, life });
    }

    /// Visits the value and the recency of every index entry.
    fn each_entry(&self, mut visit: impl FnMut(u64, bool)) {
        for shard in &self.shards {
            let shard = shard.lock();
            shard
                .table
                .for_each(|_, value, recent| visit(value, recent));
        }
    }

    fn shard(&self, hash: KeyHash) -> &Mutex<Shard> {
        &self.shards[hash.partition(self.partition_bits)]
    }

    /// Bytes the index may still grow by before reclaim has to make room in it.
    fn index_headroom(&self) -> u64 {
        self.index_max_bytes
            .saturating_sub(self.index_bytes.load(Ordering::Relaxed))
    }

    /// Runs `change` on the shard of `hash` and accounts for what it did to the shard's size.
    fn change<T>(&self, hash: KeyHash, change: impl FnOnce(&mut Shard) -> T) -> T {
        self.change_shard(hash.partition(self.partition_bits), change)
    }

    /// As [`change`](Self::change), of the shard of a partition.
    fn change_shard<T>(&self, partition: usize, change: impl FnOnce(&mut Shard) -> T) -> T {
        work::count(Work::IndexStep, 1);
        let mut shard = self.shards[partition].lock();
        let (len, bytes) = (shard.table.len(), shard.table.memory_bytes());
        let result = change(&mut shard);
        let (new_len, new_bytes) = (shard.table.len(), shard.table.memory_bytes());
        drop(shard);
        // Wrapping addition of the difference: it may be negative.
        if new_len != len {
            self.objects
                .fetch_add((new_len as u64).wrapping_sub(len as u64), Ordering::Relaxed);
        }
        if new_bytes != bytes {
            self.index_bytes
                .fetch_add(new_bytes.wrapping_sub(bytes), Ordering::Relaxed);
        }
        result
    }

    /// Free segments to keep at present: when stopping, those that the checkpoint will fill.
    fn free_target(&self) -> u32 {
        if !self.winding_down.load(Ordering::SeqCst) {
            // What is kept back is to be more than writes need.
            return reclaim::watermarks(self)
                .high
                .max(self.policy.kept_back() + 1);
        }
        let entries = self.store.items_placed() + u64::from(self.store.segments());
        let segments = entries * CHECKPOINT_ENTRY_BYTES / u64::from(self.store.segment_bytes());
        segments as u32 + CHECKPOINT_SPARE_SEGMENTS
    }

    fn insert(&self, hash: KeyHash, location: Location) -> bool {
        let value = self.codec.encode(location);
        let bounded = self.index_headroom() == 0;
        self.change(hash, |shard| {
            self.note_write(shard, hash);
            let table = &mut shard.table;
            // Once the bound is reached a table may fill up, but not grow.
            table.set_max_bytes(if bounded {
                table.memory_bytes()
            } else {
                u64::MAX
            });
            match table.insert(hash.0, value) {
                Ok(replaced) => {
                    self.store.count_in(location.segment);
                    if let Some(replaced) = replaced {
                        self.displace(replaced);
                    }
                    true
                }
                Err(_) => false,
            }
        })
    }

    /// While recovery goes on, what a write displaces may not be known yet: all older items of the
    /// key are declared dead.
    fn note_write(&self, shard: &mut Shard, hash: KeyHash) {
        if let Some(overlay) = &mut shard.overlay
            && overlay.insert(kept_hash(hash.0))
        {
            self.journal.append(Record::HashDead { hash: hash.0 });
        }
    }

    /// What is told of an entry. The entry's shard is locked, so that the segment keeps its life.
    fn found(&self, entry: Option<Entry>) -> Probe {
        match entry {
            Some(entry) => Probe::Present(Token {
                entry: entry.value,
                life: self.life(entry.value),
                fetched: entry.recent,
            }),
            None => Probe::Absent,
        }
    }

    /// The life of the segment that an entry's value names.
    fn life(&self, value: u64) -> u64 {
        self.store.sequence(self.codec.decode(value).segment)
    }

    /// What the index says of a key.
    fn entry(&self, hash: KeyHash) -> Option<u64> {
        work::count(Work::IndexStep, 1);
        Some(self.shard(hash).lock().table.lookup(hash.0)?.value)
    }

    async fn read(&self, key: Key<'_>, mut token: Token) -> Result<Found, ReadError> {
        loop {
            let location = self.codec.decode(token.entry);
            let Some(pin) = self.store.pin(location.segment, token.life) else {
                // Reclaimed since the look-up: the item has moved, or it is gone.
                match self.probe(key.hash()) {
                    Probe::Present(moved) => token = moved,
                    Probe::Absent => return Ok(Found::Absent),
                }
                continue;
            };
            return match self.store.read(&pin, location.position).await {
                Ok(item) if item.item().key != key.bytes() => Ok(Found::Absent),
                Ok(mut item) => {
                    if token.fetched {
                        item.mark(state::FETCHED);
                    }
                    Ok(Found::Item(item))
                }
                Err(error) => {
                    if let Probe::Present(moved) = self.probe(key.hash())
                        && moved != token
                    {
                        // Overwritten meanwhile, or its block failed and it lies elsewhere.
                        token = moved;
                        continue;
                    }
                    if matches!(error, ReadError::Corrupt { .. }) {
                        self.forget(key.hash(), token);
                    }
                    Err(error)
                }
            };
        }
    }
}

impl Placement for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn largest_body(&self) -> usize {
        largest_item(self.store.segment_bytes()) as usize - CHECKSUM_BYTES
    }

    fn probe(&self, hash: KeyHash) -> Probe {
        work::count(Work::IndexStep, 1);
        let shard = self.shard(hash).lock();
        self.found(shard.table.lookup(hash.0))
    }

    fn access(&self, hash: KeyHash) -> Probe {
        work::count(Work::IndexStep, 1);
        let mut shard = self.shard(hash).lock();
        self.found(shard.table.access(hash.0))
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        token: Token,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        Box::pin(self.read(key, token))
    }

    fn place(&self, batch: &[AppendItem<'_>]) -> usize {
        if self.index_headroom() == 0
            && self.store.written_segments() > 0
            && !self.winding_down.load(Ordering::SeqCst)
        {
            // Reclaim makes room in the index as it does on flash.
            self.store.work().notify_all();
            return 0;
        }
        let placed = self.store.append(batch, Source::Write, |number, filled| {
            let hash = batch[number].hash;
            let location = Location {
                segment: filled.segment,
                position: filled.position,
            };
            if !self.insert(hash, location) {
                Counters::add(&self.counters.index_full, 1);
                // Neither this copy nor an older one, if any, may come to life at a later start.
                let value = self.codec.encode(location);
                self.declare_dead(value, self.life(value));
                self.invalidate(hash);
            }
        });
        let rest = &batch[placed..];
        if rest.is_empty() || !self.store.is_exhausted() {
            return placed;
        }
        // Waiting would be for ever: a cache without flash drops what memory cannot hold.
        for append in rest {
            self.invalidate(append.hash);
        }
        Counters::add(&self.counters.items_lost, rest.len() as u64);
        batch.len()
    }

    fn invalidate(&self, hash: KeyHash) -> Displaced {
        self.change(hash, |shard| {
            self.note_write(shard, hash);
            match shard.table.remove(hash.0) {
                Some(value) => {
                    self.displace(value);
                    Displaced::Copy
                }
                None => Displaced::None,
            }
        })
    }

    fn forget(&self, hash: KeyHash, token: Token) {
        self.change(hash, |shard| {
            if self.life(token.entry) == token.life && shard.table.remove_if(hash.0, token.entry) {
                self.displace(token.entry);
            }
        });
    }

    fn may_displace(&self) -> bool {
        self.journal.has_room()
    }

    fn room(&self) -> &Notify {
        self.store.room()
    }

    fn ask_for_room(&self) {
        if !self.works_in_background() {
            self.is_asked.store(true, Ordering::Release);
            self.store.work().notify_all();
        }
    }

    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        background::tasks(self)
    }

    fn use_reserve(&self) {
        self.winding_down.store(true, Ordering::SeqCst);
        self.store.keep_back(0);
        self.store.reopen();
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.store.work().notify_all();
    }

    fn drain(&self) -> PlacementFuture<'_, ()> {
        Box::pin(background::drain(self))
    }

    fn settle(&self) -> PlacementFuture<'_, ()> {
        Box::pin(background::settle(self))
    }

    fn recovered(&self) -> PlacementFuture<'_, ()> {
        Box::pin(self.recovery.wait())
    }

    fn recovery(&self) -> RecoveryStats {
        self.recovery.stats()
    }

    fn checkpoint<'a>(
        &'a self,
        head: &'a CheckpointHead,
        end: u64,
        last: Option<&'a SavedCheckpoint>,
        with_recency: bool,
    ) -> PlacementFuture<'a, Option<Written>> {
        Box::pin(checkpoint::write(self, head, end, last, with_recency))
    }

    fn sync(&self) -> PlacementFuture<'_, Result<(), device::DeviceError>> {
        Box::pin(self.store.sync())
    }

    fn dump<'a>(
        &'a self,
        cursor: &'a mut DumpCursor,
        visit: &'a mut dyn FnMut(DumpItem<'_>),
    ) -> PlacementFuture<'a, bool> {
        Box::pin(reclaim::dump_segment(self, cursor, visit))
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            index_bytes: self.index_bytes.load(Ordering::Relaxed) + self.recovery.memory_bytes(),
            fixed_bytes: self.store.memory_bytes() as u64
                + self.journal.memory_bytes()
                + self.checkpoint_memory_bytes,
        }
    }

    fn stats(&self) -> PlacementStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Watermarks { low, high } = self.policy.last_watermarks();
        PlacementStats {
            objects: load(&self.objects),
            low_watermark: low,
            high_watermark: high,
            segments_reclaimed: load(&self.counters.segments_reclaimed),
            segments_dropped: load(&self.counters.segments_dropped),
            wear_levelings: load(&self.counters.wear_levelings),
            segments_leveled: load(&self.counters.segments_leveled),
            bytes_copied_to_level: load(&self.counters.bytes_copied_to_level),
            items_copied: load(&self.counters.items_copied),
            bytes_copied: load(&self.counters.bytes_copied),
            items_evicted: load(&self.counters.items_evicted),
            items_expired: load(&self.counters.items_expired),
            index_full: load(&self.counters.index_full),
            items_lost: load(&self.counters.items_lost),
        }
    }
}

/// The location a summary entry names.
fn entry_location(segment: SegmentId, position: u32) -> Location {
    Location {
        segment,
        position: Position::from_bits(position),
    }
}
