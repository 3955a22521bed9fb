//! The log of a map, behind the log of its table: the segments of records in memory, and the end of the records.
//!
//! ```text
//!   instance │ epoch │ end │ … │ slot 0 │ slot 1 │ …          segment n has slot n mod slots
//! ```
//!
//! Slots serve kills alone: stores survive the process, so that the next process has the records that had not reached a drive. A
//! power cut may lose any words of a slot, and records have checksums. All records in front of the end are durably on the drives,
//! and their entries durably in the table. If the end were ahead of the entries that a power cut leaves in the table, a start
//! would not bring back the missing ones.

use std::sync::Arc;

use crate::encoding::map::{seal_number, unseal_number};
use device::{AlignedBuf, Journal, PAGE_BYTES};

use crate::error::SliceError;
use crate::words;

/// Maximum segments in memory.
pub(crate) const SLOTS: usize = 4;
const WORD_BYTES: usize = size_of::<u64>();
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

const EPOCH: usize = 1;
const END: usize = 2;
const EPOCH_SALT: u8 = 0x35;
const END_SALT: u8 = 0x5b;

/// Returns the first word of the map, behind those of its table.
pub(crate) fn first_word(of_table: usize) -> usize {
    of_table.next_multiple_of(PAGE_WORDS)
}

/// Returns the number of words of the map.
pub(crate) fn words_of(segment_bytes: u32) -> usize {
    PAGE_WORDS + SLOTS * segment_bytes as usize / WORD_BYTES
}

/// The log of the records in memory. Accessed under the lock of the map, except when it is opened.
pub(crate) struct RecordLog {
    journal: Arc<dyn Journal>,
    first: usize,
    segment_bytes: usize,
}

/// The state of a map that its log has. A start begins here.
pub(crate) struct LogHead {
    /// Number of the start that the records belong to.
    pub(crate) epoch: u32,
    /// End of the records, in bytes.
    pub(crate) end: u64,
}

impl LogHead {
    /// Head of a new map, without records.
    pub(crate) const NEW: Self = Self { epoch: 1, end: 0 };
}

impl RecordLog {
    /// Creates the log of a new map, without records.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        first: usize,
        segment_bytes: u32,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let log = Self::of(journal, first, segment_bytes)?;
        log.journal.clear(first..first + words_of(segment_bytes));
        log.store_epoch(LogHead::NEW.epoch);
        log.store_end(LogHead::NEW.end);
        log.journal.store(first, instance);
        Ok(log)
    }

    /// Opens the log of an existing map. Also returns its head.
    ///
    /// # Errors
    /// Another map's log, or a damaged one.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        first: usize,
        segment_bytes: u32,
        instance: u64,
    ) -> Result<(Self, LogHead), SliceError> {
        let log = Self::of(journal, first, segment_bytes)?;
        let head = words::read(&*log.journal, first..first + END + 1)?;
        if head[0] != instance {
            return Err(SliceError::OtherLog);
        }
        let damaged = |_| SliceError::DamagedRecords;
        let epoch = unseal_number(head[EPOCH], EPOCH_SALT).map_err(damaged)?;
        let end = unseal_number(head[END], END_SALT).map_err(damaged)?;
        let head = LogHead {
            epoch: epoch as u32,
            end: end * PAGE_BYTES as u64,
        };
        Ok((log, head))
    }

    fn of(journal: Arc<dyn Journal>, first: usize, segment_bytes: u32) -> Result<Self, SliceError> {
        words::refuse_short(&*journal, first + words_of(segment_bytes))?;
        Ok(Self {
            journal,
            first,
            segment_bytes: segment_bytes as usize,
        })
    }

    pub(crate) fn store_epoch(&self, epoch: u32) {
        let word = seal_number(epoch.into(), EPOCH_SALT);
        self.journal.store(self.first + EPOCH, word);
    }

    /// Stores the end of the records, the start of a page. Their entries must be durable in the table.
    pub(crate) fn store_end(&self, end: u64) {
        let word = seal_number(end / PAGE_BYTES as u64, END_SALT);
        self.journal.store(self.first + END, word);
    }

    fn slot(&self, segment: u64) -> usize {
        let slot = (segment % SLOTS as u64) as usize;
        self.first + PAGE_WORDS + slot * self.segment_bytes / WORD_BYTES
    }

    /// Copies a record to the slot of its segment.
    pub(crate) fn append(&self, segment: u64, within: usize, record: &[u8]) {
        let first = self.slot(segment) + within / WORD_BYTES;
        for (word, bytes) in (first..).zip(record.chunks_exact(WORD_BYTES)) {
            let value = u64::from_le_bytes(bytes.try_into().expect("words have 8 bytes"));
            self.journal.store(word, value);
        }
    }

    /// Returns the slot of a segment, which may hold another segment.
    pub(crate) fn read_slot(&self, segment: u64) -> Result<AlignedBuf, SliceError> {
        let slot = self.slot(segment);
        let words = words::read(&*self.journal, slot..slot + self.segment_bytes / WORD_BYTES)?;
        let mut bytes = AlignedBuf::new(self.segment_bytes);
        for (to, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }
}
