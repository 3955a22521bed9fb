//! The log of changes in memory, and the words that say where slicetables lie (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition and drive │ part 0 │ part 1 │ …
//!                                                └ count, synced count x 2, owner │ marks of deletes │ entries
//! ```
//!
//! A part holds the changes of one table in memory. Its owner is a partition and the generation that the table will be flushed
//! as. A table takes any free part, and gives it back when the log durably says that a slicetable has the generation. The log
//! therefore has as many parts as there can be tables ([`Parts`]).
//!
//! Stores survive the process, in their order. After a power cut the checksum of a count says whether all entries that it counts
//! are there. The highest of the three counts whose checksum is right is taken.
//!
//! One synced count is durable at any moment, with the entries that it counts. A sync writes to the other synced count. When the
//! sync has succeeded, that count is the durable one, and the first gets the same value, which need not be durable. A start does
//! not know which count is durable: it makes the log durable as it is before it changes a synced count.
//!
//! If no slicetable has the generation that owns a part, one of the part's counts is right, or the part has decayed. If a
//! slicetable has it, as the pointers say, the part is free, whatever else it holds: a generation that has taken the part since
//! was not synced. A generation that no part has was not synced either. A word that names no owner is damage.

use std::sync::Arc;

use device::Journal;
use format::slices_log::{LogCount, PART_ALIGN_WORDS, PART_HEAD_WORDS, PartOwner};

use crate::error::SliceError;
use crate::parts::Parts;
use crate::pointers::Pointers;
use crate::table::Change;

/// The division of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogShape {
    pub(crate) partitions: u32,
    /// Slicetables of each partition: one, or one on each drive if slices are spread.
    pub(crate) drives: u32,
    /// Parts in addition to one for each partition: as many as tables may be frozen.
    pub(crate) spare_parts: u32,
    /// Entries of a part; 0 if changes are not logged, and there are no parts.
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

    /// Returns the words of the whole log.
    pub(crate) fn words(&self) -> usize {
        self.part(self.parts())
    }
}

/// Counts in the head of a part. The owner follows.
const COUNTS: usize = PART_HEAD_WORDS - 1;

/// The log of a structure.
pub(crate) struct Log {
    pub(crate) pointers: Pointers,
    shape: LogShape,
    parts: Parts,
}

/// A part that is being written. Accessed under the lock of its partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    number: u32,
    count: LogCount,
    /// Count that the last successful sync covers, and the word of the head that holds it.
    synced: LogCount,
    synced_word: usize,
    /// Count that a sync has stored in the other word, while the sync has not succeeded.
    syncing: Option<LogCount>,
}

/// A part as a start has found it, to which changes may be appended.
pub(crate) struct Replayed {
    pub(crate) part: Part,
    /// The changes in the part, in order.
    pub(crate) changes: Vec<(u64, Change)>,
}

impl Log {
    /// Creates the log of a new structure.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::create(
            journal,
            shape.partitions,
            shape.drives,
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

    /// Opens the log of an existing structure.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::open(
            journal,
            shape.partitions,
            shape.drives,
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

    /// Returns whether changes are logged. Otherwise the owner of the table saves them.
    pub(crate) fn has_changes(&self) -> bool {
        self.shape.has_parts()
    }

    /// Returns the words of the journal that the log uses, from the first on.
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
        // Stored last: if the owner is there, the counts are those of its generation.
        let word = owner.encode(self.pointers.instance, part);
        self.journal().store(start + COUNTS, word);
    }

    /// Begins a free part for a generation. A part must be free.
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

    /// Gives a part back: a slicetable has its changes, and the log durably says so.
    pub(crate) fn release(&self, part: Part) {
        if self.shape.has_parts() {
            self.parts.give_back(part.number);
        }
    }

    /// Returns whether another entry fits.
    pub(crate) fn has_space(&self, part: &Part) -> bool {
        !self.shape.has_parts() || part.count.entries < self.shape.entries
    }

    /// Appends an entry, for which the part must have space.
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

    /// Returns the parts of a partition whose slicetables have the generations up to `written`: the part of the next generation,
    /// and the parts of later generations in the log. The last part takes further changes. Called once for each partition.
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
        // The highest right count, among all counts and among the synced ones.
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
        // If damage has left no right synced count, only the first count is durable. It stays until the next sync has ended.
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

    /// Stores the words of a part again. A failed sync may have left pages that count as written and are not.
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

    /// Makes the changes in `parts` durable, as they are when `parts` passes each part, under the lock of its partition, to the
    /// function that it is given. Also makes durable the words that `store` stores, whatever an earlier failed sync has lost.
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
    /// Returns the word of the synced count that may be overwritten.
    fn other_word(&self) -> usize {
        3 - self.synced_word
    }
}
