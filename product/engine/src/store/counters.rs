//! [`StoreCounters`]: what a store has done so far.

use std::sync::atomic::AtomicU64;

use crate::counter::Striped;

/// Counters of a segment store; may be read at any time.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Items appended to segments.
    pub items_appended: AtomicU64,
    /// Segments opened.
    pub segments_opened: AtomicU64,
    /// Segments sealed.
    pub segments_sealed: AtomicU64,
    /// Bytes of items, slots and summary entries in sealed segments.
    pub bytes_sealed: AtomicU64,
    /// Bytes of sealed segments that are due to copies made to gain space: of each segment the share of its content
    /// that was copied.
    pub bytes_for_copies: AtomicU64,
    /// Segments written.
    pub segments_written: AtomicU64,
    /// Segments opened for writes by clients, not for copies.
    pub segments_opened_for_writes: AtomicU64,
    /// Erases issued to the flash.
    pub erases: AtomicU64,
    /// Erases of blocks that had been erased before, if the device counts erases. The first erase of a block is no wear
    /// of use.
    pub erases_of_use: AtomicU64,
    /// Segments whose write failed and whose items were moved to another segment.
    pub segments_moved: AtomicU64,
    /// Bytes written to the flash.
    pub bytes_written: AtomicU64,
    /// Reads issued to the flash.
    pub reads: Striped,
    /// Bytes read from the flash.
    pub bytes_read: Striped,
    /// Reads that failed at the device.
    pub read_errors: AtomicU64,
    /// Items that did not verify.
    pub corrupt_items: AtomicU64,
    /// Segments whose write failed.
    pub write_errors: AtomicU64,
    /// Segments on bad blocks, and segments given up after repeated failures.
    pub segments_retired: AtomicU64,
}
