//! The log of changes in memory, and the words that say where slicetables lie (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition and drive │ partition 0: half 0, half 1 │ partition 1: …
//!                                  └ count, synced count x 2, generation │ marks of deletes │ entries
//! ```
//!
//! Stores survive the process, in their order. After a power cut the checksum of a count says whether the entries that it
//! counts are all there; of three counts the highest that is right is taken.
//!
//! One synced count is durable at any moment, with what it counts. A sync writes to the other; when it has succeeded, that one is
//! the durable one, and the first gets the same count, which need not be durable. A start does not know which is: it makes the log
//! durable as it is before it changes a synced count.
//!
//! A half whose head names the expected generation has a count that is right: where it has none, it has decayed. Where the head
//! names the generation of two flushes before, the half has been begun by nobody, or a power cut has undone that: nothing in it was
//! synced. Every other head is damage, too.

use std::sync::Arc;

use device::Journal;
use format::slices::{HALF_ALIGN_WORDS, HALF_HEAD_WORDS, LogCount, half_mark};

use crate::error::SliceError;
use crate::pointers::Pointers;
use crate::table::Change;

/// How a log is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogShape {
    pub(crate) partitions: u32,
    pub(crate) drives: u32,
    /// Entries of a half; 0 where changes are not logged, and there are no halves.
    pub(crate) entries: u32,
}

impl LogShape {
    fn marks(&self) -> usize {
        HALF_HEAD_WORDS
    }

    fn mark_words(&self) -> usize {
        (self.entries as usize).div_ceil(64)
    }

    fn has_halves(&self) -> bool {
        self.entries > 0
    }

    fn half_words(&self) -> usize {
        if !self.has_halves() {
            return 0;
        }
        let words = HALF_HEAD_WORDS + self.mark_words() + 2 * self.entries as usize;
        words.next_multiple_of(HALF_ALIGN_WORDS)
    }

    fn half(&self, partition: u32, generation: u32) -> usize {
        let half = 2 * partition as usize + (generation % 2) as usize;
        let first = Pointers::end(self.partitions, self.drives).next_multiple_of(HALF_ALIGN_WORDS);
        first + half * self.half_words()
    }

    /// Words of all of it.
    pub(crate) fn words(&self) -> usize {
        self.half(self.partitions, 0)
    }
}

/// Counts of a head; the generation follows.
const COUNTS: usize = HALF_HEAD_WORDS - 1;

/// The log of a structure.
pub(crate) struct Log {
    pub(crate) pointers: Pointers,
    shape: LogShape,
}

/// A half that is being written. Under the lock of its partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    partition: u32,
    generation: u32,
    count: LogCount,
    /// What the last sync that has succeeded covers, and which of the two words says so.
    synced: LogCount,
    synced_word: usize,
    /// What the other word says, where a sync has stored it and has not succeeded.
    syncing: Option<LogCount>,
}

/// A half as it was found.
pub(crate) enum Replayed {
    /// It holds these changes, in order. The half is to go on with.
    Begun(Half, Vec<(u64, Change)>),
    /// It holds another generation: nothing of the expected one was synced.
    NotBegun,
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
        let log = Self { pointers, shape };
        for partition in 0..shape.partitions {
            log.begin(partition, 0);
            log.begin(partition, 1);
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
        Ok(Self { pointers, shape })
    }

    /// Whether changes are logged.
    pub(crate) fn has_changes(&self) -> bool {
        self.shape.has_halves()
    }

    fn journal(&self) -> &dyn Journal {
        &*self.pointers.journal
    }

    /// Begins the half of a generation, whose last use, two generations before, is over.
    pub(crate) fn begin(&self, partition: u32, generation: u32) -> Half {
        let none = LogCount::none(self.pointers.instance, partition, generation);
        if self.shape.has_halves() {
            let start = self.shape.half(partition, generation);
            for word in start..start + COUNTS {
                self.journal().store(word, none.encode());
            }
            // The last: where it is there, the counts are this generation's.
            let mark = half_mark(self.pointers.instance, partition, generation);
            self.journal().store(start + COUNTS, mark);
        }
        Half {
            partition,
            generation,
            count: none,
            synced: none,
            synced_word: 1,
            syncing: None,
        }
    }

    /// Whether an entry more fits.
    pub(crate) fn has_space(&self, half: &Half) -> bool {
        !self.shape.has_halves() || half.count.entries < self.shape.entries
    }

