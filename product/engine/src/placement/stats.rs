//! What a compact index counts.

use crate::counter::counters;

counters! {
    CompactCounters, read as
    /// What an index without keys has done since it was opened, and what it holds; zeros of others.
    CompactStats {
        /// Entries that had to go for others though their items were to be kept.
        displaced_hot,
        /// Ghosts that had to go for others.
        displaced_ghosts,
        /// Entries removed without a look at what they led to, because too many keys had been overwritten or removed.
        removed_unread,
        /// Entries that went with the segment of a key with which they had both slot and place in common.
        removed_shared,
        /// Places read where the item that was looked for was not.
        false_reads,
        /// Entries of items that had been overwritten or removed, found by reading.
        found_dead,
        /// Entries of which the journal says that they have gone.
        recorded_lost,
    }
    also {
        /// Entries that the index has now.
        entries: u64,
        /// Entries among these whose items go with their segments.
        ghosts: u64,
        /// Keys that have been overwritten or removed, to which entries may still lead.
        dead_keys: u64,
        /// Bytes of tables, which never change.
        table_bytes: u64,
        /// Bytes of filters, and of sets of the keys of open segments.
        filter_bytes: u64,
    }
}

impl CompactStats {
    /// Entries of living items that are gone.
    pub fn lost(&self) -> u64 {
        self.displaced_hot + self.displaced_ghosts + self.removed_unread + self.removed_shared
    }
}
