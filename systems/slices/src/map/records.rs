//! Records: appends, look-ups, and the task that writes them, first durably to the drive, then their addresses to the table.

use std::collections::HashMap;
use std::sync::Arc;

use crate::encoding::map::{Record, RecordAddress};
use futures_util::future::join_all;
use parking_lot::Mutex;
use runtime::sync::Notify;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::log::RecordLog;
use super::ring::RecordRing;
use super::settings::RecordShape;
use super::state::{Append, State, Unstored};
use super::stats::MapStats;
use crate::counts::Counts;
use crate::error::SliceError;
use crate::hash::SliceHash;
use crate::retry::{self, Wrote};
use crate::superblock::Instance;

/// Maximum segments that are written beyond the durable end. A start reads as many.
const MOST_UNSYNCED: u64 = 64;
/// Entries that go to the table at once.
pub(super) const ENTRIES_AT_ONCE: usize = 64;

/// The change of the table by a record.
pub(super) struct TableChange {
    /// The hash of the record's key.
    pub(super) hash: u64,
    pub(super) address: RecordAddress,
    pub(super) is_delete: bool,
}

/// The records of a map, and the table of their addresses. The table has an address only when its record is durably on a drive.
/// All clones of a map share it.
pub(super) struct Records {
    pub(super) table: SliceHash,
    pub(super) ring: RecordRing,
    pub(super) log: RecordLog,
    pub(super) shape: RecordShape,
    pub(super) instance: Instance,
    /// Number of this start of the map.
    pub(super) epoch: u32,
    /// Position in front of which records may have been partly overwritten when the previous process ended.
    pub(super) torn: u64,
    pub(super) state: Mutex<State>,
    /// Notified when a write has succeeded or failed.
    pub(super) progress: Notify,
    pub(super) counts: Counts<MapStats>,
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

impl Records {
    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.instance.seed)
    }

    /// Appends a record, if there is space in memory.
    ///
    /// # Errors
    /// The error of the last write, if there is no space because writes fail.
    pub(super) fn try_append(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Append, SliceError> {
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

    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SliceError> {
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
                offset: offset + self.shape.table_start,
                source,
            },
            other => other,
        }
    }

    /// Spawns a task that writes, if there is something to write and no task runs.
    pub(super) fn write_what_waits(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.is_writing || !state.has_unstored() {
                return;
            }
            state.is_writing = true;
        }
        retry::spawn(self, Self::write, Self::end_writing);
    }

    /// Writes the next records. A failed write is tried again when the task has paused.
    async fn write(&self) -> Wrote {
        let outcome = self.write_next().await;
        if matches!(outcome, Ok(false)) {
            self.end_writing();
            return Wrote::All;
        }
        let error = outcome.err();
        let has_failed = error.is_some();
        self.state.lock().failing = error;
        self.progress.notify_all();
        match has_failed {
            true => Wrote::None,
            false => Wrote::Some,
        }
    }

    /// Notes that no task writes. A failed write is not tried again until a change or a sync spawns another task.
    fn end_writing(&self) {
        {
            let mut state = self.state.lock();
            state.is_writing = false;
            state.failing = None;
        }
        self.progress.notify_all();
    }

    /// Writes the next records. Returns whether there were any.
    async fn write_next(&self) -> Result<bool, SliceError> {
        let next = self.state.lock().next_unstored();
        let Some(unstored) = next else {
            return Ok(false);
        };
        // The durable end must lie in a segment that has not been overwritten.
        while unstored.segment >= self.first_to_replay() + self.most_unsynced() {
            self.sync_table().await?;
        }
        let changed = self.store(&unstored).await?;
        let mut state = self.state.lock();
        let stored = changed
            .iter()
            .map(|change| (change.hash, change.address.position));
        state.store(&unstored, stored);
        Ok(true)
    }

    /// Writes records to their drive and, when they are durable, their addresses to the table: of each key only the newest.
    /// Returns the changes of the table.
    async fn store(&self, unstored: &Unstored) -> Result<Vec<TableChange>, SliceError> {
        self.write_pages(unstored).await?;
        let changes = self.changes_of(unstored);
        for some in changes.chunks(ENTRIES_AT_ONCE) {
            self.change_table(some).await?;
        }
        Ok(changes)
    }

    /// Writes records to their drive, durably.
    pub(super) async fn write_pages(&self, unstored: &Unstored) -> Result<(), SliceError> {
        let Some(pages) = &unstored.pages else {
            return Ok(());
        };
        let (segment, from) = (unstored.segment, unstored.range.start);
        let drives = self.table.drives();
        self.ring.write(drives, segment, from, pages).await?;
        let bytes = pages.len() as u64;
        self.counts.add(|counts| counts.record_bytes = bytes);
        Ok(())
    }

    /// Returns the changes of the table by records, in their order: of each key only the newest.
    pub(super) fn changes_of(&self, unstored: &Unstored) -> Vec<TableChange> {
        let Some(pages) = &unstored.pages else {
            return Vec::new();
        };
        let mut newest = HashMap::new();
        for &start in &unstored.starts {
            let first = self.ring.start_of(unstored.segment);
            let position = first + (unstored.range.start + start) as u64;
            let record = Record::decode(self.instance.id, position, &pages[start..]);
            let record = record.expect("a record in memory stays as it was put there");
            let hash = self.hash(record.key);
            let change = TableChange {
                hash,
                address: RecordAddress {
                    position,
                    bytes: record.len(),
                },
                is_delete: record.value.is_none(),
            };
            newest.insert(hash, change);
        }
        let mut newest: Vec<_> = newest.into_values().collect();
        newest.sort_unstable_by_key(|change| change.address.position);
        newest
    }

    /// Makes some changes of the table at once.
    pub(super) async fn change_table(&self, changes: &[TableChange]) -> Result<(), SliceError> {
        let changes = changes.iter().map(async |change| match change.is_delete {
            false => {
                let word = change.address.encode();
                self.table.insert(change.hash, word).await
            }
            true => self.table.delete(change.hash).await,
        });
        join_all(changes).await.into_iter().collect()
    }

    /// Makes the table durable, with the end of the records that an earlier call has made durable.
    pub(super) async fn sync_table(&self) -> Result<(), SliceError> {
        let stored = self.state.lock().stored;
        let mut end = 0;
        // Stored again, since a failed sync may have lost them.
        let store = || {
            end = self.state.lock().synced;
            self.log.store_end(end);
            self.log.store_epoch(self.epoch);
        };
        self.table.sync_with(store).await?;
        let mut state = self.state.lock();
        state.durable_end = state.durable_end.max(end);
        state.synced = state.synced.max(stored);
        self.log.store_end(state.synced);
        Ok(())
    }

    /// Returns the first segment that a start reads after a power cut.
    fn first_to_replay(&self) -> u64 {
        self.ring.segment_of(self.state.lock().durable_end).0
    }

    /// Returns the maximum number of segments beyond the durable end.
    pub(super) fn most_unsynced(&self) -> u64 {
        MOST_UNSYNCED.min(self.ring.all_segments() / 2)
    }
}
