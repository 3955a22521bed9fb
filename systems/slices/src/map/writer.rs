//! The task that writes records: first durably to the drive, then their addresses to the table.

use std::collections::HashMap;
use std::sync::Arc;

use crate::encoding::map::{Record, RecordAddress};
use futures_util::future::join_all;

use super::Map;
use super::state::Unstored;
use crate::error::SliceError;
use crate::retry::{self, Wrote};

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

impl Map {
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
