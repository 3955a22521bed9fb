//! Statistics of an index without keys: counters since it was opened, and sizes at present.

use std::sync::atomic::AtomicU64;

engine::counters! {
    /// Entries lost, and reads of wrong entries.
    pub(super) struct Counts {
        /// Entries of items to be kept that other entries displaced.
        displaced_hot = "index_displaced_hot",
        /// Ghosts that other entries displaced.
        displaced_ghosts = "index_displaced_ghosts",
        /// Entries removed without a read of their items, because too many keys had been overwritten or removed.
        removed_unread = "index_removed_unread",
        /// Entries removed or moved with the entry of another key with which they had slot and place in common.
        removed_shared = "index_removed_shared",
        /// Reads that found an item of another key, or none.
        false_reads = "index_false_reads",
        /// Entries of overwritten or removed items, found by a read.
        found_dead = "index_found_dead",
        /// Entries whose loss has been recorded in the journal.
        recorded_lost = "index_recorded_lost",
    }
    from pub(super) struct Counters of AtomicU64
}

impl Counts {
    /// Returns how many entries of live items are lost.
    pub(super) fn lost(&self) -> u64 {
        self.displaced_hot + self.displaced_ghosts + self.removed_unread + self.removed_shared
    }
}

/// Sizes of the index at present.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Entries whose items go with their segments.
    pub(super) ghosts: AtomicU64,
    /// Keys that have been overwritten or removed, to which entries may still lead.
    pub(super) dead_keys: AtomicU64,
    /// Bytes of tables, which never change.
    pub(super) table_bytes: AtomicU64,
    /// Bytes of filters, and of sets of the keys of open segments.
    pub(super) filter_bytes: AtomicU64,
}
