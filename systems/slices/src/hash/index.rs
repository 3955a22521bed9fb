//! [`SliceIndex`]: a SliceHash whose changes are not logged and do not wait. Its owner changes it under locks of its own, saves
//! the changes in memory, and puts them back at a start (the cache's placement `sliced`).
//!
//! [`SliceIndex::keep_up`] is the task that starts flushes, of the fullest partition first. The first flush of a partition comes
//! the earlier the lower its number. Otherwise all tables would be full at once, for ever.

use std::sync::Arc;

use device::{Disk, Journal};
use runtime::sync::Notify;

use super::hash_table::HashTable;
use super::{HashMemory, HashStats, SliceHash};
use crate::error::SliceError;
use crate::flush::{self, Flush as _, State};
use crate::settings::{HashSettings, HashShape};
use crate::table::{Change, Full};

/// The last change of a key that memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The key was set to this value.
    Value(u64),
    /// The key was removed, and no flush has erased its older values yet.
    Deleted,
}

/// The change that memory had of a key before the key changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The last change of the key that memory had.
    pub known: Known,
    /// Whether a flush has the change, and will report its value as [gone](SliceIndex::tell_of_gone).
    pub is_frozen: bool,
}

/// The changes of a partition in memory, the oldest table first.
pub type InMemory = Vec<TableInMemory>;

/// The changes of a partition that one flush writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInMemory {
    /// Number of the flush that writes them.
    pub generation: u32,
    /// Keys, each with its last change.
    pub changes: Vec<(u64, Known)>,
}

fn known(change: Change) -> Known {
    match change {
        Change::Value(value) => Known::Value(value),
        Change::Delete => Known::Deleted,
    }
}

/// A [`SliceHash`] on one drive whose changes are not logged and do not wait. Clones are the same index.
///
/// A crash loses the changes in memory. The owner of the index saves them ([`in_memory`](Self::in_memory)) and puts them back
/// ([`put_back`](Self::put_back)). Entries on the drive stay, and may be newer than the saved changes. [`keep_up`](Self::keep_up)
/// must run, or nothing is flushed. All other operations may be called at once, from every thread.
#[derive(Clone)]
pub struct SliceIndex(SliceHash);

impl SliceIndex {
    /// Returns `settings` as an index needs them: without a log of changes, and without spread slices.
    pub fn settings(settings: &HashSettings) -> HashSettings {
        HashSettings {
            log_changes: false,
            spread: false,
            ..settings.clone()
        }
    }

    /// Creates an empty index. The log has as many words as [`SliceHash::log_words`] says for its [`settings`](Self::settings).
    ///
    /// # Errors
    /// As [`SliceHash::create`].
    pub async fn create(
        disk: Arc<dyn Disk>,
        log: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let settings = Self::settings(settings);
        Ok(Self(SliceHash::create(vec![disk], log, &settings).await?))
    }

    /// Opens an existing index.
    ///
    /// # Errors
    /// As [`SliceHash::open`], and [`SliceError::Setting`] for a table with a log of changes.
    pub async fn open(
        disk: Arc<dyn Disk>,
        log: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let table = SliceHash::open(vec![disk], log, &Self::settings(settings)).await?;
        match table.0.log.has_changes() {
            true => Err(SliceError::Setting(
                "changes of this table are logged".to_owned(),
            )),
            false => Ok(Self(table)),
        }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`SliceHash::get`].
    pub async fn get(&self, key: u64) -> Result<Option<u64>, SliceError> {
        self.0.get(key).await
    }

