//! Counts of an index, and its memory.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Pages that queries have read of each channel.
pub(crate) struct ChannelCounts {
    pub(crate) table_pages: Box<[AtomicU64]>,
    pub(crate) vector_pages: Box<[AtomicU64]>,
}

/// Counts of a [`SliceLsh`](crate::SliceLsh) since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct LshStats {
    /// Vectors that have been inserted.
    pub inserts: u64,
    /// Vectors that have been deleted.
    pub deletes: u64,
    /// Queries that have been asked.
    pub queries: u64,
    /// Vectors that tables named, summed over all queries.
    pub candidates: u64,
    /// Candidates that were read and compared.
    pub vectors_read: u64,
    /// Pages of tables that queries have read.
    pub table_pages: u64,
    /// Pages of vectors that queries have read.
    pub vector_pages: u64,
    /// Damaged pages and vectors that queries have left out.
    pub damaged: u64,
    /// Generations that have been flushed to all slicetables.
    pub flushes: u64,
    /// Entries that flushes have written into slicetables.
    pub flushed_entries: u64,
    /// Entries that found both buckets full.
    pub full: u64,
    /// Entries refused because their key had the maximum number of entries in one generation.
    pub crowded: u64,
    /// Vectors without an entry in any table: no query finds them.
    pub unlisted: u64,
    /// Entries that were dropped with the oldest incarnation.
    pub evicted: u64,
    /// Entries of deleted vectors that flushes have removed.
    pub erased: u64,
    /// Bytes that flushes have read.
    pub bytes_read: u64,
    /// Bytes of slicetables and vectors that have been written.
    pub bytes_written: u64,
    /// Damaged pages that flushes have started empty.
    pub pages_lost: u64,
}

/// Pages that queries have read of each channel, all drives together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelReads {
    /// Pages of LSH tables, by channel.
    pub table_pages: Vec<u64>,
    /// Pages of vectors, by channel.
    pub vector_pages: Vec<u64>,
}

impl ChannelReads {
    /// Returns the reads of the fullest channel over the mean, tables and vectors together; 1 without reads.
    pub fn load(&self) -> f64 {
        let both = self.table_pages.iter().zip(&self.vector_pages);
        Self::load_of(
            &both
                .map(|(table, vector)| table + vector)
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the reads of the fullest channel over the mean.
    pub fn load_of(reads: &[u64]) -> f64 {
        let all: u64 = reads.iter().sum();
        let fullest = reads.iter().max().copied().unwrap_or(0);
        match all {
            0 => 1.0,
            _ => fullest as f64 * reads.len() as f64 / all as f64,
        }
    }
}

/// Memory of a [`SliceLsh`](crate::SliceLsh), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LshMemory {
    /// Entries of the generation that takes vectors, and of the one that is being flushed.
    pub entries: u64,
    /// Other memory of the partitions.
    pub partitions: u64,
    /// The random projections of all tables.
    pub functions: u64,
    /// Vectors that are not on a drive yet.
    pub segments: u64,
    /// Bits that mark deleted vectors: a part of the log, whose pages the system may take back.
    pub deletes: u64,
    /// Pieces of slicetables that are being rewritten: two for each drive.
    pub pieces: u64,
}

impl ChannelCounts {
    pub(crate) fn new(channels: u32) -> Self {
        let zeros = || (0..channels).map(|_| AtomicU64::new(0)).collect();
        Self {
            table_pages: zeros(),
            vector_pages: zeros(),
        }
    }

    pub(crate) fn reads(&self) -> ChannelReads {
        let load = |pages: &AtomicU64| pages.load(Ordering::Relaxed);
        ChannelReads {
            table_pages: self.table_pages.iter().map(load).collect(),
            vector_pages: self.vector_pages.iter().map(load).collect(),
        }
    }
}
