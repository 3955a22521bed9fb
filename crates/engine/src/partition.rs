//! A partition of the key space: its DRAM tier, its versions, its flights. Behind one lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::dram::DramTier;
use crate::flight::Flight;
use crate::key::KeyHash;

/// Counters of the request paths of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Reads answered from memory.
    pub dram_hits: u64,
    /// Reads answered from flash, also those that shared another's read.
    pub flash_hits: u64,
    /// Reads of what is not there.
    pub misses: u64,
    /// Misses among them because the device failed or gave wrong bytes.
    pub failed_reads: u64,
    /// Reads that found an item expired.
    pub expired: u64,
    /// Reads that found an item flushed.
    pub flushed: u64,
    /// Items stored, and their bytes of key and value.
    pub items_set: u64,
    /// Bytes of key and value stored.
    pub item_bytes_set: u64,
    /// Reads that shared another's flash read.
    pub shared_flights: u64,
    /// Items read from flash that were kept in memory.
    pub promotions: u64,
}

/// What a partition's lock protects.
pub(crate) struct Partition {
    pub(crate) tier: DramTier,
    pub(crate) next_version: u64,
    /// Distance from one version of this partition to its next: the number of partitions, so that
    /// no two items of the cache share a version.
    version_step: u64,
    /// The last `flush_all` this partition has applied.
    pub(crate) flush_generation: u64,
    pub(crate) flights: HashMap<KeyHash, Arc<Flight>, BuildHasherDefault<Passthrough>>,
    pub(crate) stats: PathStats,
    turns: u32,
}

impl Partition {
    /// The partition with this `number` out of `partitions`, whose versions start at `first_version`
    /// or soon after.
    pub(crate) fn new(
        chunk_bytes: usize,
        first_version: u64,
        number: u64,
        partitions: u64,
    ) -> Self {
        Self {
            tier: DramTier::new(chunk_bytes),
            next_version: first_version.next_multiple_of(partitions) + number,
            version_step: partitions,
            flush_generation: 0,
            flights: HashMap::default(),
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

    /// A write to a key: a flight under way is over for newcomers.
    pub(crate) fn overtake(&mut self, hash: KeyHash) {
        if !self.flights.is_empty() {
            self.flights.remove(&hash);
        }
    }
}

/// A hasher for what is a hash already.
#[derive(Default)]
pub(crate) struct Passthrough(u64);

impl Hasher for Passthrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
