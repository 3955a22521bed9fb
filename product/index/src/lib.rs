//! The index in memory that maps key hashes to flash locations: [`DirectTable`], of the `exact` placement.
//!
//! ```text
//!   engine: placement::exact            (one lock per partition, held for memory work only)
//!        |  hash -> partition
//!        v
//!   DirectTable                         one table per partition, no lock of its own
//!
//!  hash ── top bits ──> sub-table ── next bits ──> home bucket ── +0..7 buckets ──> slot (8 B)
//!          (fixed         (a few KiB to                (one cache line
//!           number)        some 160 KiB)                of 8 slots)
//! ```
//!
//! A table sees 64-bit key hashes and small integers ("values": packed flash locations), never keys. It returns a
//! location that may hold the key, and the caller verifies the key on flash. The location may be another key's, and after
//! a collision a key may be missing; neither can turn into wrong data.
//!
//! An entry is 8 bytes: the hash bits that its bucket does not imply, the displacement from its home bucket, a rank that
//! reads raise, and the value. A [`DirectTable`] is one partition's part of the index. Its owner keeps it behind the
//! partition's lock, whose longest hold is one sub-table rebuild. `docs/internals/indexes.md` has the sizes, the growth
//! rule and the collision figures.
//!
//! Invariants:
//! - At most one entry per fingerprint (the hash bits a table keeps). Inserting a key whose fingerprint is taken replaces
//!   the entry; if it was another key's, that key is lost, a later miss.
//! - [`DirectTable::memory_bytes`] never passes `max_bytes` through an insertion.
//! - An entry is found until it is removed or replaced: the table itself never drops one, on growth or otherwise.
//! - Nothing here blocks, allocates outside its stated bound, or touches a clock or a source of randomness: the same
//!   calls give the same table.
//!
//! Failure: only insertion can fail, with [`Full`], and then nothing has changed. A value wider than configured is a
//! programmer's error and panics.

#![forbid(unsafe_code)]

mod config;
mod layout;
#[cfg(test)]
mod model_tests;
pub mod runs;
mod sizes;
mod sub_table;
mod sweep;
#[cfg(test)]
mod tests;

pub use config::{
    ConfigError, DirectConfig, MIN_BUCKETS_HIGHEST, MIN_BUCKETS_LOWEST, RANK_BITS_HIGHEST,
    SUB_TABLE_ENTRIES, VALUE_BITS_HIGHEST,
};
pub use layout::Entry;
pub use sweep::{Hand, Sweep};

use std::ops::Range;
use std::sync::Arc;

use layout::{Layout, Positions};
use runtime::pages::PagePool;
use sizes::Stages;
use sub_table::{SLOTS, Slot, SubTable, heap_bytes};

/// Reason why an insertion was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum Full {
    /// The sub-table must grow and `max_bytes` does not allow it. Other sub-tables may still have room.
    #[error("the index would take {needed} bytes and may take {max_bytes}")]
    Memory { needed: u64, max_bytes: u64 },
    /// Too many hashes lie close together. This does not happen with well-mixed hashes in any order that does not follow
    /// the hashes. Growing further for it would let hostile keys take all memory.
    #[error("the index has no room for more hashes so close to this one")]
    Crowded,
}

/// Map from 64-bit key hashes to values, for one partition.
///
/// All methods are O(1) in memory accesses (nearly always one or two successive cache lines),
/// except that an insertion or removal may rebuild one sub-table of about
/// [`SUB_TABLE_ENTRIES`] entries. `Send` and `Sync`; changes need `&mut self`.
#[derive(Debug)]
pub struct DirectTable {
    layout: Layout,
    sub_tables: Box<[SubTable]>,
    min_buckets: usize,
    len: usize,
    /// Buckets of all sub-tables.
    buckets: usize,
    /// Bytes of all sub-tables and of the directory.
    memory_bytes: u64,
    max_bytes: u64,
    /// Source of the sub-tables' memory.
    pool: Arc<PagePool>,
}

