//! Keys of an earlier run that have been seen while their items are restored.

use engine::KeyHash;
use on_flash::KeyFilter;

/// Share of the index's memory, as a divisor, for the filter of restored keys.
const RESTORED_SHARE: u64 = 16;
/// Share of the index's memory, as a divisor, for the filter of keys without a slot.
const LOST_SHARE: u64 = 64;

/// Keys seen while items are restored, as Bloom filters.
#[derive(Default)]
pub(super) struct Restoring {
    /// Keys with a restored copy.
    restored: KeyFilter,
    /// Keys with a copy that could not be restored.
    lost: KeyFilter,
}

impl Restoring {
    /// Returns empty filters for an index of `index_bytes` bytes.
    pub(super) fn new(index_bytes: u64) -> Self {
        Self {
            restored: KeyFilter::new(index_bytes / RESTORED_SHARE),
            lost: KeyFilter::new(index_bytes / LOST_SHARE),
        }
    }

    /// Returns the bytes of memory of both filters.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.restored.memory_bytes() + self.lost.memory_bytes()
    }

    /// Notes that a copy of a key cannot be named, so that no older copy is named either.
    pub(super) fn lose(&mut self, hash: KeyHash) {
        self.lost.add(hash.0);
    }

    /// Returns whether a copy of a key may have been lost, so that no copy may be named.
    pub(super) fn is_lost(&self, hash: KeyHash) -> bool {
        self.lost.contains(hash.0)
    }

    /// Notes that a copy of a key is named.
    pub(super) fn add(&mut self, hash: KeyHash) {
        self.restored.add(hash.0);
    }

    /// Returns whether a copy of a key may be named already.
    pub(super) fn may_have(&self, hash: KeyHash) -> bool {
        self.restored.contains(hash.0)
    }

    /// Returns whether no restoring is in progress.
    pub(super) fn is_none(&self) -> bool {
        self.restored.is_empty()
    }
}
