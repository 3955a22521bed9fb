//! The tables of a SliceHash: of each partition one that takes changes, full ones that wait for a flush, and its slicetables.

use std::sync::Arc;

use super::batch::{Batch, Member};
use super::levels::Levels;
use super::stats::{HashMemory, HashStats};
use crate::counts::Counts;
use crate::drive::Drive;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{Flush, Flushes, Partition, State};
use crate::frozen::Written;
use crate::incarnations::Incarnations;
use crate::keys::Keys;
use crate::log::Log;
use crate::part::Part;
use crate::regions::Region;
use crate::settings::HashShape;
use crate::table::{Change, Table};

/// Tables of all partitions, in memory and on the drives. A change lies in the log until a slicetable has it. All clones share it.
pub(super) struct HashTable {
    pub(super) shape: HashShape,
    pub(super) keys: Keys,
    pub(super) drives: Drives,
    pub(super) incarnations: Incarnations,
    pub(super) partitions: Box<[Partition<HashTable>]>,
    pub(super) filters: Filters,
    pub(super) log: Log,
    pub(super) flushes: Flushes,
    pub(super) counts: Counts<HashStats>,
    pub(super) levels: Levels,
}

/// The table of a partition that takes changes, with its part of the log.
pub(super) struct Active {
    pub(super) table: Table,
    pub(super) part: Part,
}

/// A full table, with its part of the log.
pub(super) struct FrozenTable {
    pub(super) table: Arc<Table>,
    pub(super) part: Part,
}

impl HashTable {
    pub(super) fn new_table(&self) -> Table {
        let most = self.shape.table_entries as usize;
        Table::new(self.keys, self.shape.page.bucket_entries, most)
    }

    /// Returns the drives that have slicetables of a partition.
    pub(super) fn drives_of(&self, number: u32) -> impl Iterator<Item = &Drive> + Clone {
        let (skip, take) = match self.incarnations.slicetables {
            1 => (number as usize % self.drives.len(), 1),
            all => (0, all as usize),
        };
        self.drives.iter().skip(skip).take(take)
    }

    /// Makes a change, if the table and its part of the log have space. Returns whether it has.
    pub(super) fn try_change(&self, active: &mut Active, key: u64, change: Change) -> bool {
        let has_changed =
            self.log.has_space(&active.part) && active.table.insert(key, change).is_ok();
        if has_changed {
            self.log.append(&mut active.part, key, change);
        }
        has_changed
    }

    /// Returns whether the table, or its part of the log, has no space for `key`.
    pub(super) fn is_full_for(&self, active: &mut Active, key: u64) -> bool {
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

    pub(super) fn memory(&self) -> HashMemory {
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

impl State<HashTable> {
    /// Returns the last change of a key that memory has.
    pub(super) fn known(&self, key: u64) -> Option<Change> {
        let mut frozen = self.frozen.newest_first();
        let frozen = || frozen.find_map(|frozen| frozen.memory.table.get(key));
        self.active.table.get(key).or_else(frozen)
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
