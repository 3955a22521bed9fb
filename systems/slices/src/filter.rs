//! Bloom filters in memory for the partitions that are looked up most (section 5.1.2).
//!
//! A filter tells for all that a partition has on its drives whether a key may be among it. It is made when the slicetable
//! passes through memory in a flush, so it costs no read; until its first flush a partition has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::keys::Slots;

/// Bits of a filter for each key that a slicetable can hold, and how many a key sets: one look-up in a hundred is in vain.
const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 7;

/// The keys of a slicetable.
pub(crate) struct KeyFilter {
    bits: Box<[u64]>,
    /// Bytes of all filters that there are, also of those that are being made.
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

/// Which partitions have a filter.
pub(crate) struct Filters {
    all_bytes: Arc<AtomicU64>,
    most: usize,
    partitions: Box<[Watched]>,
    holders: Mutex<Vec<u32>>,
}

#[derive(Default)]
struct Watched {
    /// Look-ups that have read a drive or were spared it, halved with each flush.
    lookups: AtomicU32,
    filter: Mutex<Option<Arc<KeyFilter>>>,
}

impl Filters {
    /// As many filters as `memory_bytes` hold, for slicetables of `keys`.
    pub(crate) fn new(partitions: u32, keys: usize, memory_bytes: u64) -> Self {
        Self {
            all_bytes: Arc::default(),
            most: (memory_bytes / KeyFilter::bytes_of(keys)) as usize,
            partitions: (0..partitions).map(|_| Watched::default()).collect(),
            holders: Mutex::new(Vec::new()),
        }
    }

    /// Whether a partition may have a key on its drives. Counts as a look-up.
    pub(crate) fn may_have(&self, partition: u32, slots: Slots) -> bool {
        if self.most == 0 {
            return true;
        }
        let watched = &self.partitions[partition as usize];
        watched.lookups.fetch_add(1, Ordering::Relaxed);
        let filter = watched.filter.lock().clone();
        filter.is_none_or(|filter| filter.may_have(slots))
    }

    /// An empty filter for a partition that is being flushed, where it deserves one. What it had no longer counts when the
    /// flush is over ([`set`](Self::set)).
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

    /// From now on `filter` tells of the partition, if it still may have one.
    pub(crate) fn set(&self, partition: u32, filter: Option<KeyFilter>) {
        let may_have = self.holders.lock().contains(&partition);
        let filter = filter.filter(|_| may_have).map(Arc::new);
        *self.partitions[partition as usize].filter.lock() = filter;
    }

    /// Bytes of all filters, also of those that are being made, and of what is counted.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let watched = size_of_val(&*self.partitions) as u64;
        watched + self.all_bytes.load(Ordering::Relaxed)
    }
}
