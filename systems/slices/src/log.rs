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
//! If no slicetable has the generation that owns a part, one of the part's counts is right, or the part has decayed. If a
//! slicetable has it, as the pointers say, the part is free, whatever else it holds: a generation that has taken the part since
//! was not synced. A generation that no part has was not synced either. A word that names no owner is damage.

use std::sync::Arc;

use crate::encoding::log::{LogCount, PART_ALIGN_WORDS, PART_HEAD_WORDS, PartOwner};
use device::Journal;

use crate::error::SliceError;
use crate::part::{self, COUNTS, Part};
use crate::parts::Parts;
use crate::pointers::{LogSize, Pointers};
use crate::table::Change;
use crate::words;

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
        if !self.has_parts() {
            return 0;
        }
        let words = PART_HEAD_WORDS + self.mark_words() + 2 * self.entries as usize;
        words.next_multiple_of(PART_ALIGN_WORDS)
    }

    fn parts(&self) -> u32 {
        match self.has_parts() {
            true => self.partitions + self.spare_parts,
            false => 0,
        }
    }

    fn first_part(&self) -> usize {
        Pointers::end(self.partitions, self.drives).next_multiple_of(PART_ALIGN_WORDS)
    }

    /// Returns the first word of a part.
    fn part(&self, part: u32) -> usize {
        self.first_part() + part as usize * self.part_words()
    }

    /// Returns the number of the part whose first word is `start`.
    fn number(&self, start: usize) -> u32 {
        ((start - self.first_part()) / self.part_words()) as u32
    }

    fn size(&self) -> LogSize {
        LogSize {
            partitions: self.partitions,
            drives: self.drives,
            words: self.words(),
        }
    }

    /// Returns the words of the whole log.
    pub(crate) fn words(&self) -> usize {
        self.part(self.parts())
    }
}

/// The log of a structure.
pub(crate) struct Log {
    pub(crate) pointers: Pointers,
    shape: LogShape,
    parts: Parts,
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
        let pointers = Pointers::create(journal, shape.size(), instance)?;
        let log = Self {
            pointers,
            shape,
            parts: Parts::unused(shape.parts()),
        };
        for part in 0..shape.parts() {
            log.begin_part(part, PartOwner::default());
        }
        Ok(log)
    }

    /// Opens the log of an existing structure.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::open(journal, shape.size(), instance)?;
        let written: Vec<u32> = (0..shape.partitions)
            .map(|partition| {
                let generation = |drive| pointers.get(partition, drive).generation;
                (0..shape.drives).map(generation).max().unwrap_or(0)
            })
            .collect();
        let owner = |part: u32| {
            let at = shape.part(part) + COUNTS;
            let word = words::read(&*pointers.journal, at..at + 1)?;
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

    fn none(&self, owner: PartOwner) -> LogCount {
        LogCount::none(self.pointers.instance, owner.partition, owner.generation)
    }

    fn begin_part(&self, number: u32, owner: PartOwner) -> Part {
        let word = owner.encode(self.pointers.instance, number);
        let start = self.shape.part(number);
        Part::begin(self.journal(), start, self.none(owner), word)
    }

    /// Begins a free part for a generation. A part must be free.
    pub(crate) fn begin(&self, partition: u32, generation: u32) -> Part {
        let owner = PartOwner {
            generation,
            partition,
        };
        match self.shape.has_parts() {
            true => self.begin_part(self.parts.take(), owner),
            false => Part::empty(self.shape.first_part(), self.none(owner)),
        }
    }

    /// Gives a part back: a slicetable has its changes, and the log durably says so.
    pub(crate) fn release(&self, part: Part) {
        if self.shape.has_parts() {
            self.parts.give_back(self.shape.number(part.start));
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
        let start = part.start;
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
        part.add(self.journal(), &[key, value, is_delete]);
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
        let words = words::read(self.journal(), start..start + self.shape.part_words())?;
        let (head, rest) = words.split_at(PART_HEAD_WORDS);
        let (marks, entries) = rest.split_at(self.shape.mark_words());
        let entries = entries.chunks_exact(2).take(self.shape.entries as usize);
        let entries = entries.enumerate().map(|(entry, pair)| {
            let is_delete = marks[entry / 64] >> (entry % 64) & 1;
            [pair[0], pair[1], is_delete]
        });
        let none = self.none(PartOwner {
            generation,
            partition,
        });
        let part = Part::found(start, head, none, entries.clone());
        let part = part.ok_or(SliceError::DamagedLog {
            partition,
            what: "its entries are not those that were synced",
        })?;
        let changes = entries.take(part.count.entries as usize);
        let changes = changes.map(|[key, value, is_delete]| match is_delete {
            0 => (key, Change::Value(value)),
            _ => (key, Change::Delete),
        });
        Ok(Replayed {
            part,
            changes: changes.collect(),
        })
    }

    /// Makes the changes in `parts` durable, as they are when `parts` passes each part, under the lock of its partition, to the
    /// function that it is given. Also makes durable the words that `store` stores, whatever an earlier failed sync has lost.
    pub(crate) async fn sync(
        &self,
        parts: impl Fn(&mut dyn FnMut(&mut Part)),
        store: impl FnOnce(),
    ) -> Result<(), SliceError> {
        part::sync(&self.pointers, self.shape.part_words(), parts, || (), store).await
    }
}
