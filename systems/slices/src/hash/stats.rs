//! Counts of a hash table, and its memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::drive::Drive;

/// Counters of a table, in addition to those of each drive.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) lookups: AtomicU64,
    pub(super) memory_hits: AtomicU64,
    pub(super) drive_hits: AtomicU64,
    pub(super) absent_page_reads: AtomicU64,
    pub(super) spared: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) flushed_tables: AtomicU64,
    pub(super) flushed_entries: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) erased: AtomicU64,
}

/// Counts of a [`SliceHash`](crate::SliceHash) since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl Counts {
    /// Returns all counts, including those of the drives.
    pub(super) fn stats(&self, of_drives: &[Drive]) -> HashStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let drives = |count: fn(&Drive) -> &AtomicU64| {
            of_drives.iter().map(|drive| load(count(drive))).sum()
        };
        HashStats {
            lookups: load(&self.lookups),
            memory_hits: load(&self.memory_hits),
            drive_hits: load(&self.drive_hits),
            spared: load(&self.spared),
            absent_page_reads: load(&self.absent_page_reads),
            page_reads: drives(|drive| &drive.counts.page_reads),
            flushes: load(&self.flushes),
            flushed_tables: load(&self.flushed_tables),
            flushed_entries: load(&self.flushed_entries),
            evicted: load(&self.evicted),
            erased: load(&self.erased),
            bytes_read: drives(|drive| &drive.counts.bytes_read),
            bytes_written: drives(|drive| &drive.counts.bytes_written),
            pages_lost: drives(|drive| &drive.counts.pages_lost),
        }
    }
}

impl HashMemory {
    /// Returns the memory of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.tables + self.partitions + self.filters + self.pieces
    }
}
