//! Ghosts: items refused not long ago. The ghost queue of S3-FIFO as fingerprints, with the known features of each
//! item.
//!
//! ```text
//!   hash ── mixed: top bits ──▶ bucket of 8 words of 32 bits, and the number of the oldest
//!                          fingerprint: 24 bits │ asked for since │ updates: 3 │ reads before: 4
//! ```
//!
//! Each bucket is a queue of its own: a new ghost replaces the oldest. If two ghosts come into a bucket at once, one
//! may be lost; and one in two million other keys is taken for a ghost. Either decides only whether an item goes to
//! flash.

use super::features::Features;
use crate::key::KeyHash;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Fingerprints take at most the memory divided by this.
const MEMORY_SHARE: u64 = 32;
/// Bytes of flash for each ghost: as many are remembered as flash may have items, if memory suffices.
const ITEM_BYTES: u64 = 256;
const BUCKET: usize = 8;

/// Bits of a ghost's word, below the fingerprint.
const ASKED: u32 = 1 << 7;
const UPDATES_SHIFT: u32 = 4;
const MOST_READS: u32 = (1 << UPDATES_SHIFT) - 1;
const MOST_UPDATES: u32 = 7;
const FINGERPRINT_SHIFT: u32 = 8;

#[derive(Debug, Default)]
struct Bucket {
    ghosts: [AtomicU32; BUCKET],
    oldest: AtomicU8,
}

/// All ghosts. Shared by all threads.
pub struct Ghosts(Box<[Bucket]>);

/// The word of an empty place.
const NONE: u32 = 0;

/// Packs features into a ghost's word, up to the highest counts that fit. All reads count as reads before the store,
/// since the item has to be stored again.
fn known(features: Features) -> u32 {
    let reads = u32::from(features.reads_before) + u32::from(features.reads);
    reads.min(MOST_READS) | u32::from(features.updates).min(MOST_UPDATES) << UPDATES_SHIFT
}

fn features(ghost: u32) -> Features {
    Features {
        reads: 0,
        updates: (ghost >> UPDATES_SHIFT & MOST_UPDATES) as u16,
        reads_before: (ghost & MOST_READS) as u16,
    }
}

impl Ghosts {
    /// Makes the ghosts of a cache of this size.
    pub fn new(memory_bytes: u64, flash_bytes: u64) -> Self {
        let within = memory_bytes / MEMORY_SHARE / size_of::<Bucket>() as u64;
        let wanted = flash_bytes / ITEM_BYTES / BUCKET as u64;
        let buckets = wanted.min(within).max(1);
        Self((0..buckets).map(|_| Bucket::default()).collect())
    }

    /// Returns the number of ghosts, once there are as many as there can be.
    pub fn most(&self) -> u64 {
        (self.0.len() * BUCKET) as u64
    }

    /// Returns the bytes of memory of the ghosts, which never change.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    fn bucket(&self, hash: KeyHash) -> (&Bucket, u32) {
        // Mixed, because the top bits chose the partition and bits 16 to 39 are the fingerprint.
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bucket = (u128::from(mixed) * self.0.len() as u128) >> 64;
        let fingerprint = (hash.0 >> 8) as u32 >> FINGERPRINT_SHIFT;
        (&self.0[bucket as usize], fingerprint.max(1))
    }

    /// Finds the ghost of a key. Returns its place and its word.
    fn find(&self, hash: KeyHash) -> Option<(&AtomicU32, u32)> {
        let (bucket, fingerprint) = self.bucket(hash);
        let mut ghosts = bucket
            .ghosts
            .iter()
            .map(|ghost| (ghost, ghost.load(Ordering::Relaxed)));
        ghosts.find(|(_, word)| word >> FINGERPRINT_SHIFT == fingerprint)
    }

    /// Returns whether a key is remembered.
    pub fn contains(&self, hash: KeyHash) -> bool {
        self.find(hash).is_some()
    }

    /// Remembers a refused item.
    pub fn remember(&self, hash: KeyHash, features: Features) {
        let (bucket, fingerprint) = self.bucket(hash);
        let word = fingerprint << FINGERPRINT_SHIFT | known(features);
        if let Some((ghost, _)) = self.find(hash) {
            ghost.store(word, Ordering::Relaxed);
            return;
        }
        let oldest = bucket.oldest.fetch_add(1, Ordering::Relaxed);
        bucket.ghosts[usize::from(oldest) % BUCKET].store(word, Ordering::Relaxed);
    }

    /// Counts a request for a key that the cache does not have. Returns the key's features, if it is remembered.
    pub fn asked(&self, hash: KeyHash) -> Option<Features> {
        let (ghost, word) = self.find(hash)?;
        let mut features = features(word);
        features.reads_before += 1;
        let asked = word & !(ASKED - 1) | ASKED | known(features);
        // Fails if another ghost has taken the place in between, which has not been asked for.
        let order = Ordering::Relaxed;
        let _ = ghost.compare_exchange(word, asked, order, order);
        Some(features)
    }

    /// Forgets the ghost of a key that is stored now, and returns its features, if it is remembered. If no request has
    /// asked for the key since it was refused, the store counts as an update.
    pub fn take(&self, hash: KeyHash) -> Option<Features> {
        let (ghost, word) = self.find(hash)?;
        let order = Ordering::Relaxed;
        let _ = ghost.compare_exchange(word, NONE, order, order);
        let mut features = features(word);
        features.updates += u16::from(word & ASKED == 0);
        Some(features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn hash(number: u64) -> KeyHash {
        KeyHash(xxh3_64(&number.to_le_bytes()))
    }

    #[test]
    fn the_newest_are_remembered_and_the_oldest_forgotten() {
        let ghosts = Ghosts::new(1 << 20, 1 << 30);
        let most = ghosts.0.len() as u64 * BUCKET as u64;
        assert!(ghosts.memory_bytes() <= (1 << 20) / MEMORY_SHARE);
        let known = Features::default();
        for number in 0..4 * most {
            ghosts.remember(hash(number), known);
        }
        let found = |range: std::ops::Range<u64>| {
            let count = range
                .clone()
                .filter(|&number| ghosts.contains(hash(number)));
            count.count() as f64 / (range.end - range.start) as f64
        };
        assert!(found(4 * most - most / 4..4 * most) > 0.95);
        assert!(found(0..2 * most) < 0.02);
        assert!(found(10 * most..11 * most) < 0.001, "never refused");
    }

    #[test]
    fn what_was_known_comes_back_once_and_what_is_asked_for_is_no_update() {
        let ghosts = Ghosts::new(1 << 20, 1 << 30);
        let features = |reads_before, updates| Features {
            reads: 0,
            updates,
            reads_before,
        };
        assert_eq!(ghosts.asked(hash(1)), None);
        ghosts.remember(hash(1), features(3, 2));
        assert_eq!(ghosts.take(hash(1)), Some(features(3, 3)), "an update");
        assert_eq!(ghosts.take(hash(1)), None);

        ghosts.remember(hash(1), features(3, 2));
        assert_eq!(ghosts.asked(hash(1)), Some(features(4, 2)));
        assert_eq!(ghosts.asked(hash(1)), Some(features(5, 2)));
        assert_eq!(ghosts.take(hash(1)), Some(features(5, 2)));

        ghosts.remember(hash(1), features(200, 100));
        assert!(ghosts.contains(hash(1)));
        assert_eq!(ghosts.asked(hash(1)), Some(features(16, 7)));
        assert_eq!(ghosts.take(hash(1)), Some(features(15, 7)));
    }
}