impl DirectTable {
    /// Creates an empty table, at its smallest size, with memory from a pool and without a bound on it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if no table can be made of the configuration.
    pub fn new(config: DirectConfig, pool: Arc<PagePool>) -> Result<Self, ConfigError> {
        let layout = config.layout()?;
        let min_buckets = config.min_buckets as usize;
        let sub_tables: Box<[SubTable]> = (0..layout.sub_tables())
            .map(|_| SubTable::new(min_buckets, &pool))
            .collect();
        let count = sub_tables.len();
        Ok(DirectTable {
            layout,
            min_buckets,
            len: 0,
            buckets: count * min_buckets,
            memory_bytes: config.least_bytes(),
            max_bytes: u64::MAX,
            sub_tables,
            pool,
        })
    }

    /// Returns the entry of a hash. Another key with the same fingerprint has the same entry.
    #[inline]
    pub fn lookup(&self, hash: u64) -> Option<Entry> {
        let (_, _, entry) = self.find(hash)?;
        Some(entry)
    }

    /// As [`lookup`](DirectTable::lookup), and raises the entry to the highest rank. Returns the entry as it was before.
    #[inline]
    pub fn access(&mut self, hash: u64) -> Option<Entry> {
        let highest = self.layout.max_rank();
        self.promote(hash, |_| highest)
    }

    /// As [`lookup`](DirectTable::lookup), and sets the entry's rank to the result of `to`, or to the highest rank if
    /// that is less. Returns the entry as it was before.
    #[inline]
    pub fn promote(&mut self, hash: u64, to: impl FnOnce(&Entry) -> u8) -> Option<Entry> {
        let (number, slot, entry) = self.find(hash)?;
        let rank = to(&entry);
        if rank != entry.rank {
            self.sub_tables[number].set_rank(&self.layout, slot, rank);
        }
        Some(entry)
    }

    /// Inserts or replaces, with rank 0. Returns the value replaced, which may have belonged
    /// to another key with the same fingerprint.
    ///
    /// # Errors
    ///
    /// [`Full`] when the sub-table must grow and cannot; nothing has changed then. Replacing
    /// always succeeds.
    ///
    /// # Panics
    ///
    /// If `value` is above `2^value_bits - 2`.
    pub fn insert(&mut self, hash: u64, value: u64) -> Result<Option<u64>, Full> {
        self.assert_value(value);
        let (number, probe) = self.layout.split(hash);
        loop {
            let sub_table = &mut self.sub_tables[number];
            let vacancy = match sub_table.search(&self.layout, probe) {
                Ok(slot) => {
                    let replaced = self.layout.unpack(sub_table.get(slot)).value;
                    sub_table.set_value(&self.layout, slot, value);
                    return Ok(Some(replaced));
                }
                Err(vacancy) => vacancy,
            };
            if sizes::may_hold(sub_table.buckets(), sub_table.len() + 1)
                && sub_table.place(&self.layout, vacancy, self.layout.pack(probe, value))
            {
                self.len += 1;
                return Ok(None);
            }
            // Ends: every round has more buckets, and the load soon forbids another.
            self.grow(number)?;
        }
    }

    /// Touches the home buckets of some hashes ahead of the calls that need them. These memory accesses overlap, those of
    /// successive calls do not.
    #[inline]
    pub fn warm(&self, hashes: impl Iterator<Item = u64>) {
        let touched = hashes.fold(0, |touched, hash| {
            let (number, probe) = self.layout.split(hash);
            touched ^ self.sub_tables[number].first_at_home(probe)
        });
        std::hint::black_box(touched);
    }

    /// Grows at once to the size for `len` entries, as far as `max_bytes` allows: less work than repeated growth. Never
    /// shrinks.
    pub fn reserve(&mut self, len: usize) {
        if sizes::may_hold(self.buckets, len) {
            return;
        }
        let each = len / self.sub_tables.len();
        for number in 0..self.sub_tables.len() {
            let sub_table = &self.sub_tables[number];
            let after = self.stages(number).holding(each);
            if after > sub_table.buckets()
                && self.memory_bytes_with(number, after) <= self.max_bytes
                && let Some(rebuilt) = sub_table.rebuilt(&self.layout, after, &self.pool)
            {
                self.install(number, rebuilt);
            }
        }
    }

    /// Removes the entry of a hash, whatever its value. Returns the value.
    pub fn remove(&mut self, hash: u64) -> Option<u64> {
        let (number, slot, entry) = self.find(hash)?;
        self.remove_at(number, slot);
        Some(entry.value)
    }

    /// Removes the entry of a hash if it holds `value`. Returns whether it did.
    pub fn remove_if(&mut self, hash: u64, value: u64) -> bool {
        self.find_value(hash, value)
            .map(|(number, slot)| self.remove_at(number, slot))
            .is_some()
    }