    /// Makes the slicetables that flushes have written durable, with their pointers.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn sync(&self) -> Result<(), SliceError> {
        self.0.sync().await
    }

    /// Returns the counts since the index was opened.
    pub fn stats(&self) -> HashStats {
        self.0.stats()
    }

    /// Returns the shape that follows from the settings.
    pub fn shape(&self) -> &HashShape {
        self.0.shape()
    }

    /// Returns the memory of the index now.
    pub fn memory(&self) -> HashMemory {
        self.0.memory()
    }

    fn inner(&self) -> &Arc<HashTable> {
        &self.0.0
    }

    /// Returns the last change of a key that memory has; `None` if only the drive may have the key.
    pub fn known(&self, key: u64) -> Option<Known> {
        let state = self.state_of(key);
        state.known(key).map(known)
    }

    /// Returns whether the drive may have keys of the same partition, as far as memory knows.
    pub fn may_be_on_drive(&self, key: u64) -> bool {
        self.state_of(key)
            .slicetables
            .iter()
            .any(|slicetable| slicetable.is_some())
    }

    /// Sets the value of a key without waiting. Returns the change that memory had of the key.
    ///
    /// # Errors
    /// The change that memory has of the key, if the table is full. Nothing has changed.
    pub fn try_insert(&self, key: u64, value: u64) -> Result<Option<Before>, Option<Before>> {
        let inner = self.inner();
        let number = inner.keys.partition(key);
        let mut state = self.state_of(key);
        let before = change_before(&state, key);
        match state.active.table.insert(key, Change::Value(value)) {
            Ok(()) => {
                inner.levels.set(number, state.active.table.len() as u32);
                Ok(before)
            }
            Err(Full) => {
                inner.levels.refused(number);
                Err(before)
            }
        }
    }

    /// Removes a key without waiting. Returns the change that memory had of the key.
    pub fn bury(&self, key: u64) -> Option<Before> {
        let mut state = self.state_of(key);
        let before = change_before(&state, key);
        self.bury_in(&mut state, key);
        before
    }

    /// Removes a key as [`bury`](Self::bury) does, but waits for a flush if the table is full, so that no deleted key lies beside
    /// the table. For more keys than memory has space for.
    ///
    /// # Errors
    /// The error of the last flush, if there is no space because flushes fail. Nothing has changed.
    pub async fn remove(&self, key: u64) -> Result<Option<Before>, SliceError> {
        let inner = self.inner();
        let number = inner.keys.partition(key);
        let mut before = None;
        let attempt = |state: &mut State<HashTable>| {
            before = change_before(state, key);
            let has_changed = inner.try_change(&mut state.active, key, Change::Delete);
            inner.levels.set(number, state.active.table.len() as u32);
            has_changed
        };
        let is_full = |state: &mut State<HashTable>| inner.is_full_for(&mut state.active, key);
        flush::change(inner, number, attempt, is_full).await?;
        Ok(before)
    }

    /// Removes a key, or sets it to another value, if memory has `old` as its value. Returns whether it did. A key whose new
    /// value has no place stays as it is.
    pub fn replace_if(&self, key: u64, old: u64, new: Option<u64>) -> bool {
        let mut state = self.state_of(key);
        if state.known(key) != Some(Change::Value(old)) {
            return false;
        }
        match new {
            None => {
                self.bury_in(&mut state, key);
                true
            }
            Some(value) => {
                let has_changed = state.active.table.insert(key, Change::Value(value)).is_ok();
                let number = self.inner().keys.partition(key);
                self.inner()
                    .levels
                    .set(number, state.active.table.len() as u32);
                has_changed
            }
        }
    }

    fn bury_in(&self, state: &mut State<HashTable>, key: u64) {
        state.active.table.bury(key);
        let number = self.inner().keys.partition(key);
        self.inner()
            .levels
            .set(number, state.active.table.len() as u32);
    }

    fn state_of(&self, key: u64) -> parking_lot::MutexGuard<'_, State<HashTable>> {
        let number = self.inner().keys.partition(key);
        self.inner().partitions[number as usize].state.lock()
    }

    /// Returns whether callers that set values should wait: a table is nearly full, and flushes do not fail.
    pub fn is_behind(&self) -> bool {
        self.inner().levels.is_tight() && !flush::is_failing(&**self.inner(), 0)
    }

    /// Returns whether callers that delete should wait: a table has no place for a delete.
    pub fn is_full(&self) -> bool {
        self.inner().levels.is_full()
    }

    /// Returns the notification for callers that wait: [`is_behind`](Self::is_behind) or [`is_full`](Self::is_full) may no longer
    /// hold.
    pub fn caught_up(&self) -> &Notify {
        &self.inner().levels.caught_up
    }

    /// Sets the function that gets the values that flushes drop: of keys that have been set or removed since, and of the oldest
    /// incarnation. Called once.
    pub fn tell_of_gone(&self, told: impl Fn(&[u64]) + Send + Sync + 'static) {
        self.inner().levels.tell_of_gone(Box::new(told));
    }

    /// Starts flushes as tables become full, for ever.
    pub async fn keep_up(&self) {
        let inner = self.inner();
        loop {
            let due = inner.levels.due.listener();
            let Some(number) = self.fullest() else {
                due.await;
                continue;
            };
            let is_due = |state: &mut State<HashTable>| {
                inner.levels.is_due(number, state.active.table.len())
            };
            flush::begin(inner, number, is_due).await;
        }
    }

    /// Returns the partition to flush next.
    fn fullest(&self) -> Option<u32> {
        let inner = self.inner();
        (0..inner.shape.partitions)
            .filter_map(|number| {
                let state = inner.partitions[number as usize].state.lock();
                let has_space = state.frozen.len() < inner.most_frozen();
                let can_be = has_space && inner.levels.is_due(number, state.active.table.len());
                can_be.then(|| (state.active.table.len(), number))
            })
            .max()
            .map(|(_, number)| number)
    }

    /// Returns the changes of a partition in memory, which a start would miss without them.
    pub fn in_memory(&self, partition: u32) -> InMemory {
        let state = self.inner().partitions[partition as usize].state.lock();
        let copy = |table: &crate::table::Table, generation| TableInMemory {
            generation,
            changes: table
                .changes()
                .map(|(key, change)| (key, known(change)))
                .collect(),
        };
        let frozen = state.frozen.oldest_first();
        let frozen = frozen.map(|frozen| copy(&frozen.memory.table, frozen.generation));
        let active = copy(&state.active.table, state.generation);
        frozen.chain([active]).collect()
    }

    /// Puts back the changes of a partition that [`in_memory`](Self::in_memory) has returned, unless a slicetable has them. Must
    /// be called before anything else is changed. May flush, but flushes no table before all of its changes are there, since the
    /// next start goes by the table's generation alone. A value that finds no place is removed.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub async fn put_back(&self, partition: u32, tables: InMemory) -> Result<(), SliceError> {
        let inner = self.inner();
        let written = {
            let state = inner.partitions[partition as usize].state.lock();
            let slicetables = state.slicetables.iter().flatten();
            slicetables.map(|region| region.generation).max()
        };
        for TableInMemory {
            generation,
            changes,
        } in tables
        {
            if written >= Some(generation) {
                continue;
            }
            for (key, change) in changes {
                let change = match change {
                    Known::Value(value) => Change::Value(value),
                    Known::Deleted => Change::Delete,
                };
                let attempt = |state: &mut State<HashTable>| {
                    if state.generation < generation {
                        return inner.try_change(&mut state.active, key, change);
                    }
                    if state.active.table.put_back(key, change).is_err() {
                        inner.counts.add(|counts| counts.evicted = 1);
                    }
                    true
                };
                let is_full =
                    |state: &mut State<HashTable>| inner.is_full_for(&mut state.active, key);
                flush::change(inner, partition, attempt, is_full).await?;
            }
        }
        let state = inner.partitions[partition as usize].state.lock();
        inner.levels.set(partition, state.active.table.len() as u32);
        Ok(())
    }
}

/// Returns the change that memory has of a key that is about to change.
fn change_before(state: &State<HashTable>, key: u64) -> Option<Before> {
    let change = state.known(key)?;
    Some(Before {
        known: known(change),
        is_frozen: state.active.table.get(key).is_none(),
    })
}
