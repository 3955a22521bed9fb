//! What a hash table has done, and the memory that it takes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::drive::Drive;

/// What is counted, beside what each drive counts.
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

/// What a [`SliceHash`](crate::SliceHash) has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashStats {
    /// Keys that were looked up, there or not.
    pub lookups: u64,
    /// Look-ups that a table in memory has answered, also by a delete.
    pub memory_hits: u64,
    /// Look-ups that have found their key on a drive.
    pub drive_hits: u64,
    /// Not looked for on a drive, because a filter knew that they are not there.
    pub spared: u64,
    /// Pages that look-ups have read, whether their key was there or not.
    pub page_reads: u64,
    /// Pages among these that were read by look-ups that have found nothing.
    pub absent_page_reads: u64,
    /// Slicetables that have been written.
    pub flushes: u64,
    /// Tables that these have taken: more where some waited on the side.
    pub flushed_tables: u64,
    /// Changes in the tables that have been flushed.
    pub flushed_entries: u64,
    /// Values that went with the oldest incarnation.
    pub evicted: u64,
    /// Older copies of changed keys that flushes have erased.
    pub erased: u64,
    /// Bytes that flushes have read.
    pub bytes_read: u64,
    /// Bytes that flushes have written.
    pub bytes_written: u64,
    /// Damaged pages that flushes have begun anew.
    pub pages_lost: u64,
}

/// Memory of a [`SliceHash`](crate::SliceHash), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashMemory {
    /// The tables of partitions, with those that are being flushed or wait for it on the side.
    pub tables: u64,
    /// What is kept for each partition beside.
    pub partitions: u64,
    /// Bloom filters, with those that flushes are making.
    pub filters: u64,
    /// Two pieces of the slicetable that a drive rewrites, one being written and one being read.
    pub pieces: u64,
}

impl Counts {
    /// All that has been counted, with what the drives have.
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
    /// The memory of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.tables + self.partitions + self.filters + self.pieces
    }
}
