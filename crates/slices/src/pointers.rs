//! The start of every log: whose it is, and the words that say where slicetables lie (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition and drive │ what the structure has beside
//! ```
//!
//! Syncs go one after the other, so that a pointer is durable when its own sync has returned: none that began before can lose it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Journal;
use format::slices::{LOG_HEAD_WORDS, LOG_MAGIC, Pointer, SLICES_FORMAT};
use runtime::sync::Semaphore;

use crate::error::SliceError;

/// The pointers of a log. Used from all threads at once.
pub(crate) struct Pointers {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) instance: u64,
    /// Slicetables of a partition.
    drives: u32,
    syncing: Semaphore,
    /// A sync has failed, and the system may take for written what is not.
    has_lost: AtomicBool,
}

impl Pointers {
    /// The first word behind the pointers.
    pub(crate) fn end(partitions: u32, drives: u32) -> usize {
        LOG_HEAD_WORDS + partitions as usize * drives as usize
    }

    /// The log of a new structure: `words` of it are zeros, with the head.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        drives: u32,
        words: usize,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Self::of(journal, drives, words, instance)?;
        pointers.journal.clear(0..words);
        pointers.journal.store(2, instance);
        pointers.journal.store(1, SLICES_FORMAT.into());
        pointers.journal.store(0, LOG_MAGIC);
        Ok(pointers)
    }

    /// The log of a structure that there is.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        drives: u32,
        words: usize,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Self::of(journal, drives, words, instance)?;
        let mut head = [0; LOG_HEAD_WORDS];
        let read = pointers.journal.read(0, &mut head);
        read.map_err(SliceError::log)?;
        match head[..3] == [LOG_MAGIC, SLICES_FORMAT.into(), instance] {
            true => Ok(pointers),
            false => Err(SliceError::OtherLog),
        }
    }

    fn of(
        journal: Arc<dyn Journal>,
        drives: u32,
        needs: usize,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let has = journal.words();
        if has < needs {
            return Err(SliceError::ShortLog { has, needs });
        }
        Ok(Self {
            journal,
            instance,
            drives,
            syncing: Semaphore::new(1),
            has_lost: AtomicBool::new(false),
        })
    }

    fn word(&self, partition: u32, drive: u32) -> usize {
        Self::end(partition, self.drives) + drive as usize
    }

    /// Where the slicetable of a partition lies.
    pub(crate) fn get(&self, partition: u32, drive: u32) -> Pointer {
        Pointer::decode(self.journal.load(self.word(partition, drive)))
    }

    /// From now on it lies there. Returns when that is durable.
    pub(crate) async fn set(
        &self,
        partition: u32,
        drive: u32,
        pointer: Pointer,
    ) -> Result<(), SliceError> {
        let _syncing = self.syncing.acquire().await;
        let word = self.word(partition, drive);
        self.journal.store(word, pointer.encode());
        self.make_durable().await
    }

    /// Calls `before`, which is told whether a sync has failed since the last call, then makes every store durable. What
    /// might be lost is to be stored again.
    pub(crate) async fn sync(&self, before: impl FnOnce(bool)) -> Result<(), SliceError> {
        let _syncing = self.syncing.acquire().await;
        before(self.has_lost.swap(false, Ordering::AcqRel));
        self.make_durable().await
    }

    async fn make_durable(&self) -> Result<(), SliceError> {
        let synced = self.journal.sync().await;
        if synced.is_err() {
            self.has_lost.store(true, Ordering::Release);
        }
        synced.map_err(SliceError::log)
    }
}
