//! [`Miniature`]: a cache without payload, of sampled keys alone, with memory and flash scaled by their share: a miniature
//! simulation (Waldspurger et al., ATC '17). It tells how often the cache would hit under a rule of admission that is not at work.
//!
//! ```text
//!   memory: CLOCK, by bytes ── leaves ──> admitted? ──> flash: FIFO, by bytes; items read there are written once more
//!                                         └─ refused ──> ghosts
//! ```
//!
//! Not simulated: items that a read brings back into memory, and write-back.

use std::collections::VecDeque;

use hashbrown::HashTable;

/// Largest item that memory keeps, in parts of the memory.
const LARGE: u64 = 4;
/// Bytes of an item beside key and value.
const HEADER_BYTES: u32 = 32;

/// Rule of admission of a simulated cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Every item.
    All,
    /// Items read so often, refused not long ago, or with an outdated copy on flash; every item until flash is full.
    Reread(u32),
}

/// Sizes of a simulated cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) memory_bytes: u64,
    pub(super) flash_bytes: u64,
    pub(super) ghosts: u64,
}

impl Room {
    /// Returns the sizes for one in `keys` keys.
    pub(super) fn one_in(self, keys: u64) -> Self {
        Self {
            memory_bytes: self.memory_bytes / keys,
            flash_bytes: self.flash_bytes / keys,
            ghosts: self.ghosts / keys,
        }
    }
}

/// A key that the cache has, or remembers.
#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    /// Bytes in memory; 0 for a removed item that the hand has not reached.
    bytes: u32,
    /// Number of the record on flash that has the item; 0 for none.
    record: u32,
    reads: u8,
    /// The hand has the key.
    is_in_memory: bool,
    /// Read since the hand passed, or since it was written to flash.
    is_read: bool,
    /// It has outdated a copy on flash.
    outdates: bool,
    /// It was refused, and is remembered.
    is_ghost: bool,
}

impl Entry {
    fn has_item(&self) -> bool {
        self.is_in_memory && self.bytes > 0 || self.record > 0
    }

    fn is_void(&self) -> bool {
        !self.is_in_memory && self.record == 0 && !self.is_ghost
    }
}

/// A write to flash.
#[derive(Clone, Copy, Debug)]
struct Record {
    hash: u64,
    number: u32,
    bytes: u32,
}

/// Most bytes of memory of an entry: in the table and in each queue, which are at least half full.
pub(super) const ENTRY_BYTES: usize =
    2 * (size_of::<Entry>() + 1 + size_of::<Record>() + 2 * size_of::<u64>());

/// A simulated cache.
#[derive(Debug)]
pub(super) struct Miniature {
    rule: Rule,
    room: Room,
    entries: HashTable<Entry>,
    /// Keys in memory, in the order in which the hand comes to them.
    clock: VecDeque<u64>,
    /// Writes, the oldest first.
    log: VecDeque<Record>,
    ghosts: VecDeque<u64>,
    in_memory: u64,
    on_flash: u64,
    last_record: u32,
    has_been_full: bool,
    /// Bytes that were read on flash and may be written once more: half of those dropped.
    credit: u64,
    /// Reads that found their item.
    pub(super) hits: u64,
}

impl Miniature {
    pub(super) fn new(rule: Rule, room: Room) -> Self {
        Self {
            rule,
            room,
            entries: HashTable::new(),
            clock: VecDeque::new(),
            log: VecDeque::new(),
            ghosts: VecDeque::new(),
            in_memory: 0,
            on_flash: 0,
            last_record: 0,
            has_been_full: false,
            credit: 0,
            hits: 0,
        }
    }

    /// Returns the number of keys and writes that it keeps.
    pub(super) fn len(&self) -> usize {
        self.entries.len().max(self.log.len()).max(self.clock.len())
    }

    /// Goes on with a smaller sample.
    pub(super) fn resize(&mut self, room: Room, is_sampled: impl Fn(u64) -> bool) {
        self.room = room;
        self.entries.retain(|entry| is_sampled(entry.hash));
        self.clock.retain(|&hash| is_sampled(hash));
        self.ghosts.retain(|&hash| is_sampled(hash));
        self.log.retain(|record| is_sampled(record.hash));
        let records = self.log.iter();
        self.on_flash = records.map(|record| u64::from(record.bytes)).sum();
        let in_memory = self.entries.iter().filter(|entry| entry.is_in_memory);
        self.in_memory = in_memory.map(|entry| u64::from(entry.bytes)).sum();
        self.entries.shrink_to_fit(|entry| entry.hash);
        self.clock.shrink_to_fit();
        self.log.shrink_to_fit();
        self.ghosts.shrink_to_fit();
        self.make_room();
    }

    /// A request reads a key. Returns whether the cache has it.
    pub(super) fn read(&mut self, hash: u64) -> bool {
        let found = find(&mut self.entries, hash).filter(|entry| entry.has_item());
        let Some(entry) = found else {
            return false;
        };
        entry.reads = entry.reads.saturating_add(1);
        entry.is_read = true;
        self.hits += 1;
        true
    }

