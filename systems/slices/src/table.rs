//! The table in memory of a partition: cuckoo hashing with two functions and buckets (section 7.1).
//!
//! An entry lies in the bucket of its first slot or, if that is full, of its second. If both are full, entries move along the
//! shortest path to a free place. The search for a path visits at most [`PATH_BUCKETS`] buckets. Nothing moves before a path is
//! known, so a full table stays as it is.

use std::collections::HashSet;

use crate::keys::{Keys, Slots};

/// Maximum buckets that the search for a free place visits.
const PATH_BUCKETS: usize = 256;
/// Passes over all entries before a flush.
const SETTLE_PASSES: usize = 2;

/// The change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The key has this value.
    Value(u64),
    /// The key is deleted, and its entries in slicetables do not count.
    Delete,
}

/// The table is full and must be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The changes of a partition's keys since its last flush.
#[derive(Clone)]
pub(crate) struct Table {
    keys: Keys,
    bucket_entries: usize,
    /// Maximum changed keys with an entry, deletes included.
    most: usize,
    len: usize,
    entries: Box<[(u64, u64)]>,
    present: Bits,
    deletes: Bits,
    /// Deleted keys without an entry.
    buried: HashSet<u64>,
}

/// Entries that can move, each to its other slot, to free a place.
struct Path {
    /// The entries to move. The first moves to the free place, each other one to the place of the one before it.
    moves: Vec<usize>,
    free: usize,
}

impl Path {
    /// Returns the path from the free place back to the start. Each bucket comes with the place in an earlier bucket whose entry
    /// could move there.
    fn of(buckets: &[(u32, Option<(usize, usize)>)], last: (usize, usize), free: usize) -> Self {
        let before = |&(bucket, _): &(usize, usize)| buckets[bucket].1;
        let moves = std::iter::successors(Some(last), before).map(|(_, entry)| entry);
        Self {
            moves: moves.collect(),
            free,
        }
    }
}

#[derive(Clone)]
struct Bits(Box<[u64]>);

impl Bits {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)].into())
    }

    fn get(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, bit: usize, value: bool) {
        let mask = 1 << (bit % 64);
        match value {
            true => self.0[bit / 64] |= mask,
            false => self.0[bit / 64] &= !mask,
        }
    }
}

impl Table {
    /// Returns an empty table for `most` keys in buckets of `bucket_entries`.
    pub(crate) fn new(keys: Keys, bucket_entries: usize, most: usize) -> Self {
        let entries = keys.slots as usize * bucket_entries;
        Self {
            keys,
            bucket_entries,
            most,
            len: 0,
            entries: vec![(0, 0); entries].into(),
            present: Bits::new(entries),
            deletes: Bits::new(entries),
            buried: HashSet::new(),
        }
    }

    /// Returns the bytes of a table with `entries` entries.
    pub(crate) fn bytes_of(entries: usize) -> usize {
        entries * size_of::<(u64, u64)>() + 2 * entries.div_ceil(64) * size_of::<u64>()
    }

    /// Returns the bytes of deleted keys without an entry, which [`bytes_of`](Self::bytes_of) does not count.
    pub(crate) fn buried_bytes(&self) -> usize {
        // Each key has a byte of control.
        self.buried.capacity() * (size_of::<u64>() + 1)
    }

    /// Returns the number of changed keys, including deleted keys without an entry.
    pub(crate) fn len(&self) -> usize {
        self.len + self.buried.len()
    }

    fn change_at(&self, entry: usize) -> Change {
        match self.deletes.get(entry) {
            true => Change::Delete,
            false => Change::Value(self.entries[entry].1),
        }
    }

    fn find(&self, key: u64, slots: Slots) -> Option<usize> {
        let is_key = |&entry: &usize| self.entries[entry].0 == key && self.present.get(entry);
        let first = self.places(slots.first).find(is_key);
        first.or_else(|| self.places(slots.second).find(is_key))
    }

    fn places(&self, slot: u32) -> std::ops::Range<usize> {
        let start = slot as usize * self.bucket_entries;
        start..start + self.bucket_entries
    }

    fn free_place(&self, slot: u32) -> Option<usize> {
        self.places(slot).find(|&entry| !self.present.get(entry))
    }

    /// Returns the change of a key; `None` if the table has none.
    pub(crate) fn get(&self, key: u64) -> Option<Change> {
        let Some(entry) = self.find(key, self.keys.slots(key)) else {
            return self.buried.contains(&key).then_some(Change::Delete);
        };
        Some(self.change_at(entry))
    }

    /// Returns whether the table has a change of a key with these slots.
    pub(crate) fn has(&self, key: u64, slots: Slots) -> bool {
        self.find(key, slots).is_some() || self.buried.contains(&key)
    }

    /// Sets the change of a key.
    ///
    /// # Errors
    /// [`Full`]: nothing has changed.
    pub(crate) fn insert(&mut self, key: u64, change: Change) -> Result<(), Full> {
        let slots = self.keys.slots(key);
        let entry = match self.find(key, slots) {
            Some(entry) => entry,
            None if self.len >= self.most => return Err(Full),
            None => {
                let path = self.find_path(slots).ok_or(Full)?;
                self.buried.remove(&key);
                self.take_place(path)
            }
        };
        self.put(entry, key, change);
        Ok(())
    }

