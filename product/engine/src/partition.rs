//! A partition of the key space: its DRAM tier, its versions, its in-flight reads. Behind one lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use runtime::pages::PagePool;

use crate::counter::summed;
use crate::dram::DramTier;
use crate::in_flight::InFlightRead;
use crate::key::{KeyHash, Passthrough};

/// Write counters of a partition. Keys whose hashes agree in the low bits share one: a change to a
/// fetched item then reads once more than it had to.
const WRITE_GENERATIONS: usize = 256;

summed! {
    /// Counters of the request paths of one partition.
    PathStats {
        /// Reads answered from memory.
        dram_hits,
        /// Reads answered from flash, also those that shared another's read.
        flash_hits,
        /// Reads of keys that are not there.
        misses,
        /// Misses that cost a flash read; `misses` counts them, too.
        flash_misses,
        /// Misses because the device failed or gave wrong bytes; `misses` counts them, too.
        failed_reads,
        /// Reads that found an item expired.
        expired,
        /// Reads that found an item flushed.
        flushed,
        /// Items stored by clients, overwrites included.
        items_set,
        /// Bytes of key and value stored.
        item_bytes_set,
        /// Reads that shared another's flash read.
        shared_reads,
        /// Items read from flash that were kept in memory.
        promotions,
    }
}

/// State that a partition's lock protects.
pub(crate) struct Partition {
    pub(crate) tier: DramTier,
    pub(crate) next_version: u64,
    /// Distance from one version of this partition to its next: the number of partitions, so that
    /// no two items of the cache share a version.
    version_step: u64,
    /// The last `flush_all` this partition has applied.
    pub(crate) flush_generation: u64,
    in_flight: HashMap<KeyHash, Arc<InFlightRead>, BuildHasherDefault<Passthrough>>,
    write_generations: Box<[u32; WRITE_GENERATIONS]>,
    pub(crate) stats: PathStats,
    turns: u32,
}

/// Bytes of memory of a partition that holds nothing but one chunk of `chunk_bytes`.
pub(crate) fn least_bytes(chunk_bytes: u64) -> u64 {
    (size_of::<Partition>() + size_of::<[u32; WRITE_GENERATIONS]>()) as u64 + chunk_bytes
}

impl Partition {
    /// The partition with this `number` out of `partitions`, whose versions start at `first_version`
    /// or soon after.
    pub(crate) fn new(
        (chunk_bytes, pool): (usize, Arc<PagePool>),
        first_version: u64,
        number: u64,
        partitions: u64,
    ) -> Self {
        Self {
            tier: DramTier::new(chunk_bytes, pool),
            next_version: first_version.next_multiple_of(partitions) + number,
            version_step: partitions,
            flush_generation: 0,
            in_flight: HashMap::default(),
            write_generations: Box::new([0; WRITE_GENERATIONS]),
            stats: PathStats::default(),
            turns: 0,
        }
    }

    /// True once in `one_in` calls.
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

    /// How many writes to a key, deletions included, there have been: as long as it is the same, a
    /// change may be based on what was read from flash.
    pub(crate) fn write_generation(&self, hash: KeyHash) -> u32 {
        self.write_generations[hash.0 as usize % WRITE_GENERATIONS]
    }

    /// Counts a write to a key. Who asks from now on does not share a read that is under way, and
    /// what was fetched for a change does not count any more.
    pub(crate) fn count_write(&mut self, hash: KeyHash) {
        let generation = &mut self.write_generations[hash.0 as usize % WRITE_GENERATIONS];
        *generation = generation.wrapping_add(1);
        if !self.in_flight.is_empty() {
            self.in_flight.remove(&hash);
        }
    }

    /// The in-flight read of a key, and whether it has only now begun.
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

    /// Takes an in-flight read out of the table; false when a write has done so before.
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
