//! The start of every log: the owner of the log, and the words that say where slicetables lie (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition and drive │ further words of the structure
//! ```
//!
//! Syncs run one after the other, and finish even if nobody waits for them. A pointer is durable when its own sync has returned:
//! no earlier sync can lose it. Until a sync has succeeded, the words that it covers may count as written and be lost, so the
//! next sync stores everything again first. So does the first sync of a process, since the last sync of the previous process may
//! have failed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::encoding::log::{LOG_HEAD_WORDS, LOG_MAGIC, Pointer, PointerOwner};
use crate::encoding::table::SLICES_FORMAT;
use device::{DeviceError, Journal, Operation};
use runtime::sync::{Permit, Semaphore};

use crate::error::SliceError;
use crate::words;

/// Highest generation. No structure flushes a partition so often, and sums of generations do not overflow.
const LAST_GENERATION: u32 = u32::MAX / 2;

/// Sizes of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSize {
    pub(crate) partitions: u32,
    /// Slicetables of each partition, with a pointer each.
    pub(crate) drives: u32,
    /// Words of the whole log.
    pub(crate) words: usize,
}

/// The pointers of a log. May be used from all threads at once.
pub(crate) struct Pointers {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) instance: u64,
    size: LogSize,
    syncing: Semaphore,
    /// Whether a sync has failed or has not ended. The system may then count words as written that are not.
    is_unsure: AtomicBool,
}

impl Pointers {
    /// Returns the first word behind the pointers.
    pub(crate) fn end(partitions: u32, drives: u32) -> usize {
        LOG_HEAD_WORDS + partitions as usize * drives as usize
    }

