//! [`Tiers`]: the state of all tiers in memory, by partition, and the operations on Tier 1.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use runtime::pages::PagePool;
use runtime::sync::Notify;

use super::bounds::Bounds;
use super::brake::Brake;
use super::counters::{Counters, add};
use super::hot::{self, Hot, HotTable};
use super::layouts::Layouts;
use super::pages::PageStore;
use super::partition::Partition;
use super::segments::Segments;
use super::shape::{CascadeConfig, Shape};
use super::usage::MemoryUse;

use index::ConfigError;

/// Tier 1 has no space for another mapping until upkeep moves some down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotFull;

/// The partitions, and the bounds on Tier 1 of each. All threads use it at once.
///
/// Invariant: a partition, and its mark on the brake, change only under the partition's lock. `memory` is told of each
/// change of the size of Tier 1.
pub struct Tiers {
    pub(super) shape: Shape,
    pub(super) layouts: Layouts,
    /// Mask of the hash bits that are kept.
    pub(super) kept: u64,
    pub(super) partitions: Box<[Mutex<Partition>]>,
    /// Wakes the upkeep of each partition.
    pub(super) work: Box<[Notify]>,
    pub(super) bounds: Bounds,
    /// Back-pressure on writers.
    pub brake: Brake,
    /// Bytes of memory in use.
    pub memory: MemoryUse,
    pub(super) segments: Arc<dyn Segments>,
    pub(super) counters: Arc<Counters>,
}

