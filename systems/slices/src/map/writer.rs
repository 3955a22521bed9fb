//! The task that writes records: first to the drive, durably, then their addresses to the table.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use format::slices_map::{Record, RecordAddress};
use futures_util::future::join_all;

use super::state::Unstored;
use super::{Inner, SliceMap};
use crate::error::SliceError;

/// After how long a failed write is tried again: twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Segments that are written beyond the durable end, at most: a start reads as many.
const MOST_UNSYNCED: u64 = 64;
/// Entries that go to the table at once.
pub(super) const ENTRIES_AT_ONCE: usize = 64;

/// What a record changes in the table.
pub(super) struct TableChange {
    /// The hash of the record's key.
    pub(super) hash: u64,
    pub(super) address: RecordAddress,
    pub(super) is_delete: bool,
}

impl SliceMap {
    /// Sees to it that there is a task that writes, where there is something to write.
    pub(super) fn write_what_waits(&self) {
        {
            let mut state = self.0.state.lock();
            if state.is_writing || !state.has_unstored() {
                return;
            }
            state.is_writing = true;
        }
        runtime::spawn_detached(write(Writing(Arc::downgrade(&self.0))));
    }
}

/// The task that writes. Where its runtime ends before it has, who waits next begins another.
struct Writing(Weak<Inner>);

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            let mut state = inner.state.lock();
            state.is_writing = false;
            // Nobody tries again what has failed, until a change or a sync begins another.
            state.failing = None;
            drop(state);
            inner.progress.notify_all();
        }
    }
}

/// Writes what waits, again and again until it succeeds or the map is no longer used.
async fn write(task: Writing) {
    let mut pause = FIRST_RETRY;
    loop {
        let Some(inner) = task.0.upgrade() else {
            return;
        };
        let outcome = inner.write_next().await;
        let has_more = matches!(outcome, Ok(true));
        let error = outcome.err();
        let has_failed = error.is_some();
        inner.state.lock().failing = error;
        inner.progress.notify_all();
        drop(inner);
        if has_failed {
            runtime::sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
        } else if has_more {
            pause = FIRST_RETRY;
        } else {
            return;
        }
    }
}

impl Inner {
    /// Writes what is next: whether there was something.
    async fn write_next(&self) -> Result<bool, SliceError> {
        let next = self.state.lock().next_unstored();
        let Some(unstored) = next else {
            return Ok(false);
        };
        // The end that is durable has to lie in what is not written over yet.
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

    /// Writes records to their drive, and when they are durable their addresses to the table: the newest of each key that is among
    /// them. These changes.
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
        self.counts.record_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// What records change in the table, in their order: the newest of each key that is among them.
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

    /// Changes the table, by some at once.
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

    /// Makes durable what the table has, and the end of what had been durable before.
    pub(super) async fn sync_table(&self) -> Result<(), SliceError> {
        let stored = self.state.lock().stored;
        let mut end = 0;
        // Again, where a sync that has failed may have lost them.
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

    /// The first segment that a start reads after a power cut.
    fn first_to_replay(&self) -> u64 {
        self.ring.segment_of(self.state.lock().durable_end).0
    }

    /// Segments behind the durable end, at most.
    pub(super) fn most_unsynced(&self) -> u64 {
        MOST_UNSYNCED.min(self.ring.all_segments() / 2)
    }
}
