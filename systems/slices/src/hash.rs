//! SliceHash: a hash table of 8-byte keys and values (section 5).

mod batch;
mod created;
pub(crate) mod index;
mod levels;
mod lookup;
mod open;
mod stats;

use std::sync::Arc;

use futures_util::future::join_all;

use crate::counts::Counts;
use crate::drive::Drive;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{self, Flush, Flushes, Partition, State};
use crate::frozen::Written;
use crate::incarnations::Incarnations;
use crate::keys::Keys;
use crate::log::Log;
use crate::part::Part;
use crate::regions::Region;
use crate::settings::HashShape;
use crate::table::{Change, Table};
use batch::{Batch, Member};
use levels::Levels;

pub use stats::{HashMemory, HashStats};

/// A hash table of 8-byte keys and values that lies on drives. Clones are the same table.
///
/// All operations may be called at once, from every thread that a runtime drives. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process. A power cut keeps the changes before the last
/// [`sync`](Self::sync). A full partition drops its oldest incarnation.
#[derive(Clone)]
pub struct SliceHash(Arc<HashTable>);

struct HashTable {
    shape: HashShape,
    keys: Keys,
    drives: Drives,
    incarnations: Incarnations,
    partitions: Box<[Partition<HashTable>]>,
    filters: Filters,
    log: Log,
    flushes: Flushes,
    counts: Counts<HashStats>,
    levels: Levels,
}

/// The table of a partition that takes changes, with its part of the log.
struct Active {
    table: Table,
    part: Part,
}

/// A full table, with its part of the log.
struct FrozenTable {
    table: Arc<Table>,
    part: Part,
}

