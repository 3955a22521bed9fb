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
mod recover;
mod ring;
mod settings;
mod state;
mod stats;
mod writer;

use std::sync::Arc;

use crate::encoding::map::{MOST_KEY_BYTES, Record, RecordAddress};
use crate::encoding::table::SliceKind;
use device::{Disk, Journal};
use futures_util::future::join_all;
use parking_lot::Mutex;
use runtime::sync::Notify;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::counts::Counts;
use crate::error::SliceError;
use crate::hash::SliceHash;
use crate::layout::drive_bytes;
use crate::superblock::{self, Instance};
use log::{LogHead, RecordLog};
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
pub struct SliceMap(Arc<Map>);

struct Map {
    table: SliceHash,
    ring: RecordRing,
    log: RecordLog,
    records: RecordShape,
    instance: Instance,
    /// Number of this start of the map.
    epoch: u32,
    /// Position in front of which records may have been partly overwritten when the previous process ended.
    torn: u64,
    state: Mutex<State>,
    /// Notified when a write has succeeded or failed.
    progress: Notify,
    counts: Counts<MapStats>,
}

/// The result of following the address that the table has for a key.
enum Looked {
    /// The value that the record has for the key, if any.
    At(Option<Vec<u8>>),
    /// The record had been overwritten when the look-up began: the key is gone.
    Gone,
    /// The record has been overwritten since the look-up began. The key may have been changed before, so the look-up starts
    /// again.
    WentMeanwhile,
}

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
        let map = Self::with(disks, table, log, records, instance, LogHead::NEW);
        map.0.sync_table().await?;
        Ok(map)
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
        let left = Self::with(disks, table, log, records, instance, head);
        left.recovered().await
    }

    /// Returns a map whose records end where the head of its log says.
    fn with(
        disks: Vec<Arc<dyn Disk>>,
        table: SliceHash,
        log: RecordLog,
        records: RecordShape,
        instance: Instance,
        head: LogHead,
    ) -> Self {
        let ring = RecordRing::new(disks, &records);
        let state = State::new(&ring, head.end, head.end);
        Self(Arc::new(Map {
            table,
            ring,
            log,
            records,
            instance,
            epoch: head.epoch,
            torn: 0,
            state: Mutex::new(state),
            progress: Notify::new(),
            counts: Counts::default(),
        }))
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
        let most = self.0.records.most_bytes();
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
            records: self.0.records,
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

impl Map {
    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.instance.seed)
    }

    /// Appends a record, if there is space in memory.
    ///
    /// # Errors
    /// The error of the last write, if there is no space because writes fail.
    fn try_append(&self, key: &[u8], value: Option<&[u8]>) -> Result<Append, SliceError> {
        let record = Record {
            epoch: self.epoch,
            key,
            value,
        };
        let mut state = self.state.lock();
        let append = state.place(record.len());
        let address = match &append {
            Append::At(address) | Append::AtNew(address) => *address,
            Append::Full => {
                return match &state.failing {
                    Some(error) => Err(error.clone()),
                    None => Ok(append),
                };
            }
        };
        let (segment, within) = self.ring.segment_of(address.position);
        let open = state.open();
        let bytes = &mut open.bytes[within..within + address.bytes];
        record.encode(self.instance.id, address.position, bytes);
        self.log.append(segment, within, bytes);
        open.len = within + address.bytes;
        open.starts.push_back(within);
        state.pending.insert(self.hash(key), address.position);
        Ok(append)
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SliceError> {
        self.counts.add(|counts| counts.lookups = 1);
        let hash = self.hash(key);
        loop {
            let tail = {
                let state = self.state.lock();
                let newest = state.pending.get(&hash);
                let record = newest.and_then(|&at| state.record(self.instance.id, at));
                if let Some(record) = record {
                    self.counts.add(|counts| counts.memory_hits = 1);
                    return Ok(self.value_for(key, &record));
                }
                self.ring.tail(state.newest_segment())
            };
            let found = self.table.get(hash).await;
            let Some(word) = found.map_err(|error| self.of_whole_drive(error))? else {
                return Ok(None);
            };
            match self.read(key, word, tail).await? {
                Looked::At(value) => return Ok(value),
                Looked::Gone => {
                    self.counts.add(|counts| counts.overwritten = 1);
                    return Ok(None);
                }
                Looked::WentMeanwhile => {}
            }
        }
    }

    /// Reads the record that the table names for a key's hash. Records in front of `tail` were gone when the look-up began.
    async fn read(&self, key: &[u8], word: u64, tail: u64) -> Result<Looked, SliceError> {
        let end = self.state.lock().end();
        let Some(address) = RecordAddress::decode(word, end) else {
            return Ok(Looked::Gone);
        };
        let position = address.position;
        let has_gone = || {
            let newest = self.state.lock().newest_segment();
            let has_gone = position < self.ring.tail(newest);
            has_gone.then_some(match position < tail {
                true => Looked::Gone,
                false => Looked::WentMeanwhile,
            })
        };
        if let Some(gone) = has_gone() {
            return Ok(gone);
        }
        let Some(pages) = self.ring.read_record(self.table.drives(), address).await? else {
            return Ok(Looked::At(None));
        };
        self.counts.add(|counts| counts.record_reads = 1);
        match Record::decode(self.instance.id, position, pages.record()) {
            Ok(record) => Ok(Looked::At(self.value_for(key, &record))),
            Err(source) => match has_gone() {
                // The record may have been overwritten while it was read.
                Some(gone) => Ok(gone),
                None if position < self.torn => Ok(Looked::Gone),
                None => Err(SliceError::Damaged {
                    drive: pages.drive,
                    offset: pages.offset,
                    source,
                }),
            },
        }
    }

    /// Returns the value that a record has for a key. The hash of the record's key is that of `key`.
    fn value_for(&self, key: &[u8], record: &Record<'_>) -> Option<Vec<u8>> {
        if record.key != key {
            self.counts.add(|counts| counts.other_keys = 1);
            return None;
        }
        self.counts
            .add(|counts| counts.found = record.value.is_some().into());
        record.value.map(<[u8]>::to_vec)
    }

    /// Returns an error of the table with an offset that counts from the start of the drive, not from the table's part.
    fn of_whole_drive(&self, error: SliceError) -> SliceError {
        match error {
            SliceError::Damaged {
                drive,
                offset,
                source,
            } => SliceError::Damaged {
                drive,
                offset: offset + self.records.table_start,
                source,
            },
            other => other,
        }
    }
}
