//! What has been refused not long ago: the ghost queue of S3-FIFO, as fingerprints.
//!
//! ```text
//!   hash ── top bits ──▶ bucket of 8 fingerprints of 32 bits, and which is the oldest
//! ```
//!
//! A bucket is a queue of its own: what is remembered takes the place of its oldest. Of two that come at once in one bucket
//! one may be forgotten, and one in 500 million others is taken for one that is remembered: both decide where an item goes,
//! and nothing else.

use crate::key::KeyHash;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The part of the memory that fingerprints take at most.
const MEMORY_SHARE: u64 = 32;
/// Bytes of flash for each: as many are remembered as flash may have items, where memory does for that.
const ITEM_BYTES: u64 = 256;
const BUCKET: usize = 8;

#[derive(Debug, Default)]
struct Bucket {
    fingerprints: [AtomicU32; BUCKET],
    oldest: AtomicU8,
}

/// The ghosts. Shared by all threads.
pub(super) struct Ghosts(Box<[Bucket]>);

/// No ghost has this one.
const NONE: u32 = 0;

impl Ghosts {
    pub(super) fn new(memory_bytes: u64, flash_bytes: u64) -> Self {
        let within = memory_bytes / MEMORY_SHARE / size_of::<Bucket>() as u64;
        let wanted = flash_bytes / ITEM_BYTES / BUCKET as u64;
        let buckets = wanted.min(within).max(1);
        Self((0..buckets).map(|_| Bucket::default()).collect())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    fn bucket(&self, hash: KeyHash) -> (&Bucket, u32) {
        // Mixed, as the top bits chose the partition and the low ones are the fingerprint.
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bucket = (u128::from(mixed) * self.0.len() as u128) >> 64;
        let fingerprint = (hash.0 >> 8) as u32;
        (&self.0[bucket as usize], fingerprint.max(NONE + 1))
    }

    pub(super) fn contains(&self, hash: KeyHash) -> bool {
        let (bucket, fingerprint) = self.bucket(hash);
        let mut fingerprints = bucket.fingerprints.iter();
        fingerprints.any(|one| one.load(Ordering::Relaxed) == fingerprint)
    }

    pub(super) fn remember(&self, hash: KeyHash) {
        if self.contains(hash) {
            return;
        }
        let (bucket, fingerprint) = self.bucket(hash);
        let oldest = bucket.oldest.fetch_add(1, Ordering::Relaxed);
        bucket.fingerprints[usize::from(oldest) % BUCKET].store(fingerprint, Ordering::Relaxed);
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
        for number in 0..4 * most {
            ghosts.remember(hash(number));
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
}