    /// Sets the value to `new` and the rank to 0 if the entry holds `old`: the item has
    /// moved. Returns whether it did.
    ///
    /// # Panics
    ///
    /// If `new` is above `2^value_bits - 2`.
    pub fn replace_if(&mut self, hash: u64, old: u64, new: u64) -> bool {
        self.assert_value(new);
        self.find_value(hash, old)
            .map(|(number, slot)| self.sub_tables[number].set_value(&self.layout, slot, new))
            .is_some()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes asked of pool and allocator: directory and all buckets. Exact between calls.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns the fraction of the slots in use, 0 to 0.9.
    pub fn load(&self) -> f64 {
        self.len as f64 / (self.buckets * SLOTS) as f64
    }

    /// Sets the bound on [`DirectTable::memory_bytes`]. A bound below the present size frees nothing; it forbids growth
    /// until removals have brought the table below it. During the rebuild of a sub-table its old array exists beside the
    /// new one. The old array (under 200 KiB for a table that keeps to its hint) comes on top of the bound.
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes;
    }

    /// Visits every entry as (hash prefix, entry). The prefix has the fingerprint's bits in their places in the hash and
    /// zeros elsewhere, the skipped partition bits included. Inserting it with the value into an empty table of the same
    /// configuration restores the entry without its rank.
    ///
    /// The order is spread over the hashes on purpose. Entries inserted in the order of their hashes would crowd one end
    /// of a table that has yet to grow, and be refused as [`Full::Crowded`]; in this order they fit.
    pub fn for_each(&self, mut visit: impl FnMut(u64, Entry)) {
        for (number, sub_table) in self.sub_tables.iter().enumerate() {
            let positions = Positions::new(&self.layout, sub_table.buckets());
            sub_table.for_each_scattered(&self.layout, |(home, stored)| {
                let position = positions.position(positions.first(home), stored);
                let prefix = self.layout.hash_prefix(number, position);
                visit(prefix, self.layout.unpack(stored));
            });
        }
    }

    /// Visits the value of every entry that is recent, in no particular order: one pass over memory, many times
    /// faster than [`for_each`](DirectTable::for_each).
    pub fn for_each_recent(&self, mut visit: impl FnMut(u64)) {
        for sub_table in &self.sub_tables {
            sub_table.for_each_stored(|stored| {
                let entry = self.layout.unpack(stored);
                if entry.is_recent() {
                    visit(entry.value);
                }
            });
        }
    }

    /// Visits the entries of the next `buckets` home buckets as (hash prefix, entry), the prefix as in
    /// [`for_each`](DirectTable::for_each), and applies the result of `each`: the demotion scan of CLOCK, evenly over the
    /// buckets (SlickCache, SoCC '18, section 4.1.1). Returns the hand for the next call; the first bucket follows the
    /// last.
    ///
    /// A sweep of as many buckets as [`buckets`](DirectTable::buckets) returns is a full round: it visits every entry
    /// that stays. So do successive sweeps in which the hand comes around, whatever is inserted, removed or rebuilt
    /// between them. After the rebuild of a sub-table some of its entries may be visited twice. A sub-table shrinks when
    /// a sweep leaves it or ends in it, not while it is visited.
    pub fn sweep(
        &mut self,
        from: Hand,
        buckets: usize,
        mut each: impl FnMut(usize, u64, Entry) -> Sweep,
    ) -> Hand {
        let (mut hand, mut left) = (from, buckets);
        while left > 0 {
            let (number, probe) = self.layout.split(hand.next);
            let all = self.sub_tables[number].buckets();
            let first = probe.home(all);
            let homes = first..all.min(first.saturating_add(left));
            left -= homes.len();
            hand = self.sweep_homes(number, homes, &mut each);
        }
        hand
    }

    /// Returns the number of buckets of all sub-tables: a full round of [`sweep`](DirectTable::sweep).
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    fn assert_value(&self, value: u64) {
        assert!(
            value <= self.layout.max_value(),
            "value {value} is wider than configured"
        );
    }

    /// Finds the entry of a hash. Returns the sub-table's number, the slot, and the entry.
    #[inline]
    fn find(&self, hash: u64) -> Option<(usize, Slot, Entry)> {
        let (number, probe) = self.layout.split(hash);
        let sub_table = &self.sub_tables[number];
        let slot = sub_table.search(&self.layout, probe).ok()?;
        Some((number, slot, self.layout.unpack(sub_table.get(slot))))
    }

