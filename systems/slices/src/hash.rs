//! SliceHash: a hash table of 8-byte keys and values (section 5).

mod batch;
mod created;
mod hash_table;
pub(crate) mod index;
mod levels;
mod lookup;
mod open;
mod stats;

use std::sync::Arc;

use device::{Disk, Journal};
use futures_util::future::join_all;

use crate::drive::Drive;
use crate::encoding::table::SliceKind;
use crate::error::SliceError;
use crate::flush::{self, State};
use crate::layout::drive_bytes;
use crate::log::Log;
use crate::part::Part;
use crate::settings::{HashSettings, HashShape};
use crate::superblock::{self, Instance};
use crate::table::Change;
use created::{created_settings, created_shape, superblock_of};
use hash_table::HashTable;

pub use stats::{HashMemory, HashStats};

/// A hash table of 8-byte keys and values that lies on drives. Clones are the same table.
///
/// All operations may be called at once, from every thread that a runtime drives. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process. A power cut keeps the changes before the last
/// [`sync`](Self::sync). A full partition drops its oldest incarnation.
#[derive(Clone)]
pub struct SliceHash(Arc<HashTable>);

impl SliceHash {
    /// Returns the words of the log of a table with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words(settings: &HashSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        let shape = settings.shape(drive_bytes)?;
        Ok(open::log_shape(&shape, settings, drive_bytes.len()).words())
    }

    /// Returns [`log_words`](Self::log_words) for these drives.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words_for(
        settings: &HashSettings,
        disks: &[Arc<dyn Disk>],
    ) -> Result<usize, SliceError> {
        Self::log_words(settings, &drive_bytes(disks))
    }

    /// Creates an empty table on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that are out of range, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let shape = settings.shape(&drive_bytes(&disks))?;
        let log_shape = open::log_shape(&shape, settings, disks.len());
        let instance = Instance::random();
        let superblock = superblock_of(settings, &shape, instance);
        let (words, layout) = (log_shape.words(), settings.layout());
        superblock::create(&disks, &*journal, words, superblock, &layout).await?;
        let log = Log::create(journal, log_shape, instance.id)?;
        log.sync(|_| (), || ()).await?;
        let table = open::start(disks, log, settings, shape, instance)?;
        Self::of(table).await
    }

    /// Opens the table on `disks`, named in the order of its creation, with its log. Changes that had not reached a drive are
    /// taken from the log. `settings` says how the table is used; values that were chosen at its creation are kept.
    ///
    /// # Errors
    /// If the disks hold no table, if a drive or the log is missing, belongs to another structure or is shorter than it was, if a
    /// setting is out of range, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let found = superblock::read(&disks, SliceKind::Hash).await?;
        let settings = created_settings(&found, settings)?;
        let shape = created_shape(&found)?;
        let log_shape = open::log_shape(&shape, &settings, disks.len());
        let instance = Instance::of(&found);
        let log = Log::open(journal, log_shape, instance.id)?;
        superblock::check_space(&disks, &found, &settings.layout(), &log.pointers)?;
        let table = open::start(disks, log, &settings, shape, instance)?;
        Self::of(table).await
    }

    async fn of(table: HashTable) -> Result<Self, SliceError> {
        let opened = Self(Arc::new(table));
        // Makes the changes found in the log durable. The first new change overwrites the count that covers them.
        opened.sync().await?;
        flush::all_flushed(&opened.0).await?;
        Ok(opened)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page ([`SliceError::Damaged`]).
    pub async fn get(&self, key: u64) -> Result<Option<u64>, SliceError> {
        lookup::get(&self.0, key).await
    }

    /// Sets the value of a key. Waits while all tables that the partition may have are full.
    ///
    /// # Errors
    /// The error of the last flush, if there is no space because flushes fail. They are tried again until they succeed.
    pub async fn insert(&self, key: u64, value: u64) -> Result<(), SliceError> {
        self.change(key, Change::Value(value)).await
    }

    /// Removes a key, which may be absent.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn delete(&self, key: u64) -> Result<(), SliceError> {
        self.change(key, Change::Delete).await
    }

    /// Makes all changes that have returned durable.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn sync(&self) -> Result<(), SliceError> {
        self.sync_with(|| ()).await
    }

    /// Syncs as [`sync`](Self::sync) does, together with the words that `store` stores in the rest of the log.
    pub(crate) async fn sync_with(&self, store: impl FnOnce()) -> Result<(), SliceError> {
        let inner = &self.0;
        let parts = |each: &mut dyn FnMut(&mut Part)| {
            for partition in &inner.partitions {
                let mut state = partition.state.lock();
                each(&mut state.active.part);
                for frozen in state.frozen.oldest_first_mut() {
                    each(&mut frozen.memory.part);
                }
            }
        };
        inner.log.sync(parts, store).await
    }

    /// Flushes every table that has changes.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn flush(&self) -> Result<(), SliceError> {
        flush::flush_all(&self.0, |state| state.active.table.len() > 0).await
    }

    async fn change(&self, key: u64, change: Change) -> Result<(), SliceError> {
        let inner = &self.0;
        let attempt =
            |state: &mut State<HashTable>| inner.try_change(&mut state.active, key, change);
        let is_full = |state: &mut State<HashTable>| inner.is_full_for(&mut state.active, key);
        flush::change(inner, inner.keys.partition(key), attempt, is_full).await
    }

    /// Waits for the flushes under way, and makes all changes durable. The drives may be opened again when it has returned and
    /// every clone is gone. A table that is merely dropped may still be flushing.
    ///
    /// # Errors
    /// The error of a flush or of the log. Changes in the log are not lost.
    pub async fn close(self) -> Result<(), SliceError> {
        flush::close(&self.0).await?;
        self.sync().await
    }

    /// Returns the counts since the table was opened.
    pub fn stats(&self) -> HashStats {
        let drives = self.0.drives.counts();
        HashStats {
            page_reads: drives.page_reads,
            bytes_read: drives.bytes_read,
            bytes_written: drives.bytes_written,
            pages_lost: drives.pages_lost,
            ..self.0.counts.sums()
        }
    }

    /// Returns the drive of a key, and the channel of its first page, counted from the channel of the slicetable's first page.
    /// With spread slices the channel is the same on every drive.
    pub fn place_of(&self, key: u64) -> (usize, u32) {
        let number = self.0.keys.partition(key);
        let page = self.0.keys.slots(key).first / self.0.shape.page.slots as u32;
        let drive = self
            .0
            .drives_of(number)
            .next()
            .expect("slicetables lie on drives");
        (drive.number, drive.shape.channel(page))
    }

    /// Returns the number of slicetables of each partition: one, or one on each drive if slices are spread.
    pub fn slicetables_of_a_partition(&self) -> usize {
        self.0.incarnations.slicetables as usize
    }

    /// Returns the shape that follows from the settings of the table's creation.
    pub fn shape(&self) -> &HashShape {
        &self.0.shape
    }

    /// Returns the memory of the table now.
    pub fn memory(&self) -> HashMemory {
        self.0.memory()
    }

    /// Returns the drives of the table, for reads and writes outside its slicetables.
    pub(crate) fn drives(&self) -> &[Drive] {
        &self.0.drives
    }

    /// Returns the words of the log that the table uses.
    pub(crate) fn words(&self) -> usize {
        self.0.log.words()
    }
}

/// Returns the values of many keys, in their order. All look-ups are under way at once, so that the scheduler has a choice.
pub async fn get_all(
    table: &SliceHash,
    keys: impl IntoIterator<Item = u64>,
) -> Vec<Result<Option<u64>, SliceError>> {
    join_all(keys.into_iter().map(|key| table.get(key))).await
}
