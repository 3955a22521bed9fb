//! The log of changes in memory, and the words that say where slicetables lie (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition and drive │ partition 0: half 0, half 1 │ partition 1: …
//!                                                └ count, synced count x 2 │ marks of deletes │ entries
//! ```
//!
//! Stores survive the process, in their order. After a power cut the checksum of a count says whether the entries that it
//! counts are all there; of three counts the highest that is right is taken, and one of them has been synced.

use std::sync::Arc;

use device::Journal;
use format::slices::{HALF_HEAD_WORDS, LogCount};

use crate::error::SliceError;
use crate::pointers::Pointers;
use crate::table::Change;

/// How a log is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogShape {
    pub(crate) partitions: u32,
    pub(crate) drives: u32,
    /// Entries of a half.
    pub(crate) entries: u32,
}

impl LogShape {
    fn marks(&self) -> usize {
        HALF_HEAD_WORDS
    }

    fn mark_words(&self) -> usize {
        (self.entries as usize).div_ceil(64)
    }

    fn half_words(&self) -> usize {
        HALF_HEAD_WORDS + self.mark_words() + 2 * self.entries as usize
    }

    fn half(&self, partition: u32, generation: u32) -> usize {
        let half = 2 * partition as usize + (generation % 2) as usize;
        Pointers::end(self.partitions, self.drives) + half * self.half_words()
    }

    /// Words of all of it.
    pub(crate) fn words(&self) -> usize {
        self.half(self.partitions, 0)
    }
}

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
    /// What the last sync has covered, and which of the two words says so.
    synced: LogCount,
    synced_word: bool,
}

impl Log {
    /// The log of a new structure.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::create(journal, shape.drives, shape.words(), instance)?;
        let log = Self { pointers, shape };
        for partition in 0..shape.partitions {
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
        let pointers = Pointers::open(journal, shape.drives, shape.words(), instance)?;
        Ok(Self { pointers, shape })
    }

    fn journal(&self) -> &dyn Journal {
        &*self.pointers.journal
    }

    /// Begins the half of a generation, whose last use, two generations before, is over.
    pub(crate) fn begin(&self, partition: u32, generation: u32) -> Half {
        let none = LogCount::none(self.pointers.instance, partition, generation);
        let start = self.shape.half(partition, generation);
        for word in start..start + HALF_HEAD_WORDS {
            self.journal().store(word, none.encode());
        }
        Half {
            partition,
            generation,
            count: none,
            synced: none,
            synced_word: false,
        }
    }

    /// Whether an entry more fits.
    pub(crate) fn has_space(&self, half: &Half) -> bool {
        half.count.entries < self.shape.entries
    }

    /// Adds an entry, for which there is space.
    pub(crate) fn append(&self, half: &mut Half, key: u64, change: Change) {
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

    /// What a half holds, in order, and the half, to go on with it.
    pub(crate) fn replay(
        &self,
        partition: u32,
        generation: u32,
    ) -> Result<(Half, Vec<(u64, Change)>), SliceError> {
        let start = self.shape.half(partition, generation);
        let mut words = vec![0; self.shape.half_words()];
        self.journal()
            .read(start, &mut words)
            .map_err(SliceError::log)?;
        let (counts, rest) = words.split_at(HALF_HEAD_WORDS);
        let (marks, entries) = rest.split_at(self.shape.mark_words());
        let counts: Vec<LogCount> = counts.iter().map(|&word| LogCount::decode(word)).collect();

        let none = LogCount::none(self.pointers.instance, partition, generation);
        let (mut count, mut valid, mut synced) = (none, none, none);
        let mut changes = Vec::new();
        for (entry, pair) in entries.chunks_exact(2).enumerate() {
            let is_delete = marks[entry / 64] >> (entry % 64) & 1;
            count = count.and(&[pair[0], pair[1], is_delete]);
            changes.push(match is_delete {
                0 => (pair[0], Change::Value(pair[1])),
                _ => (pair[0], Change::Delete),
            });
            if counts.contains(&count) {
                valid = count;
            }
            if counts[1..].contains(&count) {
                synced = count;
            }
        }
        changes.truncate(valid.entries as usize);
        let half = Half {
            partition,
            generation,
            count: valid,
            synced,
            synced_word: counts[2] == synced,
        };
        Ok((half, changes))
    }

    /// A failed sync may have left pages that count as written and are not.
    fn store_again(&self, half: &Half) {
        let start = self.shape.half(half.partition, half.generation);
        for word in start..start + self.shape.half_words() {
            self.journal().store(word, self.journal().load(word));
        }
    }

    /// Makes durable what `halves` hold at the time it is called for, one partition after the other; `halves` passes each
    /// to the function it is given, under the lock.
    pub(crate) async fn sync(
        &self,
        halves: impl FnOnce(&mut dyn FnMut(&mut Half)),
    ) -> Result<(), SliceError> {
        let store_counts = |has_lost| {
            halves(&mut |half| {
                if has_lost {
                    self.store_again(half);
                }
                if half.synced == half.count {
                    return;
                }
                half.synced_word = !half.synced_word;
                let word = self.shape.half(half.partition, half.generation)
                    + 1
                    + usize::from(half.synced_word);
                self.journal().store(word, half.count.encode());
                half.synced = half.count;
            });
        };
        self.pointers.sync(store_counts).await
    }
}
