//! One CLOCK over memory and flash (Flashield, section 4.3).

use std::fmt;
use std::sync::OnceLock;

use crate::key::KeyHash;

/// Items of a partition in memory, and its free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InMemory {
    /// Items of the partition that are in memory.
    pub items: u64,
    /// Bytes that the partition may take in addition to those it has.
    pub spare_bytes: u64,
}

type Hand = Box<dyn Fn(KeyHash, InMemory) -> u64 + Send + Sync>;

/// The CLOCK that memory may share with the index. If no hand is set, memory and index have separate CLOCKs.
#[derive(Default)]
pub struct SharedClock {
    hand: OnceLock<Hand>,
}

impl SharedClock {
    /// Shares the CLOCK. `hand` is called whenever an item has come into memory, in the partition of its hash. It moves the
    /// hand if more entries are hot than allowed, and returns how many items in memory the hand has passed. Called once.
    pub fn share(&self, hand: impl Fn(KeyHash, InMemory) -> u64 + Send + Sync + 'static) {
        let _ = self.hand.set(Box::new(hand));
    }

    /// Returns whether memory and flash share the CLOCK.
    pub fn is_shared(&self) -> bool {
        self.hand.get().is_some()
    }

    /// Moves the shared hand after an item with this hash has come into memory. Returns how many items in memory it has
    /// passed.
    pub(crate) fn advance(&self, hash: KeyHash, memory: InMemory) -> u64 {
        self.hand.get().map_or(0, |hand| hand(hash, memory))
    }
}

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedClock")
            .field("is_shared", &self.is_shared())
            .finish()
    }
}
