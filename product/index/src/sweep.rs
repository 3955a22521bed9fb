//! A sweep of CLOCK over a table: what its caller says of each entry, and where the next one goes on.
//!
//! The hand is a place among the hashes, not the number of a bucket: it stays what it is when a sub-table is rebuilt with
//! more buckets or fewer. The bucket that it falls into is then visited from its beginning, so nothing is skipped.

/// What becomes of an entry that [`DirectTable::sweep`](crate::DirectTable::sweep) visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// It stays as it is.
    Keep,
    /// It stays, with rank 0.
    Clear,
    /// It is removed: the caller has it now.
    Take,
}

/// How far a table has been swept. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    /// The least hash, partition bits zero, of the first bucket that has not been visited.
    pub(crate) next: u64,
}