    /// Deletes a key, even if the table is full. Only for a table that goes to one drive, whose flush writes no deletes.
    pub(crate) fn bury(&mut self, key: u64) {
        let slots = self.keys.slots(key);
        let entry = match self.find(key, slots) {
            Some(entry) => Some(entry),
            None if self.buried.contains(&key) => return,
            None => self.find_path(slots).map(|path| self.take_place(path)),
        };
        match entry {
            Some(entry) => self.put(entry, key, Change::Delete),
            None => {
                self.buried.insert(key);
            }
        }
    }

    /// Sets the change of a key, even beyond the maximum number of keys: for changes that a table has held before. Only for a
    /// table that goes to one drive.
    ///
    /// # Errors
    /// [`Full`]: the value has no place, and the key is deleted instead.
    pub(crate) fn put_back(&mut self, key: u64, change: Change) -> Result<(), Full> {
        self.bury(key);
        match (change, self.find(key, self.keys.slots(key))) {
            (Change::Delete, _) => Ok(()),
            (Change::Value(_), None) => Err(Full),
            (Change::Value(_), Some(entry)) => {
                self.put(entry, key, change);
                Ok(())
            }
        }
    }

    /// Frees the place at the start of a path for another key. Returns the place.
    fn take_place(&mut self, path: Path) -> usize {
        self.len += 1;
        self.shift(path)
    }

