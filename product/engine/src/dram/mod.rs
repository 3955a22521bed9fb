//! The DRAM tier of one partition: items in memory, ranked by CLOCK.
//!
//! Items lie in a log of fixed chunks, appended at the head; memory comes free only a chunk at a
//! time, at the tail, so that there is no fragmentation and the bound is exact. CLOCK on a log: when
//! the oldest chunk goes, items read since the hand last passed are appended again with their bit
//! cleared, the others leave. A clean item leaves silently, its copy is on flash; a dirty one is
//! placed on flash first. Values too long for a chunk lie beside the log, shared, and are counted
//! against the same bound.
//!
//! ```text
//!   tail                                  head
//!   │ chunk │ chunk │ chunk │ … │ chunk │ chunk ──> append
//!      └─ evict: dead: skip │ referenced: append again │ clean: forget │ dirty: place on flash
//! ```
//!
//! What has been dirty for long is placed on flash and stays, clean ([`clean`]).
//!
//! Everything here runs under the partition's lock and never waits; when flash has no space,
//! [`NoSpace`] goes up to the request path, which waits outside the lock.

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

/// Flash has no space at present for what has to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

/// Whether flash has a copy of an item that is in memory, clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    /// It had, and only a read of the index would tell.
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

/// What the tier needs of the flash below it.
pub(crate) trait Below {
    /// Whether the index names a copy of a key.
    fn holds(&self, hash: KeyHash) -> Held;

    /// As [`holds`](Below::holds), and counts as a read of the copy.
    fn access(&self, hash: KeyHash) -> Held;

    /// What is asked for next concerns these keys, all of one partition.
    fn warm(&self, _keys: &[(KeyHash, Handle)]) {}

    /// Whether it is a limit on writes that there is no space for: waiting would be for the drive's sake.
    fn is_held_back(&self) -> bool {
        false
    }

    /// Whether the longer items of those that leave memory together are better placed first.
    fn takes_larger_first(&self) -> bool {
        false
    }

    /// Places items until there is no space, and tells what became of each.
    fn place(&self, items: &[AppendItem<'_>], each: &mut dyn FnMut(usize, Placed));
}

impl Below for FlashTier {
    fn holds(&self, hash: KeyHash) -> Held {
        match Held::from(self.probe(hash, Look::Peek)) {
            // Nothing leads to most keys that flash does not have.
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
