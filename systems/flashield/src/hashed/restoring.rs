//! What is known of the keys of an earlier run while their items come back.

use engine::KeyHash;
use engine::placement::on_flash::KeyFilter;

/// The part of the index's memory that tells which keys have come back.
const RESTORED_SHARE: u64 = 16;
/// The part that tells which have found no place.
const LOST_SHARE: u64 = 64;

/// What is known of the keys that come back.
#[derive(Default)]
pub(super) struct Restoring {
    /// Those that have, about.
    restored: KeyFilter,
    /// Those of which a copy has found no place, about.
    lost: KeyFilter,
}

impl Restoring {
    /// For an index of so many bytes.
    pub(super) fn new(index_bytes: u64) -> Self {
        Self {
            restored: KeyFilter::new(index_bytes / RESTORED_SHARE),
            lost: KeyFilter::new(index_bytes / LOST_SHARE),
        }
    }

    /// Bytes of memory that both filters take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.restored.memory_bytes() + self.lost.memory_bytes()
    }

    /// A copy of a key cannot be named, so that no older one may be.
    pub(super) fn lose(&mut self, hash: KeyHash) {
        self.lost.add(hash.0);
    }

    /// Whether no copy of a key may be named, perhaps.
    pub(super) fn is_lost(&self, hash: KeyHash) -> bool {
        self.lost.contains(hash.0)
    }

    /// A copy of a key is named.
    pub(super) fn add(&mut self, hash: KeyHash) {
        self.restored.add(hash.0);
    }

    /// Whether a copy of a key may be named.
    pub(super) fn may_have(&self, hash: KeyHash) -> bool {
        self.restored.contains(hash.0)
    }

    /// Whether nothing has come back yet.
    pub(super) fn is_none(&self) -> bool {
        self.restored.is_empty()
    }
}
