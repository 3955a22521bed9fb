//! Keys and their hashes.

use std::hash::Hasher;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use crate::format::item::MAX_KEY_BYTES;
pub use crate::format::superblock::HashSeed;

/// The 64-bit XXH3 hash of a key, with the secret seed of the image.
///
/// The top bits choose the partition, the bits below them the place in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Returns the number of the partition, out of `1 << partition_bits`.
    pub fn partition(self, partition_bits: u32) -> usize {
        // Shifted in two steps, since a shift by 64 overflows.
        (self.0 >> 1 >> (63 - partition_bits)) as usize
    }

    /// Returns the 32 bits that the DRAM tier's tables keep; the bits that choose the partition are not among them.
    pub(crate) fn low(self) -> u32 {
        self.0 as u32
    }

    /// Returns the hash in the order in which collected items are placed. Its top bits choose the group of a partition.
    pub(crate) fn order(self) -> u64 {
        self.0.rotate_left(32)
    }

    /// Returns the group of the hash within its partition, out of `1 << group_bits`.
    pub(crate) fn group(self, group_bits: u32) -> usize {
        group_of(self.low(), group_bits)
    }
}

/// Returns the group of a hash with these [low](KeyHash::low) bits.
pub(crate) fn group_of(low: u32, group_bits: u32) -> usize {
    (low >> 1 >> (31 - group_bits)) as usize
}

/// A key of 1 to [`MAX_KEY_BYTES`] bytes with its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: KeyHash,
}

impl<'a> Key<'a> {
    /// Hashes a key with the image's seed. Returns `None` if the key is empty or too long.
    pub fn new(bytes: &'a [u8], seed: HashSeed) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > MAX_KEY_BYTES {
            return None;
        }
        Some(Self {
            bytes,
            hash: KeyHash(xxh3_64_with_seed(bytes, seed.get())),
        })
    }

    /// Returns a key with a hash of the test's choice.
    #[cfg(test)]
    pub(crate) fn with_hash(bytes: &'a [u8], hash: u64) -> Self {
        let hash = KeyHash(hash);
        Self { bytes, hash }
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the hash of the key.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }
}

/// A hasher for values that are hashes already.
#[derive(Default)]
pub struct Passthrough(u64);

impl Hasher for Passthrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
