//! The entries in memory of a generation: all tables of all partitions.
//!
//! An entry lies in the bucket of its first slot or, if that is full, of its second. If both are full, the table does not list
//! the vector. Vectors with the same key have at most as many entries as a bucket has places, so a key that many vectors share
//! leaves places for others in its two buckets. A vector that one table does not list is found through the others.

use crate::counts::Counts;
use crate::keys::Keys;
use crate::lsh::layout::LshLayout;
use crate::lsh::page::Entry;
use crate::lsh::stats::LshStats;

/// The place of the entry of a key in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) partition: u32,
    /// Numbers of two slots among those of all tables; equal if a table has one slot.
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) tag: u32,
}

/// The places of keys. `keys` returns the slots of a key in a sub-table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) keys: Keys,
    pub(crate) layout: LshLayout,
}

impl Places {
    pub(crate) fn of(&self, table: u32, key: u64) -> Place {
        // `keys` hashes the key once more for the rest.
        let sub_table = (((key >> 32) * u64::from(self.layout.sub_tables)) >> 32) as u32;
        let slots = self.keys.slots(key);
        Place {
            partition: self.keys.partition(key),
            first: self.layout.number(table, sub_table, slots.first),
            second: self.layout.number(table, sub_table, slots.second),
            tag: slots.bits,
        }
    }
}

/// The result of inserting an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Listed,
    /// Both buckets of the key are full: this table does not list the vector.
    Full,
    /// The maximum number of entries has the same key.
    Crowded,
}

/// The entries of a generation.
pub(crate) struct Batch {
    /// Slots of a partition, of all tables together.
    slots: usize,
    bucket_entries: usize,
    entries: Box<[Entry]>,
    counts: Box<[u8]>,
    /// For each entry in its second slot: the bucket of its first slot, and its tag.
    overflowed: Vec<(u32, u32)>,
}

