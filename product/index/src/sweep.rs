//! A CLOCK sweep over a table: the caller's verdict on each entry, and the hand between sweeps.
//!
//! The hand is a place among the hashes, not the number of a bucket: it stays the same when a sub-table is rebuilt with
//! more or fewer buckets. The bucket that it falls into is then visited from its beginning, so nothing is skipped.

/// Verdict on an entry that [`DirectTable::sweep`](crate::DirectTable::sweep) visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Keep the entry as it is.
    Keep,
    /// Keep the entry, with rank 0.
    Clear,
    /// Remove the entry: the caller has it now.
    Take,
}

/// Position of a sweep. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    /// The least hash, partition bits zero, of the first bucket not visited yet.
    pub(crate) next: u64,
}
