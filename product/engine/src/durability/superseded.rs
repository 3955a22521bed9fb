//! [`Superseded`]: dead keys that copies written since supersede, until a checkpoint has struck them out.

use std::collections::{HashMap, HashSet};

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

/// Dead keys that are superseded by copies which a placement has placed, in the order in which they were. While the segment of
/// such a copy may be lost, the key has to be kept in checkpoints.
#[derive(Debug, Default)]
pub struct Superseded {
    keys: Mutex<Keys>,
    /// Bytes of memory of the keys.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Keys {
    keys: Vec<SupersededKey>,
    /// Segments that the checkpoint being written counts on, and the number of keys when it was begun.
    counted_on: HashSet<u64>,
    looked_at: usize,
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

    /// Returns the keys that a checkpoint strikes out, each with the version of its copy: those whose copies are in one of the
    /// `durable` segments. Forgets the keys of segments older than the `oldest`: older copies are gone as well.
    pub(crate) fn durable(&self, durable: &HashSet<u64>, oldest: u64) -> HashMap<u64, u64> {
        let mut this = self.keys.lock();
        this.keys.retain(|key| key.sequence >= oldest);
        this.looked_at = this.keys.len();
        this.counted_on.clone_from(durable);
        let mut found: HashMap<u64, u64> = HashMap::new();
        for key in &this.keys {
            if durable.contains(&key.sequence) {
                let version = found.entry(key.hash).or_default();
                *version = key.version.max(*version);
            }
        }
        found
    }

    /// Returns the keys, each with the version of its copy.
    pub(crate) fn all(&self) -> Vec<(u64, u64)> {
        let this = self.keys.lock();
        let keys = this.keys.iter();
        keys.map(|key| (key.hash, key.version)).collect()
    }

    /// Forgets the keys that the last checkpoint has struck out, once it is in force.
    pub fn forget_struck(&self) {
        let mut this = self.keys.lock();
        let looked_at = std::mem::take(&mut this.looked_at);
        let counted_on = std::mem::take(&mut this.counted_on);
        let keys = &mut this.keys;
        let mut number = 0;
        keys.retain(|key| {
            number += 1;
            number > looked_at || !counted_on.contains(&key.sequence)
        });
        keys.shrink_to(2 * keys.len());
        self.count(&this);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_until_a_checkpoint_that_counts_on_its_segment_is_in_force() {
        let keys = Superseded::default();
        let hash = |number: u64| KeyHash(number << 8);
        for (number, sequence) in [(1, 5), (2, 6), (3, 3)] {
            keys.add(hash(number), 10 * number, sequence);
        }
        let struck = keys.durable(&HashSet::from([4, 5]), 4);
        assert_eq!(struck, HashMap::from([(kept_hash(1 << 8), 10)]));
        // Placed in a durable segment, but too late for this checkpoint.
        keys.add(hash(4), 40, 5);
        assert_eq!(
            keys.all().len(),
            3,
            "none is forgotten yet, but of a segment that is gone"
        );
        keys.forget_struck();
        let left: Vec<u64> = keys.all().iter().map(|&(_, version)| version).collect();
        assert_eq!(left, [20, 40]);
        keys.forget_struck();
        assert_eq!(keys.all().len(), 2);
    }
}