impl Batch {
    pub(crate) fn new(partitions: u32, slots: usize, bucket_entries: usize) -> Self {
        let buckets = partitions as usize * slots;
        Self {
            slots,
            bucket_entries,
            entries: vec![Entry::default(); buckets * bucket_entries].into(),
            counts: vec![0; buckets].into(),
            overflowed: Vec::new(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        let overflowed = self.overflowed.capacity() * size_of::<(u32, u32)>();
        (size_of_val(&*self.entries) + self.counts.len() + overflowed) as u64
    }

    fn number(&self, partition: u32, slot: usize) -> usize {
        partition as usize * self.slots + slot
    }

    fn bucket_of(&self, number: usize) -> &[Entry] {
        let start = number * self.bucket_entries;
        &self.entries[start..start + usize::from(self.counts[number])]
    }

    /// Returns the entries of a slot.
    pub(crate) fn bucket(&self, partition: u32, slot: usize) -> &[Entry] {
        self.bucket_of(self.number(partition, slot))
    }

    /// Returns the vectors that have the key of a place.
    pub(crate) fn find(&self, place: Place) -> impl Iterator<Item = u32> + '_ {
        let second = (place.second != place.first).then_some(place.second);
        let slots = std::iter::once(place.first).chain(second);
        let entries = slots.flat_map(move |slot| self.bucket(place.partition, slot));
        let found = entries.filter(move |entry| entry.tag == place.tag);
        found.map(|entry| entry.ordinal)
    }

    /// Adds the entry of a vector to one table, if the table has a place for it.
    pub(crate) fn insert(&mut self, place: Place, ordinal: u32) -> Listing {
        if self.find(place).count() >= self.bucket_entries {
            return Listing::Crowded;
        }
        let first = self.number(place.partition, place.first);
        let second = self.number(place.partition, place.second);
        let is_free = |number: &usize| usize::from(self.counts[*number]) < self.bucket_entries;
        let Some(number) = [first, second].into_iter().find(is_free) else {
            return Listing::Full;
        };
        let entry = number * self.bucket_entries + usize::from(self.counts[number]);
        self.entries[entry] = Entry {
            tag: place.tag,
            ordinal,
        };
        self.counts[number] += 1;
        if number != first {
            self.overflowed.push((first as u32, place.tag));
        }
        Listing::Listed
    }

    /// Lists a vector in all tables.
    pub(crate) fn list(&mut self, places: &[Place], ordinal: u32, counts: &Counts<LshStats>) {
        let (mut full, mut crowded) = (0, 0);
        for &place in places {
            match self.insert(place, ordinal) {
                Listing::Listed => {}
                Listing::Full => full += 1,
                Listing::Crowded => crowded += 1,
            }
        }
        counts.add(|counts| {
            counts.full = full;
            counts.crowded = crowded;
            counts.unlisted = (full + crowded == places.len() as u64).into();
        });
    }

    /// Sorts the overflowed tags, so that they can be looked up. No entry may be inserted afterwards.
    pub(crate) fn complete(&mut self) {
        self.overflowed.sort_unstable();
        self.overflowed.shrink_to_fit();
    }

    /// Returns the tags of entries that have overflowed from a slot.
    pub(crate) fn overflowed(&self, partition: u32, slot: usize) -> impl Iterator<Item = u32> + '_ {
        let number = self.number(partition, slot) as u32;
        let start = self.overflowed.partition_point(|&(of, _)| of < number);
        let rest = self.overflowed[start..].iter();
        rest.take_while(move |&&(of, _)| of == number)
            .map(|&(_, tag)| tag)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::lsh::layout::sub_tables;

    fn places(channels: u32) -> Places {
        let layout = LshLayout {
            tables: 10,
            sub_tables: sub_tables(10, channels),
            slots: 20,
            channels,
            pages_per_chunk: 2,
        };
        Places {
            keys: Keys {
                seed: 3,
                partitions: 2,
                slots: layout.slots,
            },
            layout,
        }
    }

    #[test]
    fn what_is_listed_is_found_and_the_rest_is_said() {
        let places = places(32);
        let slots = places.layout.all_slots();
        let mut batch = Batch::new(2, slots, 7);
        let mut listed: HashMap<(u32, u64), Vec<u32>> = HashMap::new();
        let (mut full, mut crowded) = (0, 0);
        for ordinal in 0..1_000_u32 {
            for table in 0..10 {
                // Some keys are shared by many vectors.
                let key =
                    u64::from(ordinal % 13 * (ordinal % 50)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                match batch.insert(places.of(table, key), ordinal) {
                    Listing::Listed => listed.entry((table, key)).or_default().push(ordinal),
                    Listing::Full => full += 1,
                    Listing::Crowded => crowded += 1,
                }
            }
        }
        assert!(crowded > 100, "{full} {crowded}");
        batch.complete();
        for ((table, key), vectors) in &listed {
            let place = places.of(*table, *key);
            let mut found: Vec<u32> = batch.find(place).collect();
            found.sort_unstable();
            assert_eq!(&found, vectors);
            let in_first = batch.bucket(place.partition, place.first);
            let in_first = in_first
                .iter()
                .filter(|entry| entry.tag == place.tag)
                .count();
            let mut overflowed = batch.overflowed(place.partition, place.first);
            assert_eq!(
                in_first < vectors.len(),
                overflowed.any(|tag| tag == place.tag)
            );
        }
    }

    #[test]
    fn few_entries_find_no_place_at_the_usual_fill() {
        let places = places(32);
        let slots = places.layout.all_slots();
        let mut batch = Batch::new(2, slots, 14);
        let most = (0.8 * (2 * slots * 14) as f64) as u32;
        let mut listings = HashMap::new();
        for entry in 0..most {
            let key = u64::from(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
            *listings
                .entry(batch.insert(places.of(entry % 10, key), entry) == Listing::Listed)
                .or_insert(0) += 1;
        }
        let share = f64::from(listings.get(&false).copied().unwrap_or(0)) / f64::from(most);
        assert!(share < 0.01, "{share}");
        let overflowed = batch.overflowed.len() as f64 / f64::from(most);
        assert!(overflowed < 0.12, "{overflowed}");
    }
}