    /// Adds an entry, for which there is space.
    pub(crate) fn append(&self, half: &mut Half, key: u64, change: Change) {
        if !self.shape.has_halves() {
            return;
        }
        let start = self.shape.half(half.partition, half.generation);
        let entry = half.count.entries as usize;
        let (value, is_delete) = match change {
            Change::Value(value) => (value, 0),
            Change::Delete => (0, 1),
        };
        let mark = start + self.shape.marks() + entry / 64;
        let others = self.journal().load(mark) & !(1 << (entry % 64));
        self.journal()
            .store(mark, others | is_delete << (entry % 64));
        let at = start + self.shape.marks() + self.shape.mark_words() + 2 * entry;
        self.journal().store(at, key);
        self.journal().store(at + 1, value);
        half.count = half.count.and(&[key, value, is_delete]);
        self.journal().store(start, half.count.encode());
    }

    /// What the half of a generation holds.
    ///
    /// # Errors
    /// [`SliceError::DamagedLog`], and errors of the device.
    pub(crate) fn replay(&self, partition: u32, generation: u32) -> Result<Replayed, SliceError> {
        if !self.shape.has_halves() {
            return Ok(Replayed::NotBegun);
        }
        let start = self.shape.half(partition, generation);
        let mut words = vec![0; self.shape.half_words()];
        self.journal()
            .read(start, &mut words)
            .map_err(SliceError::log)?;
        let (head, rest) = words.split_at(HALF_HEAD_WORDS);
        let (counts, mark) = head.split_at(COUNTS);
        let damaged = |what| SliceError::DamagedLog { partition, what };
        let mark_of = |generation| half_mark(self.pointers.instance, partition, generation);
        if mark[0] != mark_of(generation) {
            return match generation.checked_sub(2).map(mark_of) == Some(mark[0]) {
                true => Ok(Replayed::NotBegun),
                false => Err(damaged(
                    "the head of a half names no generation that can be",
                )),
            };
        }
        let (marks, entries) = rest.split_at(self.shape.mark_words());
        let entries = &entries[..2 * self.shape.entries as usize];
        let counts: Vec<LogCount> = counts.iter().map(|&word| LogCount::decode(word)).collect();

        let mut count = LogCount::none(self.pointers.instance, partition, generation);
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
        let valid = valid.ok_or_else(|| damaged("its entries are not those that were synced"))?;
        changes.truncate(valid.entries as usize);
        // Where a damaged word has left none, no count is durable but the first, which stays until the next sync has ended.
        let synced =
            synced.unwrap_or_else(|| LogCount::none(self.pointers.instance, partition, generation));
        let half = Half {
            partition,
            generation,
            count: valid,
            synced,
            synced_word: if counts[2] == synced { 2 } else { 1 },
            syncing: None,
        };
        Ok(Replayed::Begun(half, changes))
    }

    /// A failed sync may have left pages that count as written and are not.
    fn store_again(&self, half: &Half) {
        let start = self.shape.half(half.partition, half.generation);
        for word in start..start + self.shape.half_words() {
            self.journal().store(word, self.journal().load(word));
        }
    }

    fn store_synced(&self, half: &Half, word: usize, count: LogCount) {
        let start = self.shape.half(half.partition, half.generation);
        self.journal().store(start + word, count.encode());
    }

    /// Makes durable what `halves` hold at the time it is called for, one partition after the other; `halves` passes each
    /// to the function it is given, under the lock.
    pub(crate) async fn sync(
        &self,
        halves: impl Fn(&mut dyn FnMut(&mut Half)),
    ) -> Result<(), SliceError> {
        let store_again = || halves(&mut |half| self.store_again(half));
        let store_counts = || {
            halves(&mut |half| {
                half.syncing = (half.synced != half.count).then_some(half.count);
                if let Some(count) = half.syncing {
                    self.store_synced(half, half.other_word(), count);
                }
            });
        };
        let confirm = || {
            halves(&mut |half| {
                if let Some(count) = half.syncing.take() {
                    self.store_synced(half, half.synced_word, count);
                    half.synced_word = half.other_word();
                    half.synced = count;
                }
            });
        };
        self.pointers.sync(store_again, store_counts, confirm).await
    }
}

impl Half {
    /// The synced count that may be overwritten.
    fn other_word(&self) -> usize {
        3 - self.synced_word
    }
}
