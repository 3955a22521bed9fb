//! Keys that a start has restored, as a Bloom filter, and the outcome for an item that the start offers to an index loaded
//! from a checkpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::Count as _;
use engine::placement::{Displaced, Inserted, Restored};
use engine::reclaim::{IndexUse, Resident};
use format::location::Place;
use parking_lot::Mutex;

use crate::bloom::{Bloom, LINE_BYTES};

/// Share of the index's memory, as a divisor, for the filter of restored keys during a recovery.
const RESTORED_SHARE: u64 = 16;

const LEAST_BYTES: usize = 4 << 10;
const BITS_PER_KEY: u32 = 10;

/// A Bloom filter of keys, in memory while a start restores them. An empty filter takes no memory and contains no key.
#[derive(Default)]
pub struct KeyFilter {
    bytes: Vec<u8>,
}

impl KeyFilter {
    /// Returns a filter of about `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let bytes = (bytes as usize).max(LEAST_BYTES);
        Self {
            bytes: vec![0; bytes.next_multiple_of(LINE_BYTES)],
        }
    }

    /// Returns whether the filter has no memory yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes of memory of the filter.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns whether a key may have been added.
    pub fn contains(&self, hash: u64) -> bool {
        !self.is_empty() && Bloom::new(BITS_PER_KEY).contains(&self.bytes, hash)
    }

    /// Adds a key. Returns whether it may have been in the filter before.
    pub fn add(&mut self, hash: u64) -> bool {
        let bloom = Bloom::new(BITS_PER_KEY);
        let was_there = bloom.contains(&self.bytes, hash);
        bloom.insert(&mut self.bytes, hash);
        was_there
    }
}

/// Keys that a start has restored to an index of which only a part is in memory. All threads use it at once.
pub struct RestoredKeys {
    filter: Mutex<KeyFilter>,
    index_use: Arc<IndexUse>,
}

impl RestoredKeys {
    /// No keys. The filter takes a share of the index's memory when the first key is restored.
    pub fn new(index_use: &Arc<IndexUse>) -> Self {
        Self {
            filter: Mutex::default(),
            index_use: Arc::clone(index_use),
        }
    }

    /// Adds a key. Returns whether it may have been restored in this run before.
    fn note(&self, hash: u64) -> bool {
        let mut filter = self.filter.lock();
        if filter.is_empty() {
            *filter = KeyFilter::new(self.index_use.max_bytes / RESTORED_SHARE);
            self.index_use.recovery_bytes.add(filter.memory_bytes());
        }
        filter.add(hash)
    }

    /// Restores an item by calling `put`, which makes the index name it, or returns the reason why it must not be named yet.
    /// `named` is the place that memory has for the key, if any; a copy other than the `beaten` one contests the item.
    pub fn restore(
        &self,
        item: &Resident,
        named: Option<Place>,
        beaten: Option<Place>,
        put: impl FnOnce() -> Inserted,
    ) -> Restored {
        let may_be_restored = self.note(item.hash.0);
        let rival = named.filter(|rival| beaten != Some(*rival) && *rival != item.place);
        match rival {
            Some(rival) => Restored::Contested(rival),
            // If the key has not been restored yet, the copy that the checkpoint's index names is older.
            None if named.is_none() && beaten.is_none() && may_be_restored => Restored::Unclear,
            None if named == Some(item.place) => Restored::Taken(Displaced::None),
            None => match put() {
                Inserted::Yes(displaced) => Restored::Taken(displaced),
                Inserted::Full(_) => Restored::Refused,
            },
        }
    }

    /// Frees the filter once everything has been restored.
    pub fn recovered(&self) {
        *self.filter.lock() = KeyFilter::default();
        self.index_use.recovery_bytes.store(0, Ordering::Relaxed);
    }
}
