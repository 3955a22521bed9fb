//! `exact`: an index of everything in memory over packed segments.
//!
//! ```text
//!   place ──> segment store: append ──> index: insert          (under the item's partition lock)
//!   access ─> index: lookup ──> get: pin ──> one flash read ──> checksum, key
//!   reclaim ─> oldest segment: summary ──> policy ──> copy or drop ──> release
//! ```
//!
//! An index entry holds a [`Location`] in as many bits as the flash needs; the rest of its 8 bytes
//! tells keys apart. Two keys that agree in all those bits displace each other: a miss, never a
//! wrong value. Locks: a shard's table, and under it only [`SegmentStore::pin`].

mod background;
mod checkpoint;
mod location;
mod reclaim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use index::direct::{DirectConfig, DirectTable, Entry};
use parking_lot::Mutex;
use runtime::sync::Notify;

pub use reclaim::ReclaimConfig;

use super::{
    BackgroundTask, Displaced, DumpCursor, DumpItem, Found, MemoryUse, Placement, PlacementFuture,
    PlacementStats, Probe, Token,
};
use crate::format::item::CHECKSUM_BYTES;
use crate::format::segment::{Position, largest_item};
use crate::horizon::Horizon;
use crate::key::{Key, KeyHash};
use crate::store::{
    AppendItem, CheckpointSource, ReadError, SavedCheckpoint, SegmentId, SegmentStore,
};
use location::{Location, LocationCodec};

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
    /// When and how segments are reclaimed.
    pub reclaim: ReclaimConfig,
}

