//! Choice of the entry to displace when all slots of a new key are taken.
//!
//! A policy chooses among the entries and the table carries it out. The keys of entries are not known, so a displaced
//! entry cannot be put elsewhere: the object stays on flash until its segment is reclaimed and is a miss until then.

use format::segment::SegmentId;

use super::entry::CompactEntry;
use super::probes::{PROBES, SlotId};

/// The entries in the slots of a key, all taken, in the order in which they are tried.
pub type Taken = [(SlotId, CompactEntry); PROBES];

/// Chooses the first ghost, or else the entry that the last function collides with, as in the paper.
pub fn last_collided(taken: &Taken) -> usize {
    let ghost = taken.iter().position(|(_, entry)| entry.is_ghost());
    ghost.unwrap_or(PROBES - 1)
}

/// Chooses the ghost, or else the entry, whose segment will be reclaimed first, as it loses the least. `age` grows with
/// the age of a segment.
pub fn oldest(taken: &Taken, age: impl Fn(SegmentId) -> u64) -> usize {
    let rank = |at: &usize| {
        let (_, entry) = taken[*at];
        (entry.is_ghost(), age(entry.location.segment))
    };
    (0..PROBES).max_by_key(rank).unwrap_or(PROBES - 1)
}
