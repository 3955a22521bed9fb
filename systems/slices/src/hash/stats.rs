//! Counts of a hash table, and its memory.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Counts of a [`SliceHash`](crate::SliceHash) since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct HashStats {
    /// Keys that were looked up, present or absent.
    pub lookups: u64,
    /// Look-ups that a table in memory has answered, with a value or a delete.
    pub memory_hits: u64,
    /// Look-ups that have found their key on a drive.
    pub drive_hits: u64,
    /// Look-ups that a filter has answered: the key is not on the drive.
    pub spared: u64,
    /// Pages that look-ups have read, for present and absent keys.
    pub page_reads: u64,
    /// Pages in `page_reads` that were read by look-ups without a result.
    pub absent_page_reads: u64,
    /// Slicetables that have been written.
    pub flushes: u64,
    /// Tables in these slicetables. Exceeds `flushes` if tables waited on the side.
    pub flushed_tables: u64,
    /// Changes in the tables that have been flushed.
    pub flushed_entries: u64,
    /// Values that were dropped with the oldest incarnation.
    pub evicted: u64,
    /// Older copies of changed keys that flushes have erased.
    pub erased: u64,
    /// Bytes that flushes have read.
    pub bytes_read: u64,
    /// Bytes that flushes have written.
    pub bytes_written: u64,
    /// Damaged pages that flushes have started empty.
    pub pages_lost: u64,
}

/// Memory of a [`SliceHash`](crate::SliceHash), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashMemory {
    /// Tables of the partitions, including tables that are being flushed or wait on the side.
    pub tables: u64,
    /// Other memory of the partitions.
    pub partitions: u64,
    /// Bloom filters, including filters that flushes are building.
    pub filters: u64,
    /// Two pieces of the slicetable that a drive rewrites: one is written, one is read.
    pub pieces: u64,
}

impl HashMemory {
    /// Returns the memory of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.tables + self.partitions + self.filters + self.pieces
    }
}
