//! What a map has done, and the memory that it takes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::{HashMemory, HashStats};

/// What is counted beside what the table counts.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) lookups: AtomicU64,
    pub(super) inserted: AtomicU64,
    pub(super) deleted: AtomicU64,
    pub(super) memory_hits: AtomicU64,
    pub(super) found: AtomicU64,
    pub(super) record_reads: AtomicU64,
    pub(super) overwritten: AtomicU64,
    pub(super) other_keys: AtomicU64,
    pub(super) record_bytes: AtomicU64,
}

/// What a [`SliceMap`](crate::SliceMap) has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapStats {
    /// Inserts, also those that were refused.
    pub inserted: u64,
    /// Deletes, also of what was not there.
    pub deleted: u64,
    /// Keys that were looked up, there or not.
    pub lookups: u64,
    /// Look-ups that a record in memory has answered, also by a delete.
    pub memory_hits: u64,
    /// Look-ups that have found a value.
    pub found: u64,
    /// Look-ups that have read a record on a drive.
    pub record_reads: u64,
    /// Look-ups whose record had been written over.
    pub overwritten: u64,
    /// Look-ups that have found another key of the same hash in the record.
    pub other_keys: u64,
    /// Bytes of records that have been written, whole pages.
    pub record_bytes: u64,
    /// What its table has done. `bytes_written` has the records, too.
    pub table: HashStats,
}

/// Memory of a [`SliceMap`](crate::SliceMap), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapMemory {
    /// Memory of its table, which has the address of each key's record.
    pub table: HashMemory,
    /// Segments of records that have not been written; one more of them while it is.
    pub segments: u64,
    /// Which record in memory is the newest of its key.
    pub newest: u64,
}

impl MapMemory {
    /// The memory of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.table.total() + self.segments + self.newest
    }
}

impl Counts {
    pub(super) fn stats(&self, table: HashStats) -> MapStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MapStats {
            inserted: load(&self.inserted),
            deleted: load(&self.deleted),
            lookups: load(&self.lookups),
            memory_hits: load(&self.memory_hits),
            found: load(&self.found),
            record_reads: load(&self.record_reads),
            overwritten: load(&self.overwritten),
            other_keys: load(&self.other_keys),
            record_bytes: load(&self.record_bytes),
            table,
        }
    }
}