    /// Returns whether the cache has a key.
    pub(super) fn has(&self, hash: u64) -> bool {
        let found = self.entries.find(hash, |entry| entry.hash == hash);
        found.is_some_and(Entry::has_item)
    }

    /// A request stores an item of this many bytes.
    pub(super) fn store(&mut self, hash: u64, bytes: u32) {
        let bytes = bytes.saturating_add(HEADER_BYTES);
        let is_large = u64::from(bytes) > self.room.memory_bytes / LARGE;
        let entry = self
            .entries
            .entry(hash, |entry| entry.hash == hash, |entry| entry.hash);
        let entry = entry.or_insert(Entry {
            hash,
            bytes: 0,
            record: 0,
            reads: 0,
            is_in_memory: false,
            is_read: false,
            outdates: false,
            is_ghost: false,
        });
        let entry = entry.into_mut();
        if entry.record > 0 {
            entry.record = 0;
            entry.outdates = true;
            (entry.reads, entry.is_read) = (0, false);
        }
        if is_large {
            self.in_memory -= u64::from(std::mem::take(&mut entry.bytes));
            self.write(hash, bytes);
        } else {
            self.in_memory += u64::from(bytes);
            self.in_memory -= u64::from(std::mem::replace(&mut entry.bytes, bytes));
            if !std::mem::replace(&mut entry.is_in_memory, true) {
                self.clock.push_back(hash);
            }
        }
        self.make_room();
    }

    /// A request removes a key.
    pub(super) fn remove(&mut self, hash: u64) {
        let Some(entry) = find(&mut self.entries, hash) else {
            return;
        };
        self.in_memory -= u64::from(std::mem::take(&mut entry.bytes));
        (entry.record, entry.reads, entry.is_read, entry.outdates) = (0, 0, false, false);
        self.drop_void(hash);
    }

    fn make_room(&mut self) {
        while self.in_memory > self.room.memory_bytes {
            let Some(hash) = self.clock.pop_front() else {
                return;
            };
            self.judge(hash);
        }
        self.reclaim();
    }

    /// The hand has come to a key.
    fn judge(&mut self, hash: u64) {
        let Some(entry) = find(&mut self.entries, hash) else {
            return;
        };
        if entry.bytes > 0 && std::mem::take(&mut entry.is_read) {
            self.clock.push_back(hash);
            return;
        }
        entry.is_in_memory = false;
        let bytes = std::mem::take(&mut entry.bytes);
        let is_admitted = match self.rule {
            Rule::All => true,
            Rule::Reread(reads) => {
                !self.has_been_full
                    || entry.outdates
                    || entry.is_ghost
                    || u32::from(entry.reads) >= reads
            }
        };
        (entry.reads, entry.outdates) = (0, false);
        if bytes == 0 {
            self.drop_void(hash);
            return;
        }
        self.in_memory -= u64::from(bytes);
        if is_admitted {
            self.write(hash, bytes);
            return;
        }
        if !std::mem::replace(&mut entry.is_ghost, true) {
            self.ghosts.push_back(hash);
        }
        if self.ghosts.len() as u64 > self.room.ghosts
            && let Some(oldest) = self.ghosts.pop_front()
        {
            if let Some(entry) = find(&mut self.entries, oldest) {
                entry.is_ghost = false;
            }
            self.drop_void(oldest);
        }
    }

    fn write(&mut self, hash: u64, bytes: u32) {
        self.last_record = self.last_record.wrapping_add(1).max(1);
        let number = self.last_record;
        if let Some(entry) = find(&mut self.entries, hash) {
            entry.record = number;
        }
        self.log.push_back(Record {
            hash,
            number,
            bytes,
        });
        self.on_flash += u64::from(bytes);
    }

    /// Drops the oldest items of a full flash. Items read there are written once more, up to half of the bytes dropped.
    fn reclaim(&mut self) {
        while self.on_flash > self.room.flash_bytes {
            self.has_been_full = true;
            let Some(oldest) = self.log.pop_front() else {
                return;
            };
            let bytes = u64::from(oldest.bytes);
            self.on_flash -= bytes;
            self.credit = (self.credit + bytes / 2).min(self.room.flash_bytes / 2);
            let found = find(&mut self.entries, oldest.hash);
            let Some(entry) = found.filter(|entry| entry.record == oldest.number) else {
                continue;
            };
            let is_read = std::mem::take(&mut entry.is_read);
            entry.record = 0;
            if is_read && self.credit >= bytes {
                self.credit -= bytes;
                self.write(oldest.hash, oldest.bytes);
            } else {
                self.drop_void(oldest.hash);
            }
        }
    }

    fn drop_void(&mut self, hash: u64) {
        let found = self.entries.find_entry(hash, |entry| entry.hash == hash);
        if let Ok(found) = found
            && found.get().is_void()
        {
            found.remove();
        }
    }
}

fn find(entries: &mut HashTable<Entry>, hash: u64) -> Option<&mut Entry> {
    entries.find_mut(hash, |entry| entry.hash == hash)
}
