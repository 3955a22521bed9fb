//! Where a key belongs: XXH3, so that it stays the same across starts and machines.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A key of 8 bytes for a text: its hash. Two texts share one with a chance of 2^-64.
pub fn key_of_text(text: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed)
}

/// The hash functions of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) seed: u64,
    pub(crate) partitions: u32,
    /// Slots of a partition, of which each key has two.
    pub(crate) slots: u32,
}

/// The two slots of a key in its partition, and bits for filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) first: u32,
    /// Another slot than the first, where there is more than one.
    pub(crate) second: u32,
    pub(crate) bits: u32,
}

/// `hash` of 32 bits, spread evenly over `0..range`.
pub(crate) fn spread(hash: u64, range: u32) -> u32 {
    (((hash & 0xffff_ffff) * u64::from(range)) >> 32) as u32
}

/// Another hash of the same key: the finalizer of MurmurHash3.
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
