//! Counts of a map, and its memory.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::hash::{HashMemory, HashStats};

/// Counts of a [`SliceMap`](crate::SliceMap) since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct MapStats {
    /// Inserts, including refused ones.
    pub inserted: u64,
    /// Deletes, including those of absent keys.
    pub deleted: u64,
    /// Keys that were looked up, present or absent.
    pub lookups: u64,
    /// Look-ups that a record in memory has answered, with a value or a delete.
    pub memory_hits: u64,
    /// Look-ups that have found a value.
    pub found: u64,
    /// Look-ups that have read a record on a drive.
    pub record_reads: u64,
    /// Look-ups whose record had been overwritten.
    pub overwritten: u64,
    /// Look-ups that have found the record of another key with the same hash.
    pub other_keys: u64,
    /// Bytes of records that have been written, in whole pages.
    pub record_bytes: u64,
    /// Counts of the table. `bytes_written` includes the records.
    pub table: HashStats,
}

/// Memory of a [`SliceMap`](crate::SliceMap), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapMemory {
    /// Memory of the table, which has the address of each key's record.
    pub table: HashMemory,
    /// Segments of records that have not been written, without the copy of the pages that are being written.
    pub segments: u64,
    /// Index of the newest record in memory of each key.
    pub newest: u64,
}

impl MapMemory {
    /// Returns the memory of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.table.total() + self.segments + self.newest
    }
}