    /// Finds the slot of the entry of a hash, if it holds `value`.
    #[inline]
    fn find_value(&self, hash: u64, value: u64) -> Option<(usize, Slot)> {
        let (number, slot, entry) = self.find(hash)?;
        (entry.value == value).then_some((number, slot))
    }

    fn remove_at(&mut self, number: usize, slot: Slot) {
        self.sub_tables[number].remove(&self.layout, slot);
        self.len -= 1;
        if self.is_due_to_shrink(number) {
            self.shrink(number);
        }
    }

    /// Sweeps some home buckets of a sub-table, and shrinks it as far as the removals allow. Returns the hand at the
    /// bucket behind them.
    fn sweep_homes(
        &mut self,
        number: usize,
        homes: Range<usize>,
        each: &mut impl FnMut(usize, u64, Entry) -> Sweep,
    ) -> Hand {
        let layout = self.layout;
        let sub_table = &mut self.sub_tables[number];
        let len_before = sub_table.len();
        let positions = Positions::new(&layout, sub_table.buckets());
        let next = if homes.end < sub_table.buckets() {
            layout.hash_prefix(number, positions.first(homes.end))
        } else {
            layout.hash_prefix((number + 1) % layout.sub_tables(), 0)
        };
        for home in homes {
            let first = positions.first(home);
            sub_table.sweep(&layout, home, |stored| {
                let position = positions.position(first, stored);
                let prefix = layout.hash_prefix(number, position);
                each(home, prefix, layout.unpack(stored))
            });
        }
        let taken = len_before - sub_table.len();
        self.len -= taken;
        if taken > 0 {
            while self.is_due_to_shrink(number) && self.shrink(number) {}
        }
        Hand { next }
    }

    /// Grows a sub-table by one stage.
    fn grow(&mut self, number: usize) -> Result<(), Full> {
        let sub_table = &self.sub_tables[number];
        let before = sub_table.buckets();
        let after = self.stages(number).above(before);
        let is_due = !sizes::may_hold(before, sub_table.len() + 1);
        if !is_due && sizes::is_sparse(after, sub_table.len() + 1) {
            return Err(Full::Crowded);
        }
        let needed = self.memory_bytes_with(number, after);
        if needed > self.max_bytes {
            return Err(Full::Memory {
                needed,
                max_bytes: self.max_bytes,
            });
        }
        let rebuilt = sub_table
            .rebuilt(&self.layout, after, &self.pool)
            .ok_or(Full::Crowded)?;
        self.install(number, rebuilt);
        Ok(())
    }

    fn is_due_to_shrink(&self, number: usize) -> bool {
        let sub_table = &self.sub_tables[number];
        sizes::is_sparse(sub_table.buckets(), sub_table.len()) && sub_table.may_shrink()
    }

    /// Shrinks a sub-table by one stage if its entries fit. Returns whether it did.
    fn shrink(&mut self, number: usize) -> bool {
        let sub_table = &self.sub_tables[number];
        let Some(after) = self.stages(number).below(sub_table.buckets()) else {
            return false;
        };
        let Some(rebuilt) = sub_table.rebuilt(&self.layout, after, &self.pool) else {
            self.sub_tables[number].shrink_failed();
            return false;
        };
        self.install(number, rebuilt);
        true
    }

    fn install(&mut self, number: usize, rebuilt: SubTable) {
        debug_assert_eq!(rebuilt.len(), self.sub_tables[number].len());
        self.memory_bytes = self.memory_bytes_with(number, rebuilt.buckets());
        self.buckets = self.buckets - self.sub_tables[number].buckets() + rebuilt.buckets();
        self.sub_tables[number] = rebuilt;
    }

    /// Returns [`DirectTable::memory_bytes`] as it is after a sub-table gets `buckets` buckets.
    fn memory_bytes_with(&self, number: usize, buckets: usize) -> u64 {
        let before = heap_bytes(self.sub_tables[number].buckets());
        self.memory_bytes - before + heap_bytes(buckets)
    }

    fn stages(&self, number: usize) -> Stages {
        Stages::new(self.min_buckets, number, self.layout.sub_bits)
    }
}
