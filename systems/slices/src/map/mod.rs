//! SliceMap: a map of strings of bytes. Values lie in a log of records on the drives, and a SliceHash has their addresses
//! (section 8, "Large key-value pairs").
//!
//! ```text
//!   insert ──▶ segment in memory, words of the log ──full or sync──▶ ring of records on the drives ──then──▶ SliceHash: hash ─▶ address
//!   look up ─▶ newest record in memory ──not there──▶ SliceHash: a page ──address──▶ record: its pages, its whole key
//! ```
//!
//! An address is in the table when its record is on a drive, durably, and never before; so neither the table nor its log has to
//! wait for records, and a crash leaves no address without its record. All changes are records, deletes, too: a start reads those
//! from the last durable end on, and changes the table by them again, in order.
//!
//! A record says where it lies, and has its whole key: what has been written over, or belongs to another key of the same hash, is not
//! there.

mod log;
mod recover;
mod ring;
mod settings;
mod state;
mod stats;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Disk, Journal};
use format::slices::SliceKind;
use format::slices_map::{MOST_KEY_BYTES, Record, RecordAddress};
use futures_util::future::join_all;
use parking_lot::Mutex;
use runtime::sync::Notify;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::SliceError;
use crate::hash::SliceHash;
use crate::layout::{drive_bytes, refuse_parts, refuse_twice};
use crate::superblock::{self, Instance};
use log::RecordLog;
use ring::RecordRing;
use state::{Append, Segment, State};
use stats::Counts;

pub use settings::{MapSettings, MapShape, RecordShape};
pub use stats::{MapMemory, MapStats};

/// A map of keys and values of any bytes that lies on drives. Clones are the same map.
///
/// All operations may be called from every thread that a runtime drives, at once. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process; a power cut keeps what was there at the last
/// [`sync`](Self::sync). The oldest records are written over, and the oldest entries of the table go.
///
/// Two keys whose 8 bytes of hash are the same displace each other; neither is ever answered for the other.
#[derive(Clone)]
pub struct SliceMap(Arc<Inner>);

struct Inner {
    table: SliceHash,
    ring: RecordRing,
    log: RecordLog,
    records: RecordShape,
    instance: Instance,
    /// Which start of the map this is.
    epoch: u32,
    /// Records in front of it may have been written over in part, when the start before ended.
    torn: u64,
    state: Mutex<State>,
    /// Something has been written, or that has failed.
    progress: Notify,
    counts: Counts,
}

/// What is where the table says that a key's record is.
enum Looked {
    /// The record: what it says of the key.
    At(Option<Vec<u8>>),
    /// The record had been written over when the look-up began: the key is gone.
    Gone,
    /// The record has been written over since the look-up began: the key may have been changed before, so it looks again.
    WentMeanwhile,
}

impl SliceMap {
    /// Words of the log of a map with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`MapSettings::shape`].
    pub fn log_words(settings: &MapSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        let records = settings.shape(drive_bytes)?.records;
        let of_table = SliceHash::log_words(&settings.table, &records.rest(drive_bytes))?;
        Ok(log::first_word(of_table) + log::words(records.segment_bytes))
    }

    /// [`log_words`](Self::log_words) for these drives.
    ///
    /// # Errors
    /// As [`MapSettings::shape`].
    pub fn log_words_for(
        settings: &MapSettings,
        disks: &[Arc<dyn Disk>],
    ) -> Result<usize, SliceError> {
        Self::log_words(settings, &drive_bytes(disks))
    }

