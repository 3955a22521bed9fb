//! The keys whose requests are reported to an observer: always the same share of all keys, hot or cold.

use crate::key::KeyHash;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The keys whose mixed hash is at most a bound. Shared by all threads. Every request compares the hash of its key with the
/// bound.
#[derive(Debug)]
pub struct WatchedKeys {
    bound: AtomicU64,
}

impl WatchedKeys {
    /// Watches one in `keys` keys.
    pub fn one_in(keys: u64) -> Self {
        Self {
            bound: AtomicU64::new(u64::MAX / keys.max(1)),
        }
    }

    /// Returns whether a key is watched.
    #[inline]
    pub fn contains(&self, hash: KeyHash) -> bool {
        Self::mixed(hash) <= self.bound()
    }

    /// Returns the highest mixed hash of a watched key.
    pub fn bound(&self) -> u64 {
        self.bound.load(Ordering::Relaxed)
    }

    /// Halves the share of the watched keys. Returns the new bound. Calls must not overlap.
    pub fn halve(&self) -> u64 {
        let bound = self.bound() / 2;
        self.bound.store(bound, Ordering::Relaxed);
        bound
    }

    /// Returns a hash that is independent of the bits that choose the partition.
    pub fn mixed(hash: KeyHash) -> u64 {
        let hash = (hash.0 ^ hash.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^ hash >> 32
    }
}
