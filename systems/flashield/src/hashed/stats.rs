//! Statistics of an index without keys: counters since it was opened, and sizes at present.

use engine::Count as _;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Entries of items to be kept that other entries displaced.
    pub(super) displaced_hot: AtomicU64,
    /// Ghosts that other entries displaced.
    pub(super) displaced_ghosts: AtomicU64,
    /// Entries removed without a read of their items, because too many keys had been overwritten or removed.
    pub(super) removed_unread: AtomicU64,
    /// Entries removed or moved with the entry of another key with which they had slot and place in common.
    pub(super) removed_shared: AtomicU64,
    /// Reads that found an item of another key, or none.
    pub(super) false_reads: AtomicU64,
    /// Entries of overwritten or removed items, found by a read.
    pub(super) found_dead: AtomicU64,
    /// Entries whose loss has been recorded in the journal.
    pub(super) recorded_lost: AtomicU64,
}

impl Counters {
    /// Returns how many entries of live items are lost.
    pub(super) fn lost(&self) -> u64 {
        let causes = [
            &self.displaced_hot,
            &self.displaced_ghosts,
            &self.removed_unread,
            &self.removed_shared,
        ];
        causes.iter().map(|cause| cause.get()).sum()
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