    /// Makes an empty map on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that cannot be, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &MapSettings,
    ) -> Result<Self, SliceError> {
        let sizes = drive_bytes(&disks);
        let shape = settings.shape(&sizes)?;
        refuse_parts(&disks, &*journal, Self::log_words(settings, &sizes)?)?;
        let records = shape.records;
        let instance = Instance::random();
        settings::write_superblocks(&disks, settings, &shape, instance).await?;
        let parts = records.table_parts(&disks)?;
        let table = SliceHash::create(parts, Arc::clone(&journal), &settings.table).await?;
        let first = log::first_word(table.words());
        let log = RecordLog::create(journal, first, records.segment_bytes, instance.id)?;
        let map = Self::with(disks, (table, log), records, instance, (1, 0));
        map.0.sync_table().await?;
        Ok(map)
    }

    /// Opens the map on `disks`, named in the order in which they were when it was created, with its log. What had not reached
    /// a drive is taken from the log. `settings` says how it is used; what was chosen when it was created is kept.
    ///
    /// # Errors
    /// When it is no such map, or a drive or the log is missing, another's, or shorter than it was; settings that cannot be; and
    /// errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &MapSettings,
    ) -> Result<Self, SliceError> {
        refuse_twice(&disks)?;
        let found = superblock::read(&disks, SliceKind::Map).await?;
        let (settings, records) = settings::created(&found, settings)?;
        let instance = Instance::of(&found);
        let parts = records.table_parts(&disks)?;
        let table = SliceHash::open(parts, Arc::clone(&journal), &settings.table).await?;
        let first = log::first_word(table.words());
        let (log, epoch, end) =
            RecordLog::open(journal, first, records.segment_bytes, instance.id)?;
        let left = Self::with(disks, (table, log), records, instance, (epoch, end));
        left.recovered().await
    }

    /// A map whose records end at `end`, in a start that is number `epoch`.
    fn with(
        disks: Vec<Arc<dyn Disk>>,
        (table, log): (SliceHash, RecordLog),
        records: RecordShape,
        instance: Instance,
        (epoch, end): (u32, u64),
    ) -> Self {
        let ring = RecordRing::new(disks, &records);
        let state = State::new(ring.segment_of(end), ring.segment_bytes(), end);
        Self(Arc::new(Inner {
            table,
            ring,
            log,
            records,
            instance,
            epoch,
            torn: 0,
            state: Mutex::new(state),
            progress: Notify::new(),
            counts: Counts::default(),
        }))
    }

    /// The value of a key. Reads a page of the table, or two, and the pages of the record.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page or record ([`SliceError::Damaged`]).
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SliceError> {
        self.0.get(key).await
    }

    /// The values of many keys, in their order: all look-ups are under way at once.
    pub async fn get_all(
        &self,
        keys: impl IntoIterator<Item = &[u8]>,
    ) -> Vec<Result<Option<Vec<u8>>, SliceError>> {
        join_all(keys.into_iter().map(|key| self.get(key))).await
    }

    /// Sets the value of a key. Waits where so many segments of records are in memory that one has to be written first.
    ///
    /// # Errors
    /// A key or a value that is too long. Where there is no space because writes fail: why. They are tried again until they
    /// succeed.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), SliceError> {
        let change = self.change(key, Some(value)).await;
        self.0.counts.inserted.fetch_add(1, Ordering::Relaxed);
        change
    }

    /// Removes a key, which need not be there.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn delete(&self, key: &[u8]) -> Result<(), SliceError> {
        let change = self.change(key, None).await;
        self.0.counts.deleted.fetch_add(1, Ordering::Relaxed);
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
                    self.write_what_waits();
                    return Ok(());
                }
                Append::Full => self.write_what_waits(),
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
            self.write_what_waits();
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

    /// Writes what is in memory, makes all changes durable, and waits for the flushes under way. The drives may be opened again
    /// when it has returned and every clone is gone.
    ///
    /// # Errors
    /// Why a write, a flush or the log has failed. What the log has is not lost.
    pub async fn close(self) -> Result<(), SliceError> {
        self.sync().await?;
        self.0.table.clone().close().await
    }

    /// What it has done since it was opened.
    pub fn stats(&self) -> MapStats {
        self.0.counts.stats(self.0.table.stats())
    }

    /// What follows from the settings that the map was created with.
    pub fn shape(&self) -> MapShape {
        MapShape {
            table: *self.0.table.shape(),
            records: self.0.records,
        }
    }

    /// How many slicetables each partition of the table has.
    pub fn slicetables_of_a_partition(&self) -> usize {
        self.0.table.slicetables_of_a_partition()
    }

    /// The memory it has now.
    pub fn memory(&self) -> MapMemory {
        let state = self.0.state.lock();
        MapMemory {
            table: self.0.table.memory(),
            segments: state.segments.iter().map(Segment::memory_bytes).sum(),
            // A byte of control for each.
            newest: (state.pending.capacity() * (size_of::<(u64, u64)>() + 1)) as u64,
        }
    }
}

impl Inner {
    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.instance.seed)
    }

    /// Adds a record, if there is space in memory.
    ///
    /// # Errors
    /// Where there is none, and there will be none as long as writes fail: why.
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
        self.counts.lookups.fetch_add(1, Ordering::Relaxed);
        let hash = self.hash(key);
        loop {
            let tail = {
                let state = self.state.lock();
                let newest = state.pending.get(&hash);
                let record = newest.and_then(|&at| state.record(self.instance.id, at));
                if let Some(record) = record {
                    self.counts.memory_hits.fetch_add(1, Ordering::Relaxed);
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
                    self.counts.overwritten.fetch_add(1, Ordering::Relaxed);
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
        let Some(pages) = self.ring.read(self.table.drives(), address).await? else {
            return Ok(Looked::At(None));
        };
        self.counts.record_reads.fetch_add(1, Ordering::Relaxed);
        match Record::decode(self.instance.id, position, pages.record()) {
            Ok(record) => Ok(Looked::At(self.value_for(key, &record))),
            Err(source) => match has_gone() {
                // It may have been written over while it was read.
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

    /// What a record says of a key, whose hash is its key's.
    fn value_for(&self, key: &[u8], record: &Record<'_>) -> Option<Vec<u8>> {
        if record.key != key {
            self.counts.other_keys.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.counts
            .found
            .fetch_add(record.value.is_some().into(), Ordering::Relaxed);
        record.value.map(<[u8]>::to_vec)
    }

    /// An error of the table, with the byte of the drive that its part begins with.
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
