//! Tier 1: the hot mappings of a partition, in memory (section 4.1.1).
//!
//! A [`DirectTable`]. A value is a place code, or all ones for a tombstone, above a bit that marks a dirty entry: one
//! that no tier on flash has. A tombstone is always dirty. The table, like all tiers, keeps fewer bits than a hash has.
//! Two keys that agree in these bits are one key to the cascade, and one of them is a miss.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::pages::PagePool;

use super::order::Order;
use super::shape::{CascadeConfig, Replacement, Shape, hot_buckets};
use index::{ConfigError, DirectConfig, DirectTable, Entry, Hand, SUB_TABLE_ENTRIES, Sweep};

/// Mapping of a key in Tier 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot {
    /// The item is at the place with this code.
    At(u64),
    /// The key is deleted, and its older mappings are outdated.
    Dead,
}

/// An entry of Tier 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HotEntry {
    pub(super) hash: u64,
    pub(super) hot: Hot,
    /// Whether no tier on flash has it.
    pub(super) is_dirty: bool,
    /// Whether it was read since it was inserted or passed over.
    pub(super) is_recent: bool,
}

pub(super) struct HotTable {
    table: DirectTable,
    /// Values for which the table has no place, since many hashes lie close together. Well-mixed hashes do not.
    crowded: BTreeMap<u64, u64>,
    hand: Hand,
    by: Replacement,
    /// Order of use of the entries, for [`Replacement::Lru`] only.
    order: Option<Order>,
    /// The hash bits that the whole partition shares.
    partition: u64,
    dead: u64,
}

/// Returns the settings of the table of one of `2^partition_bits` partitions.
fn table_config(config: &CascadeConfig, shape: &Shape) -> DirectConfig {
    // By the capacity and nothing else: flash keeps as many bits of a hash as the table.
    let expected = ((config.capacity / 8) >> shape.partition_bits).max(1);
    let sub_tables = expected.div_ceil(SUB_TABLE_ENTRIES).next_power_of_two();
    DirectConfig {
        value_bits: config.code_bits + 1,
        rank_bits: 1,
        max_entries_hint: expected,
        skip_bits: shape.partition_bits,
        min_buckets: hot_buckets(expected / sub_tables),
    }
}

/// Returns the bytes of memory of a partition's empty table.
pub(super) fn least_bytes(config: &CascadeConfig, shape: &Shape) -> u64 {
    table_config(config, shape).least_bytes()
}

/// Returns the number of topmost hash bits that all tiers keep.
///
/// # Errors
/// If no table can be made of the settings.
pub(super) fn kept_bits(config: &CascadeConfig, shape: &Shape) -> Result<u32, ConfigError> {
    table_config(config, shape).fingerprint_bits()
}