impl Tiers {
    pub(super) fn new(
        config: &CascadeConfig,
        shape: Shape,
        bounds: Bounds,
        image: u64,
        segments: Arc<dyn Segments>,
        counters: &Arc<Counters>,
        pool: &Arc<PagePool>,
    ) -> Result<Self, ConfigError> {
        let kept_bits = hot::kept_bits(config, &shape)?;
        let layouts = Layouts::new(config, &shape, image);
        let partition = |number| {
            let hot = HotTable::new(config, &shape, number, Arc::clone(pool))?;
            Ok(Mutex::new(Partition::new(hot, &layouts)))
        };
        let count = shape.partitions();
        let partitions = (0..count)
            .map(partition)
            .collect::<Result<Box<[_]>, ConfigError>>()?;
        let hot_bytes = partitions.iter().map(|one| one.lock().hot.memory_bytes());
        let memory = MemoryUse::new(hot_bytes.sum(), count);
        Ok(Self {
            shape,
            layouts,
            kept: u64::MAX << (u64::BITS - kept_bits),
            partitions,
            work: (0..count).map(|_| Notify::default()).collect(),
            bounds,
            brake: Brake::new(count),
            memory,
            segments,
            counters: Arc::clone(counters),
        })
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    pub(super) fn number_of(&self, hash: u64) -> usize {
        ((hash >> 1) >> (63 - self.shape.partition_bits)) as usize
    }

    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Partition> {
        self.partitions[self.number_of(hash)].lock()
    }

    /// Runs `change` on the partition of `hash` and updates the memory accounted to Tier 1.
    pub(super) fn change<T>(&self, hash: u64, change: impl FnOnce(&mut Partition) -> T) -> T {
        let mut partition = self.lock(hash);
        let before = partition.hot.memory_bytes();
        let result = change(&mut partition);
        let grown = partition.hot.memory_bytes().wrapping_sub(before);
        let is_due = partition.hot.len() > self.bounds.hot();
        drop(partition);
        if grown != 0 {
            self.memory.hot_has_grown(grown);
        }
        if is_due {
            self.work[self.number_of(hash)].notify_all();
        }
        result
    }

    /// Follows a change of a partition, under its lock: releases the brake, gives reserved pages of `store` back if Tier 1
    /// has shrunk, and sets the memory accounted to the lower tiers.
    pub(super) fn account(&self, number: usize, partition: &Partition, store: &PageStore) {
        if partition.hot.len() < self.brake.entries(&self.bounds) {
            self.brake.release(number);
        }
        if let Some(reserved) = self.bounds.settle(&self.shape, number, partition.hot.len()) {
            store.reserve(reserved);
        }
        let bytes = partition.heap_bytes() as u64;
        self.memory.set_below(number, bytes);
    }

    /// Whether Tier 1 has so many tombstones that soon no checkpoint would have space for it.
    pub(super) fn is_overwhelmed(&self, partition: &Partition) -> bool {
        partition.hot.len() > self.bounds.buried()
    }

    /// Whether Tier 1 has space for a mapping found in a lower tier.
    pub(super) fn may_promote(&self, partition: &Partition) -> bool {
        partition.hot.len() < self.bounds.grown()
    }

    /// Returns the mapping of a key in Tier 1, and whether it was read since it was inserted or passed over.
    pub fn lookup(&self, hash: u64) -> Option<(Hot, bool)> {
        let hash = hash & self.kept;
        let entry = self.lock(hash).hot.get(hash)?;
        Some((entry.hot, entry.is_recent))
    }

    /// As [`lookup`](Self::lookup), and counts as a read.
    pub fn access(&self, hash: u64) -> Option<(Hot, bool)> {
        let hash = hash & self.kept;
        let entry = self.lock(hash).hot.access(hash)?;
        add(&self.counters.tier1_hits, 1);
        Some((entry.hot, entry.is_recent))
    }

    /// Touches the buckets of these keys, all of one partition, ahead of calls that need them. The first key only selects
    /// the partition.
    pub fn warm(&self, hashes: &mut dyn Iterator<Item = u64>) {
        let Some(first) = hashes.next() else { return };
        self.lock(first).hot.warm(hashes);
    }

    /// Whether a tier below the first may name a key.
    pub fn may_be_below(&self, hash: u64) -> bool {
        let hash = hash & self.kept;
        self.lock(hash).may_be_below(&self.layouts, hash)
    }

    /// Maps a key to a place and supersedes all its older mappings. Returns the mapping that Tier 1 had. If `may_grow`,
    /// Tier 1 may exceed its size while the lower tiers do not keep up, as far as a checkpoint of it has space.
    ///
    /// # Errors
    /// [`HotFull`], with nothing changed. A key that Tier 1 has already is never refused.
    pub fn insert(&self, hash: u64, code: u64, may_grow: bool) -> Result<Option<Hot>, HotFull> {
        let hash = hash & self.kept;
        let most = if may_grow {
            self.bounds.grown()
        } else {
            self.bounds.most_hot()
        };
        self.change(hash, |partition| {
            let before = partition.hot.get(hash).map(|entry| entry.hot);
            self.press_where_full(self.number_of(hash), partition, most);
            if before.is_none() && partition.hot.len() >= most {
                return Err(HotFull);
            }
            partition.hot.put(hash, Hot::At(code), true);
            Ok(before)
        })
    }

    /// Removes all mappings of a key. Returns the mapping that Tier 1 had; whether a lower tier had one is not known.
    pub fn bury(&self, hash: u64) -> Option<Hot> {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let before = partition.hot.get(hash).map(|entry| entry.hot);
            partition.bury(&self.layouts, hash);
            // A tombstone is never refused, so it takes space from later insertions.
            self.press_where_full(self.number_of(hash), partition, self.bounds.grown());
            before
        })
    }

    /// Presses the brake if Tier 1 of a partition nearly has `most` entries.
    pub(super) fn press_where_full(&self, number: usize, partition: &Partition, most: usize) {
        if partition.hot.len() >= self.brake.entries_of(most, &self.bounds) {
            self.brake.press(number, most);
        }
    }

    /// [Buries](Self::bury) a key if Tier 1 maps it to `code`. Returns whether it did.
    pub fn bury_if(&self, hash: u64, code: u64) -> bool {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let is_named = partition.says(hash, code);
            if is_named {
                partition.bury(&self.layouts, hash);
                self.press_where_full(self.number_of(hash), partition, self.bounds.grown());
            }
            is_named
        })
    }

    /// Removes all mappings of reclaimed segments from Tier 1.
    pub fn sweep(&self) {
        for number in 0..self.partitions.len() {
            let partition = &mut *self.partitions[number].lock();
            let before = partition.hot.memory_bytes();
            let gone = partition
                .hot
                .take_gone(|code| self.segments.named_by(code).is_none());
            for hash in gone {
                partition.bury(&self.layouts, hash);
            }
            let grown = partition.hot.memory_bytes().wrapping_sub(before);
            self.memory.hot_has_grown(grown);
        }
    }

    /// Replaces the mapping of a key by `new` if Tier 1 maps it to `old`. Returns whether it did.
    pub fn replace_if(&self, hash: u64, old: u64, new: u64) -> bool {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let is_named = partition.says(hash, old);
            if is_named {
                partition.hot.put(hash, Hot::At(new), true);
            }
            is_named
        })
    }
}