    /// Returns the changes of all keys, including deleted keys without an entry.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (u64, Change)> + '_ {
        let placed = (0..self.keys.slots).flat_map(|slot| self.bucket(slot));
        let buried = self.buried.iter().map(|&key| (key, Change::Delete));
        placed.chain(buried)
    }

    /// Returns whether a change of `key` is possible. Moves nothing: the places of entries follow from the changes alone, so that
    /// the changes in a log fit again.
    pub(crate) fn has_place(&self, key: u64) -> bool {
        let slots = self.keys.slots(key);
        self.find(key, slots).is_some() || self.len < self.most && self.find_path(slots).is_some()
    }

    fn put(&mut self, entry: usize, key: u64, change: Change) {
        let value = match change {
            Change::Value(value) => value,
            Change::Delete => 0,
        };
        self.entries[entry] = (key, value);
        self.present.set(entry, true);
        self.deletes.set(entry, change == Change::Delete);
    }

    /// Returns the shortest path to a free place.
    fn find_path(&self, slots: Slots) -> Option<Path> {
        let at_once = self.free_place(slots.first);
        if let Some(free) = at_once.or_else(|| self.free_place(slots.second)) {
            let moves = Vec::new();
            return Some(Path { moves, free });
        }
        // Each bucket comes with the place in an earlier bucket whose entry could move there.
        let mut buckets: Vec<(u32, Option<(usize, usize)>)> =
            vec![(slots.first, None), (slots.second, None)];
        let mut next = 0;
        while next < buckets.len() {
            for entry in self.places(buckets[next].0) {
                let of = self.keys.slots(self.entries[entry].0);
                let other = if of.first == buckets[next].0 {
                    of.second
                } else {
                    of.first
                };
                if buckets.iter().any(|&(slot, _)| slot == other) {
                    continue;
                }
                if let Some(free) = self.free_place(other) {
                    return Some(Path::of(&buckets, (next, entry), free));
                }
                if buckets.len() < PATH_BUCKETS {
                    buckets.push((other, Some((next, entry))));
                }
            }
            next += 1;
        }
        None
    }

    /// Moves the entries of a path. Returns the place that becomes free at its start.
    fn shift(&mut self, path: Path) -> usize {
        let mut free = path.free;
        for entry in path.moves {
            self.relocate(entry, free);
            free = entry;
        }
        free
    }

    /// Brings overflowed entries back to their first slots where that is easy: into a free place, or into the place of an entry
    /// that has overflowed itself. Fewer look-ups then read two pages.
    pub(crate) fn settle(&mut self) {
        for _ in 0..SETTLE_PASSES {
            for slot in 0..self.keys.slots {
                for entry in self.places(slot) {
                    let has_overflowed = self.present.get(entry)
                        && self.keys.slots(self.entries[entry].0).first != slot;
                    if has_overflowed {
                        self.bring_back(entry);
                    }
                }
            }
        }
    }

    fn bring_back(&mut self, entry: usize) {
        let home = self.keys.slots(self.entries[entry].0).first;
        if let Some(free) = self.free_place(home) {
            self.relocate(entry, free);
            return;
        }
        // An overflowed guest leaves for its own first slot, where another entry may leave for its second.
        for guest in self.places(home) {
            let of_guest = self.keys.slots(self.entries[guest].0).first;
            if of_guest == home {
                continue;
            }
            let free = match self.free_place(of_guest) {
                Some(free) => free,
                None => {
                    let leaves = |&host: &usize| {
                        let slots = self.keys.slots(self.entries[host].0);
                        slots.first == of_guest && self.free_place(slots.second).is_some()
                    };
                    let Some(host) = self.places(of_guest).find(leaves) else {
                        continue;
                    };
                    let second = self.keys.slots(self.entries[host].0).second;
                    let Some(free) = self.free_place(second) else {
                        continue;
                    };
                    self.relocate(host, free);
                    host
                }
            };
            self.relocate(guest, free);
            self.relocate(entry, guest);
            return;
        }
    }

    fn relocate(&mut self, from: usize, to: usize) {
        self.put(to, self.entries[from].0, self.change_at(from));
        self.present.set(from, false);
    }

    /// Returns the entries of a bucket.
    pub(crate) fn bucket(&self, slot: u32) -> impl Iterator<Item = (u64, Change)> + '_ {
        self.places(slot)
            .filter(|&entry| self.present.get(entry))
            .map(|entry| (self.entries[entry].0, self.change_at(entry)))
    }

    /// Returns the slots of each key that lies in its second slot.
    pub(crate) fn overflowed(&self) -> impl Iterator<Item = Slots> + '_ {
        (0..self.keys.slots).flat_map(move |slot| {
            let slots = self.bucket(slot).map(|(key, _)| self.keys.slots(key));
            slots.filter(move |slots| slots.first != slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn keys(slots: u32) -> Keys {
        Keys {
            seed: 7,
            partitions: 1,
            slots,
        }
    }

    /// Fills a table up to `fill`. Returns how full it is, and the share of keys in their second slot.
    fn filled(bucket_entries: usize, fill: f64) -> (f64, f64) {
        let capacity = 1_000 * bucket_entries;
        let mut table = Table::new(
            keys(1_000),
            bucket_entries,
            (fill * capacity as f64) as usize,
        );
        let mut key = 0_u64;
        while table
            .insert(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), Change::Value(key))
            .is_ok()
        {
            key += 1;
        }
        let before = table.overflowed().count();
        table.settle();
        let overflowed = table.overflowed().count();
        assert!(overflowed <= before);
        for number in 0..key {
            assert_eq!(
                table.get(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                Some(Change::Value(number))
            );
        }
        (
            table.len() as f64 / capacity as f64,
            overflowed as f64 / table.len() as f64,
        )
    }

    #[test]
    fn buckets_fill_as_the_literature_says() {
        // With two functions buckets of three entries fill to 0.96, buckets of seven to 0.99.
        let (fill, _) = filled(3, 1.0);
        assert!((0.93..0.97).contains(&fill), "{fill}");
        let (fill, _) = filled(7, 1.0);
        assert!(fill > 0.98, "{fill}");
        let (fill, overflowed) = filled(7, 0.86);
        assert!((0.859..=0.86).contains(&fill), "{fill}");
        // Share of keys that do not fit their first bucket, by a Poisson distribution: 0.094.
        assert!((0.09..0.105).contains(&overflowed), "{overflowed}");
    }

    /// A start makes a table anew from the log. It must take all keys that the table took, whatever the table was asked in
    /// between.
    #[test]
    fn what_fitted_once_does_so_again() {
        let (mut asked, mut refused) = (0, 0);
        for seed in 0..600 {
            let mut random = SmallRng::seed_from_u64(seed);
            let keys = Keys {
                seed,
                partitions: 1,
                slots: 2_000,
            };
            let bucket_entries = 1 + seed as usize % 3;
            let mut table = Table::new(keys, bucket_entries, usize::MAX);
            let mut log = Vec::new();
            loop {
                if random.random_bool(0.05) {
                    // A key that waits for a permit asks for its place, while others go on.
                    table.has_place(random.random());
                }
                let key = random.random();
                if table.insert(key, Change::Value(1)).is_err() {
                    break;
                }
                log.push(key);
            }
            asked += 1;
            let mut again = Table::new(keys, bucket_entries, usize::MAX);
            let fits = log
                .iter()
                .all(|&key| again.insert(key, Change::Value(1)).is_ok());
            refused += u32::from(!fits);
        }
        assert_eq!(refused, 0, "of {asked} logs");
    }

    proptest! {
        #[test]
        fn a_table_is_a_map(changes in prop::collection::vec((0_u64..200, prop::option::of(any::<u64>())), 0..600), bucket_entries in 1_usize..5) {
            let mut table = Table::new(keys(40), bucket_entries, usize::MAX);
            let mut model = HashMap::new();
            for (key, value) in changes {
                let change = value.map_or(Change::Delete, Change::Value);
                match table.insert(key, change) {
                    Ok(()) => { model.insert(key, change); }
                    Err(Full) => prop_assert!(!model.contains_key(&key)),
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for key in 0..200 {
                prop_assert_eq!(table.get(key), model.get(&key).copied());
            }
            let mut listed: Vec<_> = (0..40).flat_map(|slot| table.bucket(slot).collect::<Vec<_>>()).collect();
            listed.sort_by_key(|&(key, _)| key);
            let mut all: Vec<_> = model.into_iter().collect();
            all.sort_by_key(|&(key, _)| key);
            prop_assert_eq!(listed, all);
        }
    }
}