impl HotTable {
    /// Creates the empty table of a partition.
    ///
    /// # Errors
    /// If no table can be made of the settings.
    pub(super) fn new(
        config: &CascadeConfig,
        shape: &Shape,
        partition: usize,
        pool: Arc<PagePool>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            table: DirectTable::new(table_config(config, shape), pool)?,
            crowded: BTreeMap::new(),
            hand: Hand::default(),
            by: config.replacement,
            order: (config.replacement == Replacement::Lru).then(Order::new),
            partition: ((partition as u64) << 1) << (63 - shape.partition_bits),
            dead: (1 << config.code_bits) - 1,
        })
    }

    fn entry(&self, hash: u64, entry: Entry) -> HotEntry {
        decode(self.dead, hash, entry)
    }

    fn value(&self, hot: Hot, is_dirty: bool) -> u64 {
        match hot {
            Hot::At(code) => {
                assert!(
                    code < self.dead,
                    "place code {code} is wider than configured"
                );
                code << 1 | u64::from(is_dirty)
            }
            // The highest value that a table takes.
            Hot::Dead => self.dead << 1,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len() + self.crowded.len()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let crowded = self.crowded.len() * 2 * size_of::<(u64, u64)>();
        let order = self.order.as_ref().map_or(0, Order::heap_bytes);
        self.table.memory_bytes() + (crowded + order) as u64
    }

    pub(super) fn get(&self, hash: u64) -> Option<HotEntry> {
        let entry = self.table.lookup(hash).or_else(|| self.crowded(hash))?;
        Some(self.entry(hash, entry))
    }

    /// As [`get`](Self::get), and counts as a read.
    pub(super) fn access(&mut self, hash: u64) -> Option<HotEntry> {
        let entry = self.table.access(hash).or_else(|| self.crowded(hash))?;
        if let Some(order) = &mut self.order {
            order.touch(hash);
        }
        Some(self.entry(hash, entry))
    }

    fn crowded(&self, hash: u64) -> Option<Entry> {
        let value = *self.crowded.get(&hash)?;
        Some(Entry { value, rank: 0 })
    }

    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        self.table.warm(hashes);
    }

    /// Inserts or replaces an entry.
    pub(super) fn put(&mut self, hash: u64, hot: Hot, is_dirty: bool) {
        let value = self.value(hot, is_dirty);
        let is_crowded = !self.crowded.is_empty() && self.crowded.contains_key(&hash);
        if is_crowded || self.table.insert(hash, value).is_err() {
            self.crowded.insert(hash, value);
        }
        if let Some(order) = &mut self.order {
            order.touch(hash);
        }
    }

    pub(super) fn remove(&mut self, hash: u64) {
        self.take(hash);
    }

    /// Removes an entry and returns it.
    fn take(&mut self, hash: u64) -> Option<HotEntry> {
        let entry = self.get(hash);
        if self.table.remove(hash).is_none() {
            self.crowded.remove(&hash);
        }
        if let Some(order) = &mut self.order {
            order.remove(hash);
        }
        entry
    }

    /// Removes `count` entries, or all if there are fewer, and returns them: evenly over the buckets, `n = ceil(N / M)`
    /// of each (section 4.1.1, CLOCK), or the least recently used.
    pub(super) fn demote(&mut self, count: usize) -> Vec<HotEntry> {
        let dead = self.dead;
        let mut taken = Vec::with_capacity(count.min(self.len()));
        while taken.len() < count
            && let Some(hash) = self.order.as_ref().and_then(Order::oldest)
        {
            taken.extend(self.take(hash));
        }
        let is_clock = self.by == Replacement::Clock;
        while taken.len() < count
            && let Some((hash, value)) = self.crowded.pop_first()
        {
            taken.push(decode(dead, hash, Entry { value, rank: 0 }));
        }
        let buckets = self.table.buckets();
        let each = count.div_ceil(buckets);
        while taken.len() < count && !self.table.is_empty() {
            let (mut bucket, mut of_bucket) = (usize::MAX, 0);
            let partition = self.partition;
            let span = (count - taken.len()).div_ceil(each);
            self.hand = self.table.sweep(self.hand, span, |home, hash, entry| {
                if home != bucket {
                    (bucket, of_bucket) = (home, 0);
                }
                if of_bucket == each || taken.len() == count {
                    return Sweep::Keep;
                }
                if entry.is_recent() && is_clock {
                    return Sweep::Clear;
                }
                of_bucket += 1;
                taken.push(decode(dead, hash | partition, entry));
                Sweep::Take
            });
        }
        taken
    }

    /// Removes every entry whose code `is_gone`. Returns the hashes.
    pub(super) fn take_gone(&mut self, is_gone: impl Fn(u64) -> bool) -> Vec<u64> {
        let dead = self.dead;
        self.take_all(|value| value >> 1 != dead && is_gone(value >> 1))
    }

    /// Removes every tombstone.
    pub(super) fn take_dead(&mut self) {
        let dead = self.dead;
        self.take_all(|value| value >> 1 == dead);
    }

    /// Removes every entry whose value `is_gone`. Returns the hashes.
    fn take_all(&mut self, is_gone: impl Fn(u64) -> bool) -> Vec<u64> {
        let partition = self.partition;
        let mut taken = Vec::new();
        self.table
            .sweep(Hand::default(), self.table.buckets(), |_, hash, entry| {
                if !is_gone(entry.value) {
                    return Sweep::Keep;
                }
                taken.push(hash | partition);
                Sweep::Take
            });
        let crowded = self.crowded.iter();
        taken.extend(
            crowded
                .filter(|&(_, &value)| is_gone(value))
                .map(|(&hash, _)| hash),
        );
        self.crowded.retain(|_, value| !is_gone(*value));
        if let Some(order) = &mut self.order {
            taken.iter().for_each(|&hash| order.remove(hash));
        }
        taken
    }

    /// Visits every entry, in an order that is spread over the hashes.
    pub(super) fn for_each(&self, mut visit: impl FnMut(HotEntry)) {
        self.table.for_each(|hash, entry| {
            visit(self.entry(hash | self.partition, entry));
        });
        for &hash in self.crowded.keys() {
            self.get(hash).into_iter().for_each(&mut visit);
        }
    }
}

