//! SliceMap: a map of strings of bytes. Values lie in a log of records on the drives, and a SliceHash has their addresses
//! (section 8, "Large key-value pairs").
//!
//! ```text
//!   insert ──▶ segment in memory, words of the log ──full or sync──▶ ring of records on the drives ──then──▶ SliceHash: hash ─▶ address
//!   look up ─▶ newest record in memory ──not there──▶ SliceHash: a page ──address──▶ record: its pages, its whole key
//! ```
//!
//! The table has an address only when its record is on a drive, durably. So neither the table nor its log waits for records, and
//! a crash leaves no address without its record. Every change is a record, including a delete. A start reads the records from the
//! last durable end on, and repeats their changes of the table, in order.
//!
//! A record says where it lies, and has its whole key. A look-up treats an overwritten record, or the record of another key with
//! the same hash, as absent.

mod log;
mod records;
mod recover;
mod ring;
mod settings;
mod state;
mod stats;

use std::sync::Arc;

use crate::encoding::map::MOST_KEY_BYTES;
use crate::encoding::table::SliceKind;
use device::{Disk, Journal};
use futures_util::future::join_all;
use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::counts::Counts;
use crate::error::SliceError;
use crate::hash::SliceHash;
use crate::layout::drive_bytes;
use crate::superblock::{self, Instance};
use log::{LogHead, RecordLog};
use records::Records;
use ring::RecordRing;
use state::{Append, Segment, State};

pub use settings::{MapSettings, MapShape, RecordShape};
pub use stats::{MapMemory, MapStats};

/// A map of keys and values of any bytes that lies on drives. Clones are the same map.
///
/// All operations may be called at once, from every thread that a runtime drives. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process. A power cut keeps the changes before the last
/// [`sync`](Self::sync). A full map overwrites its oldest records, and its table drops the oldest entries.
///
/// Two keys with the same 8 bytes of hash displace each other. Neither key gets the value of the other.
#[derive(Clone)]
pub struct SliceMap(Arc<Records>);

impl SliceMap {
    /// Returns the words of the log of a map with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`MapSettings::shape`].
    pub fn log_words(settings: &MapSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        let records = settings.shape(drive_bytes)?.records;
        let of_table = SliceHash::log_words(&settings.table, &records.rest(drive_bytes))?;
        Ok(log::first_word(of_table) + log::words_of(records.segment_bytes))
    }

    /// Returns [`log_words`](Self::log_words) for these drives.
    ///
    /// # Errors
    /// As [`MapSettings::shape`].
    pub fn log_words_for(
        settings: &MapSettings,
        disks: &[Arc<dyn Disk>],
    ) -> Result<usize, SliceError> {
        Self::log_words(settings, &drive_bytes(disks))
    }

