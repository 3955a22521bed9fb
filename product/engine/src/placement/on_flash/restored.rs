//! Which keys a start has seen, about, and what becomes of an item that it offers to an index that survives.

use std::sync::Arc;

use crate::counter::Count as _;
use crate::format::location::Place;
use crate::format::mapping::bloom::{Bloom, LINE_BYTES};
use crate::placement::{Displaced, Inserted, Restored};
use crate::reclaim::{IndexUse, Resident};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;

/// The part of the index's memory that tells which keys have been restored, while a start recovers.
const RESTORED_SHARE: u64 = 16;

const LEAST_BYTES: usize = 4 << 10;
const BITS_PER_KEY: u32 = 10;

/// A Bloom filter of keys, in memory while a start restores them. Empty it takes no memory, and has none.
#[derive(Default)]
pub struct KeyFilter {
    bytes: Vec<u8>,
}

impl KeyFilter {
    /// A filter of about so many bytes.
    pub fn new(bytes: u64) -> Self {
        let bytes = (bytes as usize).max(LEAST_BYTES);
        Self {
            bytes: vec![0; bytes.next_multiple_of(LINE_BYTES)],
        }
    }

    /// Whether it has no space yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of memory that the filter takes.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether a key may have been added.
    pub fn contains(&self, hash: u64) -> bool {
        !self.is_empty() && Bloom::new(BITS_PER_KEY).contains(&self.bytes, hash)
    }

    /// Adds a key; whether it may have been there.
    pub fn add(&mut self, hash: u64) -> bool {
        let bloom = Bloom::new(BITS_PER_KEY);
        let was_there = bloom.contains(&self.bytes, hash);
        bloom.insert(&mut self.bytes, hash);
        was_there
    }
}

/// The keys that a start has restored to an index of which only a part is in memory. Used from all threads at once.
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

    /// Whether a key may have been restored in this run; it is, from now on.
    fn note(&self, hash: u64) -> bool {
        let mut filter = self.filter.lock();
        if filter.is_empty() {
            *filter = KeyFilter::new(self.index_use.max_bytes / RESTORED_SHARE);
            self.index_use.recovery_bytes.add(filter.memory_bytes());
        }
        filter.add(hash)
    }

    /// What becomes of an item, where memory says that its key is at `named`, but for the copy that has been `beaten`. `put` names
    /// the item.
    pub fn restore(
        &self,
        item: &Resident,
        (named, beaten): (Option<Place>, Option<Place>),
        put: impl FnOnce() -> Inserted,
    ) -> Restored {
        let may_be_restored = self.note(item.hash.0);
        let rival = named.filter(|rival| beaten != Some(*rival) && *rival != item.place);
        match rival {
            Some(rival) => Restored::Contested(rival),
            // What a checkpoint has of it is older.
            None if named.is_none() && beaten.is_none() && may_be_restored => Restored::Unclear,
            None if named == Some(item.place) => Restored::Taken(Displaced::None),
            None => match put() {
                Inserted::Yes(displaced) => Restored::Taken(displaced),
                Inserted::Full(_) => Restored::Refused,
            },
        }
    }

    /// Everything has been restored: the memory is given back.
    pub fn recovered(&self) {
        *self.filter.lock() = KeyFilter::default();
        self.index_use.recovery_bytes.store(0, Ordering::Relaxed);
    }
}
