//! [`Below`]: the flash as the DRAM tier sees it.

use super::log::Handle;
use crate::flash::{FlashTier, Placed};
use crate::key::KeyHash;
use crate::placement::{Collecting, DeadCopies, Look, Probe};
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

    /// Returns whether flash has space that has never been used, or that a flush has emptied.
    fn has_unused(&self) -> bool {
        false
    }

    /// Returns how items collect in memory before they are placed; `None` if each is placed when it leaves.
    fn collecting(&self) -> Option<Collecting> {
        None
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
            Held::Perhaps
                if self.collecting.is_some()
                    || self.upkeep.dead_copies == DeadCopies::LocatedLater =>
            {
                Held::Yes
            }
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

    fn has_unused(&self) -> bool {
        self.upkeep.has_unused()
    }

    fn collecting(&self) -> Option<Collecting> {
        self.collecting
    }

    fn takes_larger_first(&self) -> bool {
        self.places_larger_first
    }

    fn place(&self, items: &[AppendItem<'_>], each: &mut dyn FnMut(usize, Placed)) {
        self.place(items, false, each);
    }
}