    /// Creates the log of a new structure: zeros in all words, empty pointers and the head.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        size: LogSize,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Self::of(journal, size, instance)?;
        pointers.journal.clear(0..size.words);
        for (partition, drive) in pointers.all() {
            pointers.store(partition, drive, Pointer::default());
        }
        pointers.journal.store(2, instance);
        pointers.journal.store(1, SLICES_FORMAT.into());
        pointers.journal.store(0, LOG_MAGIC);
        Ok(pointers)
    }

    /// Opens the log of an existing structure.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        size: LogSize,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Self::of(journal, size, instance)?;
        let mut words = words::read(&*pointers.journal, 0..pointers.own_words())?;
        let pointer_words = words.split_off(LOG_HEAD_WORDS);
        if words[..3] != [LOG_MAGIC, SLICES_FORMAT.into(), instance] {
            return Err(SliceError::OtherLog);
        }
        for ((partition, drive), word) in pointers.all().zip(pointer_words) {
            let pointer = Pointer::decode(word, pointers.owner(partition, drive));
            if !pointer.is_ok_and(|pointer| pointer.generation <= LAST_GENERATION) {
                let what = "the word that says where its slicetable lies";
                return Err(SliceError::DamagedLog { partition, what });
            }
        }
        pointers.is_unsure.store(true, Ordering::Release);
        Ok(pointers)
    }

    fn of(journal: Arc<dyn Journal>, size: LogSize, instance: u64) -> Result<Self, SliceError> {
        words::refuse_short(&*journal, size.words)?;
        Ok(Self {
            journal,
            instance,
            size,
            syncing: Semaphore::new(1),
            is_unsure: AtomicBool::new(false),
        })
    }

    /// Returns the words of the head and the pointers.
    fn own_words(&self) -> usize {
        Self::end(self.size.partitions, self.size.drives)
    }

    fn all(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let drives = self.size.drives;
        (0..self.size.partitions)
            .flat_map(move |partition| (0..drives).map(move |drive| (partition, drive)))
    }

    fn word(&self, partition: u32, drive: u32) -> usize {
        Self::end(partition, self.size.drives) + drive as usize
    }

    fn owner(&self, partition: u32, drive: u32) -> PointerOwner {
        PointerOwner {
            instance: self.instance,
            partition,
            drive,
        }
    }

    fn store(&self, partition: u32, drive: u32, pointer: Pointer) {
        let word = pointer.encode(self.owner(partition, drive));
        self.journal.store(self.word(partition, drive), word);
    }

    /// Returns the pointer to a partition's slicetable on a drive.
    pub(crate) fn get(&self, partition: u32, drive: u32) -> Pointer {
        let word = self.journal.load(self.word(partition, drive));
        Pointer::decode(word, self.owner(partition, drive))
            .expect("they were looked at when the log was opened")
    }

    /// Returns the pointers to the slicetables on one of `count` drives, one for each of its partitions. Slices are spread over
    /// all drives if partitions have more than one slicetable.
    pub(crate) fn on_drive(&self, drive: usize, count: usize) -> Vec<(u32, Pointer)> {
        let (first, step, nth) = match self.size.drives {
            1 => (drive as u32, count, 0),
            _ => (0, 1, drive as u32),
        };
        let partitions = (first..self.size.partitions).step_by(step);
        partitions
            .map(|partition| (partition, self.get(partition, nth)))
            .collect()
    }

    /// Stores the pointer to a partition's slicetable on a drive. Returns when it is durable.
    pub(crate) async fn set(
        &self,
        partition: u32,
        drive: u32,
        pointer: Pointer,
    ) -> Result<(), SliceError> {
        self.durably(|| self.store(partition, drive, pointer)).await
    }

    /// Calls `store`, and returns when its stores are durable.
    pub(crate) async fn durably(&self, store: impl FnOnce()) -> Result<(), SliceError> {
        let permit = self.syncing.acquire().await;
        // This sync does not restore the words that an earlier sync may have lost.
        let was_unsure = self.is_unsure.swap(true, Ordering::AcqRel);
        store();
        let _permit = self.make_durable(permit).await?;
        self.is_unsure.store(was_unsure, Ordering::Release);
        Ok(())
    }

    /// Calls `store`, then makes every store durable. If an earlier sync may have lost words, first makes everything durable as
    /// it is: the pointers, and the words that `rest_again` stores again. Calls `confirm` when all is durable, before another
    /// sync begins.
    pub(crate) async fn sync(
        &self,
        rest_again: impl FnOnce(),
        store: impl FnOnce(),
        confirm: impl FnOnce(),
    ) -> Result<(), SliceError> {
        let mut permit = self.syncing.acquire().await;
        if self.is_unsure.swap(true, Ordering::AcqRel) {
            words::store_again(&*self.journal, 0..self.own_words());
            rest_again();
            permit = self.make_durable(permit).await?;
        }
        store();
        let _permit = self.make_durable(permit).await?;
        self.is_unsure.store(false, Ordering::Release);
        confirm();
        Ok(())
    }

    /// Syncs the journal. No other sync begins before this one has ended, even if the caller is dropped.
    async fn make_durable(&self, permit: Permit) -> Result<Permit, SliceError> {
        let journal = Arc::clone(&self.journal);
        let sync = runtime::spawn(async move { (journal.sync().await, permit) });
        match sync.await {
            Some((Ok(()), permit)) => Ok(permit),
            Some((Err(error), _)) => Err(SliceError::log(error)),
            None => Err(SliceError::log(DeviceError::Io {
                operation: Operation::Sync,
                offset: 0,
                len: 0,
                source: std::io::Error::other("the runtime that synced has ended"),
            })),
        }
    }
}

/// Refuses pointers of one drive, with their partitions, that name a region beyond the drive, or one region twice.
pub(crate) fn check_regions(
    pointers: impl Iterator<Item = (u32, Pointer)>,
    regions: u64,
) -> Result<(), SliceError> {
    let mut used = HashSet::new();
    for (partition, pointer) in pointers.filter(|(_, pointer)| pointer.generation > 0) {
        if u64::from(pointer.region) >= regions || !used.insert(pointer.region) {
            let what = "the word that says where its slicetable lies: no region of the drive, or another partition's";
            return Err(SliceError::DamagedLog { partition, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_of_the_drive_and_of_one_partition() {
        let check = |regions: [(u32, u32); 3]| {
            let pointer = |(generation, region)| Pointer { generation, region };
            check_regions((0..).zip(regions.map(pointer)), 9).is_ok()
        };
        assert!(check([(1, 8), (0, 0), (2, 0)]));
        assert!(check([(1, 8), (0, 8), (0, 8)]), "0 is none");
        assert!(!check([(1, 8), (1, 3), (2, 8)]));
        assert!(!check([(1, 8), (1, 9), (2, 0)]));
    }
}