fn decode(dead: u64, hash: u64, entry: Entry) -> HotEntry {
    let code = entry.value >> 1;
    let is_dead = code == dead;
    HotEntry {
        hash,
        hot: if is_dead { Hot::Dead } else { Hot::At(code) },
        is_dirty: is_dead || entry.value & 1 == 1,
        is_recent: entry.is_recent(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const KEYS: u64 = 200;

    fn hash_of(key: u64, kept: u32) -> u64 {
        let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 32) & u64::MAX << (u64::BITS - kept)
    }

    fn table(by: Replacement) -> (HotTable, u32) {
        let config = CascadeConfig {
            replacement: by,
            ..CascadeConfig::new(1000, 20)
        };
        let shape = Shape::of(&config);
        let kept = kept_bits(&config, &shape).expect("a table");
        let pool = Arc::new(PagePool::new(1 << 20));
        (
            HotTable::new(&config, &shape, 0, pool).expect("a table"),
            kept,
        )
    }

    /// A small model of each policy.
    struct Model {
        by: Replacement,
        homes: HashMap<u64, usize>,
        /// The keys of each bucket, oldest first, and whether they were read. For LRU one bucket, in the order of use.
        buckets: Vec<Vec<(u64, bool)>>,
        hand: usize,
    }

    impl Model {
        fn new(by: Replacement) -> Self {
            // So few keys that the table is never rebuilt: homes stay.
            let (mut all, kept) = table(by);
            (0..KEYS).for_each(|key| all.put(hash_of(key, kept), Hot::At(key), true));
            let mut homes = HashMap::new();
            let buckets = all.table.buckets();
            all.table.sweep(Hand::default(), buckets, |home, hash, _| {
                homes.insert(hash, if by == Replacement::Lru { 0 } else { home });
                Sweep::Keep
            });
            Self {
                by,
                homes,
                buckets: vec![Vec::new(); if by == Replacement::Lru { 1 } else { buckets }],
                hand: 0,
            }
        }

        fn used(&mut self, hash: u64, is_read: bool) {
            let bucket = &mut self.buckets[self.homes[&hash]];
            let place = bucket.iter().position(|&(key, _)| key == hash);
            match place {
                None if is_read => {}
                Some(place) if self.by != Replacement::Lru => bucket[place].1 = is_read,
                Some(place) => {
                    let used = bucket.remove(place);
                    bucket.push(used);
                }
                None => bucket.push((hash, false)),
            }
        }

        fn remove(&mut self, hash: u64) {
            self.buckets[self.homes[&hash]].retain(|&(key, _)| key != hash);
        }

        fn len(&self) -> usize {
            self.buckets.iter().map(Vec::len).sum()
        }

        fn demote(&mut self, count: usize) -> Vec<u64> {
            let each = count.div_ceil(self.buckets.len());
            let mut taken = Vec::new();
            while taken.len() < count && self.len() > 0 {
                for _ in 0..(count - taken.len()).div_ceil(each) {
                    let bucket = std::mem::take(&mut self.buckets[self.hand]);
                    let (mut kept, mut passed, before) = (Vec::new(), Vec::new(), taken.len());
                    for (key, is_read) in bucket {
                        if taken.len() == count || taken.len() - before == each {
                            kept.push((key, is_read));
                        } else if is_read && self.by == Replacement::Clock {
                            passed.push((key, false));
                        } else {
                            taken.push(key);
                        }
                    }
                    kept.append(&mut passed);
                    self.buckets[self.hand] = kept;
                    self.hand = (self.hand + 1) % self.buckets.len();
                }
            }
            taken
        }
    }

    fn by() -> impl Strategy<Value = Replacement> {
        prop_oneof![
            Just(Replacement::Clock),
            Just(Replacement::Lru),
            Just(Replacement::Fifo)
        ]
    }

    proptest! {
        #[test]
        fn what_leaves_is_what_the_replacement_says(
            by in by(),
            steps in proptest::collection::vec((0..12u8, 0..KEYS, 1..90usize), 0..600),
        ) {
            let (mut hot, kept) = table(by);
            let mut model = Model::new(by);
            for (step, key, count) in steps {
                let hash = hash_of(key, kept);
                match step {
                    0..6 => {
                        hot.put(hash, Hot::At(key), true);
                        model.used(hash, false);
                    }
                    6..10 => {
                        hot.access(hash);
                        model.used(hash, true);
                    }
                    10 => {
                        hot.remove(hash);
                        model.remove(hash);
                    }
                    _ => {
                        let taken = hot.demote(count);
                        let taken: Vec<u64> = taken.iter().map(|entry| entry.hash).collect();
                        prop_assert_eq!(taken, model.demote(count));
                    }
                }
                prop_assert_eq!(hot.len(), model.len());
            }
        }
    }

    #[test]
    fn names_are_those_of_settings() {
        for by in [Replacement::Clock, Replacement::Lru, Replacement::Fifo] {
            assert_eq!(by.name().parse(), Ok(by));
        }
        assert!("random".parse::<Replacement>().is_err());
    }

    #[test]
    fn real_lru_takes_what_its_documentation_says() {
        let (mut clock, kept) = table(Replacement::Clock);
        let (mut lru, _) = table(Replacement::Lru);
        for key in 0..100_000 {
            for hot in [&mut clock, &mut lru] {
                hot.put(hash_of(key, kept), Hot::At(key), true);
            }
            if key > 1000 && key % 777 == 0 {
                let more = lru.memory_bytes() - clock.memory_bytes();
                let more = more as f64 / (key + 1) as f64;
                assert!((21.0..44.0).contains(&more), "{more} bytes an entry");
            }
        }
    }
}
