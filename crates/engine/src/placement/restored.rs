//! Which keys a start has seen, about.

use crate::format::mapping::bloom::{Bloom, LINE_BYTES};

const LEAST_BYTES: usize = 4 << 10;
const BITS_PER_KEY: u32 = 10;

/// A Bloom filter of keys, in memory while a start restores them. Empty it takes no memory, and has none.
#[derive(Default)]
pub(super) struct KeyFilter {
    bytes: Vec<u8>,
}

impl KeyFilter {
    /// A filter of about so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let bytes = (bytes as usize).max(LEAST_BYTES);
        Self {
            bytes: vec![0; bytes.next_multiple_of(LINE_BYTES)],
        }
    }

    /// Whether it has no space yet.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of memory that the filter takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether a key may have been added.
    pub(super) fn contains(&self, hash: u64) -> bool {
        !self.is_empty() && Bloom::new(BITS_PER_KEY).contains(&self.bytes, hash)
    }

    /// Adds a key; whether it may have been there.
    pub(super) fn add(&mut self, hash: u64) -> bool {
        let bloom = Bloom::new(BITS_PER_KEY);
        let was_there = bloom.contains(&self.bytes, hash);
        bloom.insert(&mut self.bytes, hash);
        was_there
    }
}
