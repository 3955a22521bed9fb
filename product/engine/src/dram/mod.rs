//! The DRAM tier of one partition: items in memory, ranked by CLOCK.
//!
//! Items lie in a log of fixed chunks and are appended at the head. Memory is freed one whole chunk at a time, at the
//! tail, so that there is no fragmentation and the bound is exact. CLOCK on a log: when the oldest chunk goes, items
//! read since the hand last passed are appended again with their bit cleared, and the other items leave. A clean item
//! leaves without a write, since its copy is on flash; a dirty item is placed on flash first. Values too long for a
//! chunk lie beside the log, shared, and count against the same bound.
//!
//! ```text
//!   tail                                  head
//!   │ chunk │ chunk │ chunk │ … │ chunk │ chunk ──> append
//!      └─ evict: dead: skip │ referenced: append again │ clean: forget │ dirty: place on flash
//! ```
//!
//! Items that have been dirty for long are placed on flash and stay in memory, clean ([`clean`]).
//!
//! Everything here runs under the partition's lock and never waits. If flash has no space, [`NoSpace`] goes up to the
//! request path, which waits outside the lock.

mod clean;
mod evict;
mod expire;
mod log;
mod long;
#[cfg(test)]
mod tests;
mod tier;

pub(crate) use clean::{Due, Walked};
pub(crate) use log::LogPosition;
pub use long::LongValue;
pub(crate) use tier::EvictContext;
pub(crate) use tier::{DramTier, Handle, NewItem, Older, TierStats};

use crate::flash::{FlashTier, Placed};
use crate::key::KeyHash;
use crate::placement::{DeadCopies, Look, Probe};
use crate::store::AppendItem;

/// Flash has no space at present for an item that has to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

/// Whether flash has a copy of a clean item in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    /// Flash had a copy; only a read of the index would tell whether it still does.
    Perhaps,
    No,
}

impl From<Probe> for Held {
    fn from(probe: Probe) -> Self {
        match probe {
            Probe::At(_) => Self::Yes,
            Probe::Perhaps => Self::Perhaps,
            Probe::Absent => Self::No,
        }
    }
}

/// The DRAM tier's view of the flash below it.
pub(crate) trait Below {
    /// Returns whether the index names a copy of a key.
    fn holds(&self, hash: KeyHash) -> Held;

    /// Does the same as [`holds`](Below::holds), and counts as a read of the copy.
    fn access(&self, hash: KeyHash) -> Held;

    /// Announces that the next calls concern these keys, all of one partition.
    fn warm(&self, _keys: &[(KeyHash, Handle)]) {}

    /// Returns whether a write limit is the cause of missing space. The caller then drops items rather than wait.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Returns whether items that leave memory together are better placed in order of length, longest first.
    fn takes_larger_first(&self) -> bool {
        false
    }

    /// Places items until there is no space, and reports the outcome of each.
    fn place(&self, items: &[AppendItem<'_>], each: &mut dyn FnMut(usize, Placed));
}

impl Below for FlashTier {
    fn holds(&self, hash: KeyHash) -> Held {
        match Held::from(self.probe(hash, Look::Peek)) {
            // For most keys that flash does not have the index says so, hence `Perhaps` counts as a copy.
            Held::Perhaps if self.upkeep.dead_copies == DeadCopies::LocatedLater => Held::Yes,
            held => held,
        }
    }

    fn access(&self, hash: KeyHash) -> Held {
        self.probe(hash, Look::Read).into()
    }

    fn warm(&self, keys: &[(KeyHash, Handle)]) {
        self.placement()
            .warm(&mut keys.iter().map(|(hash, _)| *hash));
    }

    fn is_held_back(&self) -> bool {
        self.is_held_back()
    }

    fn takes_larger_first(&self) -> bool {
        self.places_larger_first
    }

    fn place(&self, items: &[AppendItem<'_>], each: &mut dyn FnMut(usize, Placed)) {
        self.place(items, false, each);
    }
}
