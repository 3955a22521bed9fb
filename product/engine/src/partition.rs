//! A partition of the key space: its DRAM tier, its versions and its in-flight reads, behind one lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use runtime::pages::PagePool;

use crate::counter::counters;
use crate::dram::{DramTier, LargeValues};
use crate::in_flight::InFlightRead;
use crate::key::{KeyHash, Passthrough};

/// Number of write counters of a partition. Keys whose hashes agree in the low bits share a counter: a write to one of
/// two such keys makes a change to the other read its item from flash once more.
const WRITE_GENERATIONS: usize = 256;

counters! {
    /// Counters of the request paths of one partition.
    pub struct PathStats {
        /// Reads answered from memory.
        dram_hits,
        /// Reads answered from flash, including reads that shared another request's flash read.
        flash_hits,
        /// Reads of keys that the cache does not have.
        misses,
        /// Misses that cost a flash read; counted in `misses` as well.
        flash_misses,
        /// Misses because the device failed or returned wrong bytes; counted in `misses` as well.
        failed_reads,
        /// Reads that found an item expired.
        expired,
        /// Reads that found an item flushed.
        flushed,
        /// Items stored by clients, overwrites included.
        items_set,
        /// Bytes of key and value stored.
        item_bytes_set,
        /// Reads that shared another request's flash read.
        shared_reads,
        /// Items read from flash that were kept in memory.
        promotions,
    }
}

/// State that a partition's lock protects.
pub(crate) struct Partition {
    pub(crate) tier: DramTier,
    pub(crate) next_version: u64,
    /// Distance between consecutive versions of this partition: the number of partitions, so that no two items of the
    /// cache have the same version.
    version_step: u64,
    /// Generation of the last `flush_all` that this partition has applied.
    pub(crate) flush_generation: u64,
    in_flight: HashMap<KeyHash, Arc<InFlightRead>, BuildHasherDefault<Passthrough>>,
    write_generations: Box<[u32; WRITE_GENERATIONS]>,
    pub(crate) stats: PathStats,
    turns: u32,
}

/// Returns the bytes of memory of a partition that holds a single chunk of `chunk_bytes`.
pub(crate) fn least_bytes(chunk_bytes: u64) -> u64 {
    (size_of::<Partition>() + size_of::<[u32; WRITE_GENERATIONS]>()) as u64 + chunk_bytes
}

impl Partition {
    /// Creates the partition with this `number` out of `partitions`. Its DRAM tier takes chunks of `chunk_bytes` from
    /// `pool`, and counts its large values among `large`; its versions start at `first_version` or soon after.
    pub(crate) fn new(
        chunk_bytes: usize,
        pool: Arc<PagePool>,
        large: Arc<LargeValues>,
        first_version: u64,
        number: u64,
        partitions: u64,
    ) -> Self {
        Self {
            tier: DramTier::new(number as usize, chunk_bytes, pool, large),
            next_version: first_version.next_multiple_of(partitions) + number,
            version_step: partitions,
            flush_generation: 0,
            in_flight: HashMap::default(),
            write_generations: Box::new([0; WRITE_GENERATIONS]),
            stats: PathStats::default(),
            turns: 0,
        }
    }

    /// Returns true once in `one_in` calls.
    pub(crate) fn take_turn(&mut self, one_in: u32) -> bool {
        self.turns = (self.turns + 1) % one_in;
        self.turns == 0
    }

    pub(crate) fn take_version(&mut self) -> u64 {
        let version = self.next_version;
        self.next_version += self.version_step;
        version
    }

    /// Counts a read that found an item dead.
    pub(crate) fn count_dead(&mut self, expired: bool) {
        if expired {
            self.stats.expired += 1;
        } else {
            self.stats.flushed += 1;
        }
    }

    /// Returns the counter of writes to a key, deletions included. As long as it is unchanged, a change may be based on
    /// the item read from flash.
    pub(crate) fn write_generation(&self, hash: KeyHash) -> u32 {
        self.write_generations[hash.0 as usize % WRITE_GENERATIONS]
    }

    /// Counts a write to a key. Later requests do not share a read that is in flight, and items fetched for a change
    /// are no longer valid.
    pub(crate) fn count_write(&mut self, hash: KeyHash) {
        let generation = &mut self.write_generations[hash.0 as usize % WRITE_GENERATIONS];
        *generation = generation.wrapping_add(1);
        if !self.in_flight.is_empty() {
            self.in_flight.remove(&hash);
        }
    }

    /// Returns the in-flight read of a key, and whether this call created it.
    pub(crate) fn join_read(&mut self, hash: KeyHash) -> (Arc<InFlightRead>, bool) {
        match self.in_flight.entry(hash) {
            Entry::Occupied(found) => {
                self.stats.shared_reads += 1;
                found.get().share();
                (Arc::clone(found.get()), false)
            }
            Entry::Vacant(vacant) => (Arc::clone(vacant.insert(Arc::default())), true),
        }
    }

    /// Removes an in-flight read from the table. Returns false if a write has removed it before.
    pub(crate) fn end_read(&mut self, hash: KeyHash, read: &Arc<InFlightRead>) -> bool {
        match self.in_flight.entry(hash) {
            Entry::Occupied(found) if Arc::ptr_eq(found.get(), read) => {
                found.remove();
                true
            }
            _ => false,
        }
    }
}
