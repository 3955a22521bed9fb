//! Bloom filters in memory for the partitions that are looked up most (section 5.1.2).
//!
//! A filter covers all keys that a partition has on its drive. A flush builds it while the slicetable passes through memory, so
//! it costs no read. A partition has no filter before its first flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::keys::Slots;

/// Bits of a filter for each key that a slicetable can hold, and number of bits that a key sets: 1 % false positives.
const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 7;

/// A Bloom filter of the keys of a slicetable.
pub(crate) struct KeyFilter {
    bits: Box<[u64]>,
    /// Bytes of all filters, including filters that are being built.
    all_bytes: Arc<AtomicU64>,
}

impl Drop for KeyFilter {
    fn drop(&mut self) {
        let bytes = size_of_val(&*self.bits) as u64;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl KeyFilter {
    fn for_keys(keys: usize, all_bytes: &Arc<AtomicU64>) -> Self {
        all_bytes.fetch_add(Self::bytes_of(keys), Ordering::Relaxed);
        Self {
            bits: vec![0; (keys * BITS_PER_KEY).div_ceil(64)].into(),
            all_bytes: Arc::clone(all_bytes),
        }
    }

    fn bytes_of(keys: usize) -> u64 {
        8 * (keys * BITS_PER_KEY).div_ceil(64) as u64
    }

    fn places(&self, slots: Slots) -> impl Iterator<Item = usize> + use<> {
        let len = 64 * self.bits.len() as u64;
        let step = slots.bits.wrapping_mul(0x85eb_ca6b) | 1;
        let salt = slots.first.wrapping_mul(0x27d4_eb2f);
        (0..PROBES).map(move |probe| {
            let hash = (slots.bits ^ salt).wrapping_add(probe.wrapping_mul(step));
            ((u64::from(hash) * len) >> 32) as usize
        })
    }

    pub(crate) fn insert(&mut self, slots: Slots) {
        for bit in self.places(slots) {
            self.bits[bit / 64] |= 1 << (bit % 64);
        }
    }

    pub(crate) fn may_have(&self, slots: Slots) -> bool {
        self.places(slots)
            .all(|bit| self.bits[bit / 64] >> (bit % 64) & 1 == 1)
    }
}

/// The filters of all partitions, and which partitions may have one.
pub(crate) struct Filters {
    all_bytes: Arc<AtomicU64>,
    most: usize,
    partitions: Box<[Watched]>,
    holders: Mutex<Vec<u32>>,
}

#[derive(Default)]
struct Watched {
    /// Look-ups that memory did not answer. Each flush of the partition halves the count.
    lookups: AtomicU32,
    filter: Mutex<Option<Arc<KeyFilter>>>,
}

impl Filters {
    /// Allows as many filters as fit `memory_bytes`, for slicetables of `keys` keys. No partition has one yet.
    pub(crate) fn new(partitions: u32, keys: usize, memory_bytes: u64) -> Self {
        Self {
            all_bytes: Arc::default(),
            most: (memory_bytes / KeyFilter::bytes_of(keys)) as usize,
            partitions: (0..partitions).map(|_| Watched::default()).collect(),
            holders: Mutex::new(Vec::new()),
        }
    }

    /// Returns whether a partition may have a key on its drive. Counts a look-up.
    pub(crate) fn may_have(&self, partition: u32, slots: Slots) -> bool {
        if self.most == 0 {
            return true;
        }
        let watched = &self.partitions[partition as usize];
        watched.lookups.fetch_add(1, Ordering::Relaxed);
        let filter = watched.filter.lock().clone();
        filter.is_none_or(|filter| filter.may_have(slots))
    }

    /// Returns an empty filter for a partition that is being flushed, if it has enough look-ups to deserve one. The old filter
    /// holds until [`set`](Self::set) is called when the flush is over.
    pub(crate) fn deserved(&self, partition: u32, keys: usize) -> Option<KeyFilter> {
        let lookups = |partition: u32| {
            self.partitions[partition as usize]
                .lookups
                .load(Ordering::Relaxed)
        };
        let mut holders = self.holders.lock();
        let own = lookups(partition);
        self.partitions[partition as usize]
            .lookups
            .store(own / 2, Ordering::Relaxed);
        if !holders.contains(&partition) {
            if holders.len() == self.most {
                let (nth, &least) = holders
                    .iter()
                    .enumerate()
                    .min_by_key(|&(_, &holder)| lookups(holder))?;
                if lookups(least) >= own {
                    return None;
                }
                *self.partitions[least as usize].filter.lock() = None;
                holders.swap_remove(nth);
            }
            holders.push(partition);
        }
        Some(KeyFilter::for_keys(keys, &self.all_bytes))
    }

    /// Replaces the filter of a partition, with none if the partition has lost its place among the holders.
    pub(crate) fn set(&self, partition: u32, filter: Option<KeyFilter>) {
        let may_have = self.holders.lock().contains(&partition);
        let filter = filter.filter(|_| may_have).map(Arc::new);
        *self.partitions[partition as usize].filter.lock() = filter;
    }

    /// Returns the bytes of all filters, including filters that are being built, and of the look-up counts.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let watched = size_of_val(&*self.partitions) as u64;
        watched + self.all_bytes.load(Ordering::Relaxed)
    }
}
