//! [`Superseded`]: dead keys that copies written since supersede, until those are durable.

use std::collections::HashSet;

use crate::format::journal::kept_hash;
use crate::key::KeyHash;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A dead key whose newest copy a start finds by a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SupersededKey {
    hash: u64,
    /// Version of the copy: those below are dead.
    version: u64,
    /// Sequence number of the segment by which a start finds the copy.
    sequence: u64,
}

/// Dead keys that are superseded by copies which a placement has placed. While the segment of such a copy may be lost, the key has
/// to be kept in checkpoints.
#[derive(Debug, Default)]
pub struct Superseded {
    keys: Mutex<Keys>,
    /// Bytes of memory of the keys.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Keys {
    keys: Vec<SupersededKey>,
    /// Whether a checkpoint is being written, which counts on segments that were written when it was begun.
    are_held: bool,
}

impl Superseded {
    /// Notes that a copy supersedes a dead key: a start finds the copy by the segment with this sequence number.
    pub fn add(&self, hash: KeyHash, version: u64, sequence: u64) {
        let mut this = self.keys.lock();
        this.keys.push(SupersededKey {
            hash: kept_hash(hash.0),
            version,
            sequence,
        });
        self.count(&this);
    }

    /// Returns the bytes of memory of the keys.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn count(&self, this: &Keys) {
        let bytes = this.keys.capacity() * size_of::<SupersededKey>();
        self.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Begins or ends the time in which no key is forgotten.
    pub(crate) fn hold(&self, are_held: bool) {
        self.keys.lock().are_held = are_held;
    }

    /// Returns the keys but for those whose copies are in these segments, each with the version of its copy.
    pub(crate) fn outside(&self, segments: &HashSet<u64>) -> Vec<(u64, u64)> {
        let this = self.keys.lock();
        let outside = this
            .keys
            .iter()
            .filter(|key| !segments.contains(&key.sequence));
        outside.map(|key| (key.hash, key.version)).collect()
    }

    /// Forgets the keys whose copies are in `durable` segments.
    pub(crate) fn forget(&self, is_durable: impl Fn(u64) -> bool) {
        let mut this = self.keys.lock();
        if this.are_held {
            return;
        }
        this.keys.retain(|key| !is_durable(key.sequence));
        let left = this.keys.len();
        this.keys.shrink_to(2 * left);
        self.count(&this);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_until_its_copy_is_durable_and_no_checkpoint_is_being_written() {
        let keys = Superseded::default();
        for (number, sequence) in [(1, 5), (2, 6), (3, 7)] {
            keys.add(KeyHash(number << 8), 10 * number, sequence);
        }
        let versions = |segments: &[u64]| -> Vec<u64> {
            let outside = keys.outside(&segments.iter().copied().collect());
            outside.into_iter().map(|(_, version)| version).collect()
        };
        keys.hold(true);
        keys.forget(|sequence| sequence < 7);
        assert_eq!(versions(&[5]), [20, 30]);
        keys.hold(false);
        keys.forget(|sequence| sequence < 6);
        assert_eq!(versions(&[]), [20, 30]);
        assert!(keys.memory_bytes() > 0);
    }
}