impl SliceHash {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page ([`SliceError::Damaged`]).
    pub async fn get(&self, key: u64) -> Result<Option<u64>, SliceError> {
        self.0.get(key).await
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

impl HashTable {
    fn new_table(&self) -> Table {
        let most = self.shape.table_entries as usize;
        Table::new(self.keys, self.shape.page.bucket_entries, most)
    }

    /// Returns the drives that have slicetables of a partition.
    fn drives_of(&self, number: u32) -> impl Iterator<Item = &Drive> + Clone {
        let (skip, take) = match self.incarnations.slicetables {
            1 => (number as usize % self.drives.len(), 1),
            all => (0, all as usize),
        };
        self.drives.iter().skip(skip).take(take)
    }

    /// Makes a change, if the table and its part of the log have space. Returns whether it has.
    fn try_change(&self, active: &mut Active, key: u64, change: Change) -> bool {
        let has_changed =
            self.log.has_space(&active.part) && active.table.insert(key, change).is_ok();
        if has_changed {
            self.log.append(&mut active.part, key, change);
        }
        has_changed
    }

    /// Returns whether the table, or its part of the log, has no space for `key`.
    fn is_full_for(&self, active: &mut Active, key: u64) -> bool {
        !self.log.has_space(&active.part) || !active.table.has_place(key)
    }

    /// Returns which slicetable of a partition its oldest frozen table goes to.
    fn oldest_frozen(&self, number: u32) -> usize {
        let state = self.partitions[number as usize].state.lock();
        let oldest = state.frozen.oldest_first().next();
        let oldest = oldest.expect("only what is frozen is flushed");
        ((oldest.generation - 1) % self.incarnations.slicetables) as usize
    }

    /// Returns the tables that a flush into slicetable `nth` of a partition writes: all frozen tables, up to the number of
    /// incarnations, or one table if the next goes to another drive. Also returns the newest generation, and the region of the
    /// slicetable.
    fn batch_of(&self, number: u32, nth: usize) -> (Batch<'_>, u32, Option<Arc<Region>>) {
        let drives = self.incarnations.slicetables;
        let most = if drives == 1 {
            self.shape.page.incarnations
        } else {
            1
        };
        let state = self.partitions[number as usize].state.lock();
        let tables = state.frozen.oldest_first().take(most);
        let (mut generation, mut members) = (0, Vec::new());
        for frozen in tables {
            generation = frozen.generation;
            members.push(Member {
                table: Arc::clone(&frozen.memory.table),
                incarnation: self.incarnations.of(generation),
            });
        }
        let batch = Batch::new(&self.shape.page, self.keys, drives > 1, members);
        (batch, generation, state.slicetables[nth].clone())
    }

    fn memory(&self) -> HashMemory {
        let table =
            Table::bytes_of(self.keys.slots as usize * self.shape.page.bucket_entries) as u64;
        let (mut tables, mut buried) = (0, 0);
        for partition in &self.partitions {
            let state = partition.state.lock();
            let frozen = state.frozen.oldest_first();
            let all = frozen.map(|frozen| &*frozen.memory.table);
            for each in all.chain([&state.active.table]) {
                tables += 1;
                buried += each.buried_bytes() as u64;
            }
        }
        let per_partition = size_of::<Partition<Self>>()
            + self.incarnations.slicetables as usize * size_of::<(Region, usize)>();
        HashMemory {
            tables: table * tables + buried,
            partitions: (self.partitions.len() * per_partition) as u64,
            filters: self.filters.memory_bytes(),
            pieces: self
                .drives
                .iter()
                .map(|drive| (2 * drive.shape.piece_bytes as u64).min(self.shape.region_bytes))
                .sum(),
        }
    }
}

impl Flush for HashTable {
    type Active = Active;
    type Frozen = FrozenTable;

    fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    fn drives(&self) -> &Drives {
        &self.drives
    }

    fn partitions(&self) -> &[Partition<Self>] {
        &self.partitions
    }

    fn freeze(&self, number: u32, next: u32, active: &mut Active) -> FrozenTable {
        let next = Active {
            table: self.new_table(),
            part: self.log.begin(number, next),
        };
        let mut full = std::mem::replace(active, next);
        self.levels.begun(number);
        full.table.settle();
        FrozenTable {
            table: Arc::new(full.table),
            part: full.part,
        }
    }

    fn most_frozen(&self) -> usize {
        1 + self.shape.side_tables as usize
    }

    async fn rewrite(&self, number: u32) -> Result<Written, SliceError> {
        let nth = self.oldest_frozen(number);
        let drive = self
            .drives_of(number)
            .nth(nth)
            .expect("slicetables lie on drives");
        // More tables may have been frozen while other flushes had their turn.
        let turn = drive.rewriting().await;
        let (mut batch, generation, old) = self.batch_of(number, nth);
        let most_keys = self.shape.page.entries() * self.shape.pages as usize;
        let mut filter = (self.incarnations.slicetables == 1)
            .then(|| self.filters.deserved(number, most_keys))
            .flatten();
        let mut note = |key| {
            if let Some(filter) = &mut filter {
                filter.insert(self.keys.slots(key));
            }
        };
        let mut gone = self.levels.gone();
        let change = |page: u32, bytes: &mut [u8]| {
            batch.change(page, bytes, &mut note, |value| gone.add(value))
        };
        let region = drive
            .rewrite(turn, old.as_deref(), number, generation, change)
            .await?;
        self.filters.set(number, filter);
        gone.tell();
        self.counts.add(|counts| {
            counts.flushes = 1;
            counts.flushed_tables = batch.tables() as u64;
            counts.flushed_entries = batch.len() as u64;
            counts.evicted = batch.evicted;
            counts.erased = batch.erased;
        });
        let region = Arc::new(region);
        Ok(Written { nth, region })
    }

    fn flush_ended(&self) {
        self.levels.flush_ended();
    }

    async fn point(&self, number: u32, nth: usize, region: &Arc<Region>) -> Result<(), SliceError> {
        let pointers = &self.log.pointers;
        pointers.set(number, nth as u32, region.pointer()).await
    }

    fn release(&self, flushed: FrozenTable) {
        self.log.release(flushed.part);
    }
}
