//! The log of changes in memory, and the words that say where slicetables lie (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition and drive │ part 0 │ part 1 │ …
//!                                                └ count, synced count x 2, owner │ marks of deletes │ entries
//! ```
//!
//! A part has the changes of one table in memory: its owner is a partition and the generation that the table will be flushed as. A
//! table takes any part that is free, and gives it back when the log says, durably, that a slicetable has the generation. So there are
//! as many parts as there can be tables ([`Parts`]).
//!
//! Stores survive the process, in their order. After a power cut the checksum of a count says whether the entries that it
//! counts are all there; of three counts the highest that is right is taken.
//!
//! One synced count is durable at any moment, with what it counts. A sync writes to the other; when it has succeeded, that one is
//! the durable one, and the first gets the same count, which need not be durable. A start does not know which is: it makes the log
//! durable as it is before it changes a synced count.
//!
//! Where no slicetable has the generation that owns a part, one of its counts is right, or it has decayed. Where one has it, as the
//! pointers say, the part is free, whatever else it holds: if another generation has taken it since, that was not synced. Nor was
//! a generation that no part has. A word that names no owner is damage.

use std::sync::Arc;

use device::Journal;
use format::slices_log::{LogCount, PART_ALIGN_WORDS, PART_HEAD_WORDS, PartOwner};

use crate::error::SliceError;
use crate::parts::Parts;
use crate::pointers::Pointers;
use crate::table::Change;

/// How a log is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogShape {
    pub(crate) partitions: u32,
    /// Slicetables that each partition has: one, or one on each drive where slices are spread.
    pub(crate) drives: u32,
    /// Parts beside one for each partition: as many as tables may be frozen.
    pub(crate) spare_parts: u32,
    /// Entries of a part; 0 where changes are not logged, and there are no parts.
    pub(crate) entries: u32,
}

impl LogShape {
    fn mark_words(&self) -> usize {
        (self.entries as usize).div_ceil(64)
    }

    fn has_parts(&self) -> bool {
        self.entries > 0
    }

    fn part_words(&self) -> usize {
        let words = PART_HEAD_WORDS + self.mark_words() + 2 * self.entries as usize;
        words.next_multiple_of(PART_ALIGN_WORDS)
    }

    fn parts(&self) -> u32 {
        match self.has_parts() {
            true => self.partitions + self.spare_parts,
            false => 0,
        }
    }

    fn part(&self, part: u32) -> usize {
        let first = Pointers::end(self.partitions, self.drives).next_multiple_of(PART_ALIGN_WORDS);
        first + part as usize * self.part_words()
    }

    /// Words of all of it.
    pub(crate) fn words(&self) -> usize {
        self.part(self.parts())
    }
}

/// Counts of a head; the owner follows.
const COUNTS: usize = PART_HEAD_WORDS - 1;

/// The log of a structure.
pub(crate) struct Log {
    pub(crate) pointers: Pointers,
    shape: LogShape,
    parts: Parts,
}

/// A part that is being written. Under the lock of its partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    number: u32,
    count: LogCount,
    /// What the last sync that has succeeded covers, and which of the two words says so.
    synced: LogCount,
    synced_word: usize,
    /// What the other word says, where a sync has stored it and has not succeeded.
    syncing: Option<LogCount>,
}

/// A part as it was found: to go on with.
pub(crate) struct Replayed {
    pub(crate) part: Part,
    /// What it holds, in order.
    pub(crate) changes: Vec<(u64, Change)>,
}

