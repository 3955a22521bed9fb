//! [`StoreCounters`]: what a store has done so far.

use std::sync::atomic::AtomicU64;

use crate::counter::{Striped, counters};

counters! {
    /// Counters of a segment store; may be read at any time.
    pub struct StoreStats {
        /// Items appended to segments.
        items_appended,
        /// Segments opened.
        segments_opened,
        /// Segments sealed.
        segments_sealed,
        /// Bytes of items, slots and summary entries in sealed segments.
        bytes_sealed,
        /// Bytes of sealed segments that are due to copies made to gain space: of each segment the share of its content
        /// that was copied.
        bytes_for_copies,
        /// Segments written.
        segments_written,
        /// Segments opened for writes by clients, not for copies.
        segments_opened_for_writes,
        /// Erases issued to the flash.
        erases,
        /// Erases of blocks that had been erased before, if the device counts erases. The first erase of a block is no wear
        /// of use.
        erases_of_use,
        /// Segments whose write failed and whose items were moved to another segment.
        segments_moved,
        /// Bytes written to the flash.
        bytes_written,
        /// Reads issued to the flash.
        reads: Striped,
        /// Bytes read from the flash.
        bytes_read: Striped,
        /// Reads that failed at the device.
        read_errors,
        /// Items that did not verify.
        corrupt_items,
        /// Items that the flash was read for and that did not verify: overwritten by another program, or lost by the device.
        items_damaged,
        /// Segments whose write failed.
        write_errors,
        /// Segments on bad blocks, and segments given up after repeated failures.
        segments_retired,
    }
    from pub struct StoreCounters of AtomicU64
}
