//! Hash functions of keys. They use XXH3, so that a hash stays the same across starts and machines.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Returns an 8-byte key for a text: its hash. Two texts share a key with a probability of 2^-64.
pub fn key_of_text(text: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed)
}

/// The hash functions of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) seed: u64,
    pub(crate) partitions: u32,
    /// Slots of a partition. Each key has two slots.
    pub(crate) slots: u32,
}

/// The two slots of a key in its partition, and hash bits for filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) first: u32,
    /// Second slot. It differs from `first` if the partition has more than one slot.
    pub(crate) second: u32,
    pub(crate) bits: u32,
}

/// Maps a hash of 32 bits evenly to `0..range`.
pub(crate) fn spread(hash: u64, range: u32) -> u32 {
    (((hash & 0xffff_ffff) * u64::from(range)) >> 32) as u32
}

/// Derives a second hash of the same key, by the finalizer of MurmurHash3.
pub(crate) fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

impl Keys {
    fn hash(&self, key: u64) -> u64 {
        xxh3_64_with_seed(&key.to_le_bytes(), self.seed)
    }

    pub(crate) fn partition(&self, key: u64) -> u32 {
        spread(self.hash(key) >> 32, self.partitions)
    }

    pub(crate) fn slots(&self, key: u64) -> Slots {
        let hash = self.hash(key);
        let other = mixed(hash);
        let first = spread(other >> 32, self.slots);
        let mut second = spread(other, self.slots);
        if second == first {
            second = (first + 1) % self.slots;
        }
        Slots {
            first,
            second,
            bits: hash as u32,
        }
    }
}