impl Log {
    /// The log of a new structure.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::create(
            journal,
            (shape.partitions, shape.drives),
            shape.words(),
            instance,
        )?;
        let log = Self {
            pointers,
            shape,
            parts: Parts::unused(shape.parts()),
        };
        for part in 0..shape.parts() {
            log.store_owner(part, PartOwner::default());
        }
        Ok(log)
    }

    /// The log of a structure that there is.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::open(
            journal,
            (shape.partitions, shape.drives),
            shape.words(),
            instance,
        )?;
        let written: Vec<u32> = (0..shape.partitions)
            .map(|partition| {
                let generation = |drive| pointers.get(partition, drive).generation;
                (0..shape.drives).map(generation).max().unwrap_or(0)
            })
            .collect();
        let owner = |part: u32| {
            let mut word = [0];
            let at = shape.part(part) + COUNTS;
            let read = pointers.journal.read(at, &mut word);
            read.map_err(SliceError::log)?;
            PartOwner::decode(word[0], instance, part).map_err(|_| SliceError::DamagedPart {
                part,
                what: "its head says of no partition that it is its",
            })
        };
        let owners: Vec<PartOwner> = (0..shape.parts()).map(owner).collect::<Result<_, _>>()?;
        let parts = match shape.has_parts() {
            true => Parts::found(&owners, &written)?,
            false => Parts::unused(0),
        };
        Ok(Self {
            pointers,
            shape,
            parts,
        })
    }

    /// Whether changes are logged, rather than saved by who owns the table.
    pub(crate) fn has_changes(&self) -> bool {
        self.shape.has_parts()
    }

    /// Words of the journal that it uses, from the first on.
    pub(crate) fn words(&self) -> usize {
        self.shape.words()
    }

    fn journal(&self) -> &dyn Journal {
        &*self.pointers.journal
    }

    fn store_owner(&self, part: u32, owner: PartOwner) {
        let none = LogCount::none(self.pointers.instance, owner.partition, owner.generation);
        let start = self.shape.part(part);
        for word in start..start + COUNTS {
            self.journal().store(word, none.encode());
        }
        // The last: where it is there, the counts are this generation's.
        let word = owner.encode(self.pointers.instance, part);
        self.journal().store(start + COUNTS, word);
    }

    /// Begins a free part, of which there is one, for a generation.
    pub(crate) fn begin(&self, partition: u32, generation: u32) -> Part {
        let mut number = 0;
        if self.shape.has_parts() {
            number = self.parts.take();
            let owner = PartOwner {
                generation,
                partition,
            };
            self.store_owner(number, owner);
        }
        let none = LogCount::none(self.pointers.instance, partition, generation);
        Part {
            number,
            count: none,
            synced: none,
            synced_word: 1,
            syncing: None,
        }
    }

    /// A slicetable has what the part has, and the log says so durably.
    pub(crate) fn release(&self, part: Part) {
        if self.shape.has_parts() {
            self.parts.give_back(part.number);
        }
    }

    /// Whether an entry more fits.
    pub(crate) fn has_space(&self, part: &Part) -> bool {
        !self.shape.has_parts() || part.count.entries < self.shape.entries
    }

    /// Adds an entry, for which there is space.
    pub(crate) fn append(&self, part: &mut Part, key: u64, change: Change) {
        if !self.shape.has_parts() {
            return;
        }
        let start = self.shape.part(part.number);
        let entry = part.count.entries as usize;
        let (value, is_delete) = match change {
            Change::Value(value) => (value, 0),
            Change::Delete => (0, 1),
        };
        let mark = start + PART_HEAD_WORDS + entry / 64;
        let others = self.journal().load(mark) & !(1 << (entry % 64));
        self.journal()
            .store(mark, others | is_delete << (entry % 64));
        let at = start + PART_HEAD_WORDS + self.shape.mark_words() + 2 * entry;
        self.journal().store(at, key);
        self.journal().store(at + 1, value);
        part.count = part.count.and(&[key, value, is_delete]);
        self.journal().store(start, part.count.encode());
    }

    /// What the log has of a partition whose slicetables have the generations up to `written`: the next generation, and those that
    /// follow. The last one is to go on with. Called once for each partition.
    ///
    /// # Errors
    /// [`SliceError::DamagedLog`], and errors of the device.
    pub(crate) fn replay(&self, partition: u32, written: u32) -> Result<Vec<Replayed>, SliceError> {
        let found = match self.shape.has_parts() {
            true => self.parts.take_found(partition, written),
            false => vec![None],
        };
        let replay = |(generation, part): (u32, Option<u32>)| match part {
            Some(part) => self.replay_part(part, partition, generation),
            None => Ok(Replayed {
                part: self.begin(partition, generation),
                changes: Vec::new(),
            }),
        };
        (written + 1..).zip(found).map(replay).collect()
    }

    fn replay_part(
        &self,
        number: u32,
        partition: u32,
        generation: u32,
    ) -> Result<Replayed, SliceError> {
        let start = self.shape.part(number);
        let mut words = vec![0; self.shape.part_words()];
        self.journal()
            .read(start, &mut words)
            .map_err(SliceError::log)?;
        let (head, rest) = words.split_at(PART_HEAD_WORDS);
        let (marks, entries) = rest.split_at(self.shape.mark_words());
        let entries = &entries[..2 * self.shape.entries as usize];
        let counts: Vec<LogCount> = head[..COUNTS]
            .iter()
            .map(|&word| LogCount::decode(word))
            .collect();

        let none = LogCount::none(self.pointers.instance, partition, generation);
        let mut count = none;
        // The highest count that is right, of all and of those that a sync has stored.
        let right = |counts: &[LogCount], count| counts.contains(&count).then_some(count);
        let (mut valid, mut synced) = (right(&counts, count), right(&counts[1..], count));
        let mut changes = Vec::new();
        for (entry, pair) in entries.chunks_exact(2).enumerate() {
            let is_delete = marks[entry / 64] >> (entry % 64) & 1;
            count = count.and(&[pair[0], pair[1], is_delete]);
            changes.push(match is_delete {
                0 => (pair[0], Change::Value(pair[1])),
                _ => (pair[0], Change::Delete),
            });
            valid = right(&counts, count).or(valid);
            synced = right(&counts[1..], count).or(synced);
        }
        let valid = valid.ok_or(SliceError::DamagedLog {
            partition,
            what: "its entries are not those that were synced",
        })?;
        changes.truncate(valid.entries as usize);
        // Where a damaged word has left none, no count is durable but the first, which stays until the next sync has ended.
        let synced = synced.unwrap_or(none);
        let part = Part {
            number,
            count: valid,
            synced,
            synced_word: if counts[2] == synced { 2 } else { 1 },
            syncing: None,
        };
        Ok(Replayed { part, changes })
    }

    /// A failed sync may have left pages that count as written and are not.
    fn store_again(&self, part: &Part) {
        if !self.shape.has_parts() {
            return;
        }
        let start = self.shape.part(part.number);
        for word in start..start + self.shape.part_words() {
            self.journal().store(word, self.journal().load(word));
        }
    }

    fn store_synced(&self, part: &Part, word: usize, count: LogCount) {
        let start = self.shape.part(part.number);
        self.journal().store(start + word, count.encode());
    }

    /// Makes durable what `parts` hold at the time it is called for, one partition after the other; `parts` passes each
    /// to the function it is given, under the lock. And what `store` stores: no sync that has failed before loses it.
    pub(crate) async fn sync(
        &self,
        parts: impl Fn(&mut dyn FnMut(&mut Part)),
        store: impl FnOnce(),
    ) -> Result<(), SliceError> {
        let store_again = || parts(&mut |part| self.store_again(part));
        let store_counts = || {
            store();
            parts(&mut |part| {
                part.syncing = (part.synced != part.count).then_some(part.count);
                if let Some(count) = part.syncing {
                    self.store_synced(part, part.other_word(), count);
                }
            });
        };
        let confirm = || {
            parts(&mut |part| {
                if let Some(count) = part.syncing.take() {
                    self.store_synced(part, part.synced_word, count);
                    part.synced_word = part.other_word();
                    part.synced = count;
                }
            });
        };
        self.pointers.sync(store_again, store_counts, confirm).await
    }
}

impl Part {
    /// The synced count that may be overwritten.
    fn other_word(&self) -> usize {
        3 - self.synced_word
    }
}