/// The `exact` placement.
pub struct Exact {
    store: Arc<SegmentStore>,
    codec: LocationCodec,
    shards: Box<[Mutex<DirectTable>]>,
    partition_bits: u32,
    index_max_bytes: u64,
    /// Bytes of all shards; kept here so that asking takes no lock.
    index_bytes: AtomicU64,
    objects: AtomicU64,
    horizon: Arc<Horizon>,
    reclaim: ReclaimConfig,
    /// An orderly stop has begun: the reserve may be filled.
    winding_down: AtomicBool,
    /// Reclaim begins no more.
    frozen: AtomicBool,
    /// Reclaim has a segment in its hands, or is about to.
    reclaiming: AtomicBool,
    stopping: AtomicBool,
    /// Told whenever a segment has been written or given up.
    progress: Notify,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    segments_reclaimed: AtomicU64,
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

/// Bytes an object takes in a checkpoint.
const CHECKPOINT_ENTRY_BYTES: u64 = 16;
/// Segments a checkpoint may need beyond those of its index entries.
const CHECKPOINT_SPARE_SEGMENTS: u32 = 2;
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
            .map(|_| DirectTable::new(table).map(Mutex::new))
            .collect::<Result<Box<[_]>, _>>()?;
        let index_bytes = shards.iter().map(|shard| shard.lock().memory_bytes()).sum();
        Ok(Self {
            store,
            codec,
            shards,
            partition_bits: config.partition_bits,
            index_max_bytes: config.index_max_bytes,
            index_bytes: AtomicU64::new(index_bytes),
            objects: AtomicU64::new(0),
            horizon,
            reclaim: config.reclaim,
            winding_down: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            reclaiming: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            progress: Notify::new(),
            counters: Counters::default(),
        })
    }

    /// The segments underneath.
    #[must_use]
    pub fn store(&self) -> &Arc<SegmentStore> {
        &self.store
    }

    fn shard(&self, hash: KeyHash) -> &Mutex<DirectTable> {
        &self.shards[hash.partition(self.partition_bits)]
    }

    /// Bytes the index may still grow by before reclaim has to make room in it.
    fn index_headroom(&self) -> u64 {
        self.index_max_bytes
            .saturating_sub(self.index_bytes.load(Ordering::Relaxed))
    }

    /// Runs `change` on the shard of `hash` and accounts for what it did to the shard's size.
    fn change<T>(&self, hash: KeyHash, change: impl FnOnce(&mut DirectTable) -> T) -> T {
        let mut shard = self.shard(hash).lock();
        let (len, bytes) = (shard.len(), shard.memory_bytes());
        let result = change(&mut shard);
        let (new_len, new_bytes) = (shard.len(), shard.memory_bytes());
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
            return self.reclaim.free_segments;
        }
        let entries = self.objects.load(Ordering::Relaxed) + u64::from(self.store.segments());
        let segments = entries * CHECKPOINT_ENTRY_BYTES / u64::from(self.store.segment_bytes());
        segments as u32 + CHECKPOINT_SPARE_SEGMENTS
    }

    fn insert(&self, hash: KeyHash, location: Location) -> bool {
        let value = self.codec.encode(location);
        let bounded = self.index_headroom() == 0;
        self.change(hash, |table| {
            // Once the bound is reached a table may fill up, but not grow.
            table.set_max_bytes(if bounded {
                table.memory_bytes()
            } else {
                u64::MAX
            });
            table.insert(hash.0, value).is_ok()
        })
    }

    /// Puts an entry of an earlier run back, whatever the bound: reclaim brings the index under a
    /// smaller one.
    fn restore(&self, hash: KeyHash, value: u64, recent: bool) {
        self.change(hash, |table| {
            table.set_max_bytes(u64::MAX);
            if table.insert(hash.0, value).is_ok() && recent {
                table.mark_recent(hash.0);
            }
        });
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
        Some(self.shard(hash).lock().lookup(hash.0)?.value)
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
                        item.mark_fetched();
                    }
                    Ok(Found::Item(item))
                }
                Err(error) => {
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
        let shard = self.shard(hash).lock();
        self.found(shard.lookup(hash.0))
    }

    fn access(&self, hash: KeyHash) -> Probe {
        let mut shard = self.shard(hash).lock();
        self.found(shard.access(hash.0))
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
        let placed = self.store.append(batch, |number, filled| {
            let hash = batch[number].hash;
            let location = Location {
                segment: filled.segment,
                position: filled.position,
            };
            if !self.insert(hash, location) {
                Counters::add(&self.counters.index_full, 1);
                // The older copy, if any, must not come back to life.
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
        match self.change(hash, |table| table.remove(hash.0)) {
            Some(_) => Displaced::Copy,
            None => Displaced::None,
        }
    }

    fn forget(&self, hash: KeyHash, token: Token) {
        self.change(hash, |table| {
            if self.life(token.entry) == token.life {
                table.remove_if(hash.0, token.entry);
            }
        });
    }

    fn room(&self) -> &Notify {
        self.store.room()
    }

    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        background::tasks(self)
    }

    fn use_reserve(&self) {
        self.winding_down.store(true, Ordering::SeqCst);
        self.store.reopen();
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.store.work().notify_all();
    }

    fn drain(&self) -> PlacementFuture<'_, ()> {
        Box::pin(background::drain(self))
    }

    fn save(&self, head: Vec<u8>) -> PlacementFuture<'_, Option<SavedCheckpoint>> {
        Box::pin(checkpoint::save(self, head))
    }

    fn load<'a>(
        &'a self,
        from: &'a mut CheckpointSource,
    ) -> PlacementFuture<'a, Result<(), ReadError>> {
        Box::pin(checkpoint::load(self, from))
    }

    fn open_checkpoint(&self, saved: &SavedCheckpoint) -> CheckpointSource {
        self.store.open_checkpoint(saved)
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
            index_bytes: self.index_bytes.load(Ordering::Relaxed),
            fixed_bytes: self.store.memory_bytes() as u64,
        }
    }

    fn stats(&self) -> PlacementStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PlacementStats {
            objects: load(&self.objects),
            segments_reclaimed: load(&self.counters.segments_reclaimed),
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
