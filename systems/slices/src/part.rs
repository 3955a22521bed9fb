//! A part of a log: entries, with a head that counts them (section 8, "Tolerating failures").
//!
//! ```text
//!   count │ synced count x 2 │ owner │ entries
//! ```
//!
//! Stores survive the process, in their order. After a power cut the checksum of a count says whether all entries that it counts
//! are there. The highest of the three counts whose checksum is right is taken.
//!
//! One synced count is durable at any moment, with the entries that it counts. A sync writes to the other synced count. When the
//! sync has succeeded, that count is the durable one, and the first gets the same value, which need not be durable. A start does
//! not know which count is durable: it makes the log durable as it is before it changes a synced count.

use crate::encoding::log::{LogCount, PART_HEAD_WORDS};
use device::Journal;

use crate::error::SliceError;
use crate::pointers::Pointers;
use crate::words;

/// Counts in the head of a part. The owner follows.
pub(crate) const COUNTS: usize = PART_HEAD_WORDS - 1;

/// A part that is being written. Accessed under the lock of its entries' owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// First word of the part.
    pub(crate) start: usize,
    pub(crate) count: LogCount,
    /// Count that the last successful sync covers, and the word of the head that holds it.
    synced: LogCount,
    synced_word: usize,
    /// Count that a sync has stored in the other word, while the sync has not succeeded.
    syncing: Option<LogCount>,
}

impl Part {
    /// Returns a part without entries. `none` is the count that no entries have.
    pub(crate) fn empty(start: usize, none: LogCount) -> Self {
        Self {
            start,
            count: none,
            synced: none,
            synced_word: 1,
            syncing: None,
        }
    }

    /// Begins a part without entries, whose owner is the word `owner`. The entries that it held must be durable elsewhere.
    pub(crate) fn begin(journal: &dyn Journal, start: usize, none: LogCount, owner: u64) -> Self {
        for word in start..start + COUNTS {
            journal.store(word, none.encode());
        }
        // Stored last: if the owner is there, the counts are those of its entries.
        journal.store(start + COUNTS, owner);
        Self::empty(start, none)
    }

    /// Returns the part that a start has found with this head and these entries, each the words that its count covers. Returns
    /// `None` if no count is right.
    pub(crate) fn found<W: AsRef<[u64]>>(
        start: usize,
        head: &[u64],
        none: LogCount,
        entries: impl Iterator<Item = W>,
    ) -> Option<Self> {
        let counts: Vec<LogCount> = head[..COUNTS]
            .iter()
            .copied()
            .map(LogCount::decode)
            .collect();
        // The highest right count, among all counts and among the synced ones.
        let (mut highest, mut synced) = (None, None);
        let mut look_at = |count: LogCount| {
            if counts.contains(&count) {
                highest = Some(count);
            }
            if counts[1..].contains(&count) {
                synced = Some(count);
            }
        };
        let mut count = none;
        look_at(count);
        for entry in entries {
            count = count.and(entry.as_ref());
            look_at(count);
        }
        // If damage has left no right synced count, only the first count is durable. It stays until the next sync has ended.
        let synced = synced.unwrap_or(none);
        Some(Self {
            count: highest?,
            synced,
            synced_word: if counts[2] == synced { 2 } else { 1 },
            ..Self::empty(start, none)
        })
    }

    /// Counts another entry, whose words have been stored.
    pub(crate) fn add(&mut self, journal: &dyn Journal, entry: &[u64]) {
        self.count = self.count.and(entry);
        journal.store(self.start, self.count.encode());
    }

    fn store_synced(&self, journal: &dyn Journal, word: usize, count: LogCount) {
        journal.store(self.start + word, count.encode());
    }

    /// Returns the word of the synced count that may be overwritten.
    fn other_word(&self) -> usize {
        COUNTS - self.synced_word
    }
}

/// Makes the entries in `parts` durable, as they are when `parts` passes each part of `part_words` words, under its lock, to the
/// function that it is given. Also makes durable the words that `store` stores, and the words that `rest_again` stores again in
/// case an earlier failed sync has lost them.
pub(crate) async fn sync(
    pointers: &Pointers,
    part_words: usize,
    parts: impl Fn(&mut dyn FnMut(&mut Part)),
    rest_again: impl FnOnce(),
    store: impl FnOnce(),
) -> Result<(), SliceError> {
    let journal = &*pointers.journal;
    let parts_again = || {
        parts(&mut |part| words::store_again(journal, part.start..part.start + part_words));
        rest_again();
    };
    let store_counts = || {
        store();
        parts(&mut |part| {
            part.syncing = (part.synced != part.count).then_some(part.count);
            if let Some(count) = part.syncing {
                part.store_synced(journal, part.other_word(), count);
            }
        });
    };
    // Both words hold the count from now on, so that the next sync may overwrite either.
    let confirm = || {
        parts(&mut |part| {
            if let Some(count) = part.syncing.take() {
                part.store_synced(journal, part.synced_word, count);
                part.synced_word = part.other_word();
                part.synced = count;
            }
        });
    };
    pointers.sync(parts_again, store_counts, confirm).await
}