    /// Creates an empty map on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that are out of range, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &MapSettings,
    ) -> Result<Self, SliceError> {
        let sizes = drive_bytes(&disks);
        let shape = settings.shape(&sizes)?;
        let records = shape.records;
        let instance = Instance::random();
        let superblock = settings::superblock_of(settings, &shape, instance);
        let (words, layout) = (Self::log_words(settings, &sizes)?, settings.table.layout());
        superblock::create(&disks, &*journal, words, superblock, &layout).await?;
        let parts = records.table_parts(&disks)?;
        let table = SliceHash::create(parts, Arc::clone(&journal), &settings.table).await?;
        let first = log::first_word(table.words());
        let log = RecordLog::create(journal, first, records.segment_bytes, instance.id)?;
        let map = with(disks, table, log, records, instance, LogHead::NEW);
        map.sync_table().await?;
        Ok(Self(Arc::new(map)))
    }

    /// Opens the map on `disks`, named in the order of its creation, with its log. Records that had not reached a drive are taken
    /// from the log. `settings` says how the map is used; values that were chosen at its creation are kept.
    ///
    /// # Errors
    /// If the disks hold no map, if a drive or the log is missing, belongs to another structure or is shorter than it was, if a
    /// setting is out of range, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &MapSettings,
    ) -> Result<Self, SliceError> {
        let found = superblock::read(&disks, SliceKind::Map).await?;
        let (settings, records) = settings::created(&found, settings)?;
        let instance = Instance::of(&found);
        let parts = records.table_parts(&disks)?;
        let table = SliceHash::open(parts, Arc::clone(&journal), &settings.table).await?;
        let first = log::first_word(table.words());
        let (log, head) = RecordLog::open(journal, first, records.segment_bytes, instance.id)?;
        let left = with(disks, table, log, records, instance, head);
        let map = recover::recovered(left).await?;
        Ok(Self(Arc::new(map)))
    }

    /// Returns the value of a key. Reads one or two pages of the table, and the pages of the record.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page or record ([`SliceError::Damaged`]).
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SliceError> {
        self.0.get(key).await
    }

    /// Returns the values of many keys, in their order. All look-ups are under way at once.
    pub async fn get_all(
        &self,
        keys: impl IntoIterator<Item = &[u8]>,
    ) -> Vec<Result<Option<Vec<u8>>, SliceError>> {
        join_all(keys.into_iter().map(|key| self.get(key))).await
    }

    /// Sets the value of a key. Waits while all segments that may be in memory are full, until one has been written.
    ///
    /// # Errors
    /// [`SliceError::LongRecord`] for a key or a value that is too long. The error of the last write, if there is no space
    /// because writes fail. They are tried again until they succeed.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), SliceError> {
        let change = self.change(key, Some(value)).await;
        self.0.counts.add(|counts| counts.inserted = 1);
        change
    }

    /// Removes a key, which may be absent.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn delete(&self, key: &[u8]) -> Result<(), SliceError> {
        let change = self.change(key, None).await;
        self.0.counts.add(|counts| counts.deleted = 1);
        change
    }

    async fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), SliceError> {
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        let most = self.0.shape.most_bytes();
        if bytes > most || key.len() > MOST_KEY_BYTES {
            return Err(SliceError::LongRecord { bytes, most });
        }
        loop {
            let progress = self.0.progress.listener();
            match self.0.try_append(key, value)? {
                Append::At(_) => return Ok(()),
                Append::AtNew(_) => {
                    self.0.write_what_waits();
                    return Ok(());
                }
                Append::Full => self.0.write_what_waits(),
            }
            progress.await;
        }
    }

    /// Makes all changes that have returned durable.
    ///
    /// # Errors
    /// Errors of the devices and the log.
    pub async fn sync(&self) -> Result<(), SliceError> {
        let wanted = {
            let mut state = self.0.state.lock();
            state.wanted = state.wanted.max(state.end());
            state.wanted
        };
        loop {
            let progress = self.0.progress.listener();
            self.0.write_what_waits();
            {
                let state = self.0.state.lock();
                if state.stored >= wanted {
                    break;
                }
                if let Some(error) = &state.failing {
                    return Err(error.clone());
                }
            }
            progress.await;
        }
        self.0.sync_table().await
    }

    /// Writes the records in memory, makes all changes durable, and waits for the flushes under way. The drives may be opened
    /// again when it has returned and every clone is gone.
    ///
    /// # Errors
    /// The error of a write, of a flush or of the log. Changes in the log are not lost.
    pub async fn close(self) -> Result<(), SliceError> {
        self.sync().await?;
        self.0.table.clone().close().await
    }

    /// Returns the counts since the map was opened.
    pub fn stats(&self) -> MapStats {
        MapStats {
            table: self.0.table.stats(),
            ..self.0.counts.sums()
        }
    }

    /// Returns the shape that follows from the settings of the map's creation.
    pub fn shape(&self) -> MapShape {
        MapShape {
            table: *self.0.table.shape(),
            records: self.0.shape,
        }
    }

    /// Returns the number of slicetables of each partition of the table.
    pub fn slicetables_of_a_partition(&self) -> usize {
        self.0.table.slicetables_of_a_partition()
    }

    /// Returns the memory of the map now.
    pub fn memory(&self) -> MapMemory {
        let state = self.0.state.lock();
        MapMemory {
            table: self.0.table.memory(),
            segments: state.segments.iter().map(Segment::memory_bytes).sum(),
            // Each key has a byte of control.
            newest: (state.pending.capacity() * (size_of::<(u64, u64)>() + 1)) as u64,
        }
    }
}

/// Returns the records of a map, which end where the head of its log says.
fn with(
    disks: Vec<Arc<dyn Disk>>,
    table: SliceHash,
    log: RecordLog,
    records: RecordShape,
    instance: Instance,
    head: LogHead,
) -> Records {
    let ring = RecordRing::new(disks, &records);
    let state = State::new(&ring, head.end, head.end);
    Records {
        table,
        ring,
        log,
        shape: records,
        instance,
        epoch: head.epoch,
        torn: 0,
        state: Mutex::new(state),
        progress: Notify::new(),
        counts: Counts::default(),
    }
}
