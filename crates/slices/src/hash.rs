//! SliceHash: a hash table of 8-byte keys and values (section 5).

mod batch;
mod created;
mod index;
mod levels;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Disk, Journal};
use format::slices::{Pointer, SliceKind};
use futures_util::future::join_all;

use crate::drive::{Drive, TableShape, drives};
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{self, FLUSHES_PER_DRIVE, Flush, Flushes, Partition, State};
use crate::frozen::{Frozen, FrozenQueue, Written};
use crate::keys::{Keys, Slots};
use crate::layout::refuse_twice;
use crate::log::{Log, LogShape, Part, Replayed};
use crate::page::Page;
use crate::pointers::check_regions;
use crate::regions::Region;
use crate::settings::{HashSettings, HashShape};
use crate::superblock::{self, Instance};
use crate::table::{Change, Full, Table};
use batch::{Batch, Member};
use created::{created_settings, created_shape, superblock_of};
use levels::Levels;
use stats::Counts;

pub use index::{Before, InMemory, Known, SliceIndex, TableInMemory};
pub use stats::{HashMemory, HashStats};

/// Entries of a part of the log, for each that a table holds: updates of what is there take an entry, too.
const LOG_SHARE: f64 = 1.25;

/// A hash table of 8-byte keys and values that lies on drives. Clones are the same table.
///
/// All operations may be called from every thread that a runtime drives, at once. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process; a power cut keeps what was there at the last
/// [`sync`](Self::sync). When a partition is full its oldest incarnation goes.
#[derive(Clone)]
pub struct SliceHash(Arc<Inner>);

struct Inner {
    shape: HashShape,
    keys: Keys,
    is_spread: bool,
    drives: Box<[Drive]>,
    partitions: Box<[Partition<Inner>]>,
    filters: Filters,
    log: Log,
    flushes: Flushes,
    counts: Counts,
    levels: Levels,
}

/// What is in memory of a partition and takes changes.
struct Active {
    table: Table,
    part: Part,
}

/// A table that is full.
struct FrozenTable {
    table: Arc<Table>,
    part: Part,
}

/// What a look-up has found on a drive.
struct FoundOn {
    change: Option<(u32, Change)>,
    /// What is not younger does not count.
    floor: u32,
    /// Pages that have been read for it.
    pages: u64,
}

impl SliceHash {
    /// Words of the log of a structure with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words(settings: &HashSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        let shape = settings.shape(drive_bytes)?;
        Ok(log_shape(&shape, settings, drive_bytes.len()).words())
    }

    /// [`log_words`](Self::log_words) for these drives.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words_for(
        settings: &HashSettings,
        disks: &[Arc<dyn Disk>],
    ) -> Result<usize, SliceError> {
        let sizes: Vec<u64> = disks.iter().map(|disk| disk.len_bytes()).collect();
        Self::log_words(settings, &sizes)
    }

    /// Makes an empty table on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that cannot be, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let sizes: Vec<u64> = disks.iter().map(|disk| disk.len_bytes()).collect();
        let shape = settings.shape(&sizes)?;
        let log_shape = log_shape(&shape, settings, disks.len());
        refuse_twice(&disks)?;
        let (has, needs) = (journal.words(), log_shape.words());
        if has < needs {
            return Err(SliceError::ShortLog { has, needs });
        }
        let instance = Instance::random();
        let superblock = superblock_of(settings, &shape, instance);
        superblock::write(&disks, superblock, &settings.layout()).await?;
        let log = Log::create(journal, log_shape, instance.id)?;
        log.sync(|_| ()).await?;
        Self::start(disks, log, settings, shape, instance).await
    }

    /// Opens the table on `disks`, named in the order in which they were when it was created, with its log. What had not
    /// reached a drive is taken from the log. `settings` says how it is used; what was chosen when it was created is kept.
    ///
    /// # Errors
    /// When it is no such table, or a drive or the log is missing, another's, or shorter than it was; settings that cannot be;
    /// and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        refuse_twice(&disks)?;
        let found = superblock::read(&disks, SliceKind::Hash).await?;
        let settings = created_settings(&found, settings)?;
        let shape = created_shape(&found)?;
        superblock::check_space(&disks, &found, &settings.layout(), |_| Vec::new())?;
        let log_shape = log_shape(&shape, &settings, disks.len());
        let instance = Instance::of(&found);
        let log = Log::open(journal, log_shape, instance.id)?;
        let pointers = |drive| {
            let all = pointers_of(&log, &shape, (settings.spread, disks.len()), drive);
            all.into_iter().map(|(_, pointer)| pointer).collect()
        };
        superblock::check_space(&disks, &found, &settings.layout(), pointers)?;
        Self::start(disks, log, &settings, shape, instance).await
    }

    async fn start(
        disks: Vec<Arc<dyn Disk>>,
        log: Log,
        settings: &HashSettings,
        shape: HashShape,
        instance: Instance,
    ) -> Result<Self, SliceError> {
        let keys = Keys {
            seed: instance.seed,
            partitions: shape.partitions,
            slots: shape.pages * shape.page.slots as u32,
        };
        let table_shape = TableShape {
            instance: instance.id,
            is_new: instance.is_new,
            pages: shape.pages,
            page_bytes: shape.page.page_bytes,
            piece_bytes: settings.piece_bytes as usize,
            head_bytes: settings.layout().head_bytes(),
            channels: settings.channels,
        };
        let count = disks.len();
        let pointers = |number| pointers_of(&log, &shape, (settings.spread, count), number);
        for (number, disk) in disks.iter().enumerate() {
            let has = disk.len_bytes().saturating_sub(table_shape.head_bytes);
            check_regions(pointers(number).into_iter(), has / shape.region_bytes)?;
        }
        let used = |number| {
            pointers(number)
                .into_iter()
                .map(|(_, pointer)| pointer)
                .collect()
        };
        let drives = drives(disks, table_shape, settings.scheduling, used);
        let most_keys = shape.page.entries() * shape.pages as usize;
        let mut inner = Inner {
            filters: Filters::new(shape.partitions, most_keys, settings.filter_bytes),
            flushes: Flushes::new(count, shape.side_tables),
            levels: Levels::new(shape.partitions, shape.table_entries, shape.places()),
            shape,
            keys,
            is_spread: settings.spread,
            drives,
            partitions: Box::new([]),
            log,
            counts: Counts::default(),
        };
        inner.partitions = (0..shape.partitions)
            .map(|partition| inner.replayed(partition))
            .collect::<Result<_, _>>()?;
        let opened = Self(Arc::new(inner));
        // What has been found is not lost by the next crash: until it is synced, the count of the first change would be.
        opened.sync().await?;
        for number in 0..shape.partitions {
            flush::flushed(&opened.0, number).await?;
        }
        Ok(opened)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page ([`SliceError::Damaged`]).
    pub async fn get(&self, key: u64) -> Result<Option<u64>, SliceError> {
        self.0.get(key).await
    }

    /// Sets the value of a key. Waits where all tables that the partition may have are full.
    ///
    /// # Errors
    /// Where there is no space because flushes fail: why. They are tried again until they succeed.
    pub async fn insert(&self, key: u64, value: u64) -> Result<(), SliceError> {
        self.change(key, Change::Value(value)).await
    }

    /// Removes a key, which need not be there.
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
        inner.log.sync(parts).await
    }

    /// Flushes every table that has changes.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn flush(&self) -> Result<(), SliceError> {
        for number in 0..self.0.shape.partitions {
            flush::flush(&self.0, number, |state| state.active.table.len() > 0).await?;
        }
        Ok(())
    }

    async fn change(&self, key: u64, change: Change) -> Result<(), SliceError> {
        let inner = &self.0;
        let attempt = |state: &mut State<Inner>| inner.try_change(&mut state.active, key, change);
        let is_full = |state: &mut State<Inner>| inner.is_full_for(&mut state.active, key);
        flush::change(inner, inner.keys.partition(key), attempt, is_full).await
    }

    /// Waits for the flushes under way, and makes all changes durable. The drives may be opened again when it has returned and
    /// every clone is gone; a table that is merely dropped may still be flushing.
    ///
    /// # Errors
    /// Why a flush or the log has failed. What the log has is not lost.
    pub async fn close(self) -> Result<(), SliceError> {
        for number in 0..self.0.shape.partitions {
            flush::flushed(&self.0, number).await?;
        }
        for drive in &self.0.drives {
            drive.idle().await;
        }
        self.sync().await
    }

    /// What it has done since it was opened.
    pub fn stats(&self) -> HashStats {
        self.0.counts.stats(&self.0.drives)
    }

    /// The drive of a key, and the channel that its first page lies on, counted from that of the slicetable's first page.
    /// Where slices are spread, on every drive.
    pub fn place_of(&self, key: u64) -> (usize, u32) {
        let number = self.0.keys.partition(key);
        let page = self.0.keys.slots(key).first / self.0.shape.page.slots as u32;
        let drive = self
            .0
            .drives_of(number)
            .next()
            .expect("slicetables lie on drives");
        let offset = u64::from(page) * self.0.shape.page.page_bytes as u64;
        (drive.number, drive.shape.channels.of(offset))
    }

    /// How many slicetables each partition has: one, or one a drive where slices are spread.
    pub fn slicetables_of_a_partition(&self) -> usize {
        self.0.drives_of_a_partition() as usize
    }

    /// What follows from the settings that the table was created with.
    pub fn shape(&self) -> &HashShape {
        &self.0.shape
    }

    /// The memory it has now.
    pub fn memory(&self) -> HashMemory {
        self.0.memory()
    }

    /// The drives it lies on, for those who read and write beside it.
    pub(crate) fn drives(&self) -> &[Drive] {
        &self.0.drives
    }

    /// Words of the log that it uses.
    pub(crate) fn words(&self) -> usize {
        self.0.log.words()
    }
}

/// The values of many keys, in their order: all look-ups are under way at once, so that the scheduler has a choice.
pub async fn get_all(
    table: &SliceHash,
    keys: impl IntoIterator<Item = u64>,
) -> Vec<Result<Option<u64>, SliceError>> {
    join_all(keys.into_iter().map(|key| table.get(key))).await
}

impl Inner {
    /// The state of a partition as the log has it.
    fn replayed(&self, number: u32) -> Result<Partition<Self>, SliceError> {
        let slicetables: Vec<Option<Arc<Region>>> = self
            .drives_of(number)
            .enumerate()
            .map(|(nth, drive)| {
                let pointer = self.log.pointers.get(number, nth as u32);
                let used = || Arc::new(drive.regions.used(pointer.region, pointer.generation));
                (pointer.generation > 0).then(used)
            })
            .collect();
        let written = slicetables
            .iter()
            .flatten()
            .map(|region| region.generation)
            .max()
            .unwrap_or(0);
        let table_of = |found: Replayed| -> Result<Active, SliceError> {
            let table = self.table_of(number, found.changes)?;
            let part = found.part;
            Ok(Active { table, part })
        };
        let found = self.log.replay(number, written)?.into_iter();
        let mut tables = found.map(table_of).collect::<Result<Vec<_>, _>>()?;
        let active = tables.pop().expect("one is to go on with");
        let generation = written + 1 + tables.len() as u32;
        let left = (written + 1..).zip(tables).map(|(generation, full)| {
            let (table, part) = (Arc::new(full.table), full.part);
            Frozen::left(FrozenTable { table, part }, generation)
        });
        Ok(Partition::new(State {
            active,
            generation,
            frozen: FrozenQueue::left(left),
            slicetables,
        }))
    }

    fn table_of(&self, number: u32, changes: Vec<(u64, Change)>) -> Result<Table, SliceError> {
        let mut table = self.new_table();
        for (key, change) in changes {
            // What fitted once does so again: places follow from the order of changes.
            table
                .insert(key, change)
                .map_err(|Full| SliceError::DamagedLog {
                    partition: number,
                    what: "its entries do not fit a table",
                })?;
        }
        Ok(table)
    }

    fn new_table(&self) -> Table {
        let most = self.shape.table_entries as usize;
        Table::new(self.keys, self.shape.page.bucket_entries, most)
    }

    /// The drives that have slicetables of a partition.
    fn drives_of(&self, number: u32) -> impl Iterator<Item = &Drive> + Clone {
        let (skip, take) = match self.is_spread {
            true => (0, self.drives.len()),
            false => (number as usize % self.drives.len(), 1),
        };
        self.drives.iter().skip(skip).take(take)
    }

    /// How many slicetables a partition has.
    fn drives_of_a_partition(&self) -> u32 {
        if self.is_spread {
            self.drives.len() as u32
        } else {
            1
        }
    }

    /// Whether the change has been made.
    fn try_change(&self, active: &mut Active, key: u64, change: Change) -> bool {
        let has_changed =
            self.log.has_space(&active.part) && active.table.insert(key, change).is_ok();
        if has_changed {
            self.log.append(&mut active.part, key, change);
        }
        has_changed
    }

    /// Whether the table does not take `key`, as it is.
    fn is_full_for(&self, active: &mut Active, key: u64) -> bool {
        !self.log.has_space(&active.part) || !active.table.has_place(key)
    }

    /// Which of its slicetable's incarnations a generation is.
    fn incarnation(&self, generation: u32) -> usize {
        ((generation - 1) / self.drives_of_a_partition()) as usize % self.shape.page.incarnations
    }

    /// The generation of an incarnation in a slicetable that `written` was the last one to write.
    fn generation(&self, written: u32, incarnation: usize) -> u32 {
        let (incarnations, drives) = (self.shape.page.incarnations, self.drives_of_a_partition());
        let behind = (self.incarnation(written) + incarnations - incarnation) % incarnations;
        written - behind as u32 * drives
    }

    async fn get(&self, key: u64) -> Result<Option<u64>, SliceError> {
        self.counts.lookups.fetch_add(1, Ordering::Relaxed);
        let number = self.keys.partition(key);
        let (first, others) = {
            let state = self.partitions[number as usize].state.lock();
            let frozen = || {
                let mut newest_first = state.frozen.newest_first();
                newest_first.find_map(|frozen| frozen.memory.table.get(key))
            };
            if let Some(change) = state.active.table.get(key).or_else(frozen) {
                self.counts.memory_hits.fetch_add(1, Ordering::Relaxed);
                return Ok(value_of(change));
            }
            // Where slices are not spread there are no others, and nothing is allocated.
            let others = state.slicetables[1..].to_vec();
            (state.slicetables[0].clone(), others)
        };
        let slots = self.keys.slots(key);
        if !self.filters.may_have(number, slots) {
            self.counts.spared.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let mut drives = self.drives_of(number);
        let drive = drives.next().expect("slicetables lie on drives");
        if others.is_empty() {
            let Some(region) = first else {
                return Ok(None);
            };
            let found = self.search(drive, &region, number, key, slots).await?;
            let value = found.change.and_then(|(_, change)| value_of(change));
            self.count_answer(value, found.pages);
            return Ok(value);
        }
        let slicetables = std::iter::once(&first).chain(&others);
        let searches = std::iter::once(drive)
            .chain(drives)
            .zip(slicetables)
            .filter_map(|(drive, region)| {
                let region = region.as_deref()?;
                Some(self.search(drive, region, number, key, slots))
            });
        let mut youngest: Option<(u32, Change)> = None;
        let (mut floor, mut pages) = (0, 0);
        for found in join_all(searches).await {
            let found = found?;
            pages += found.pages;
            floor = floor.max(found.floor);
            if found.change.map(|(generation, _)| generation)
                > youngest.map(|(generation, _)| generation)
            {
                youngest = found.change;
            }
        }
        let is_known = youngest.is_some_and(|(generation, _)| generation > floor);
        let value = youngest
            .filter(|_| is_known)
            .and_then(|(_, change)| value_of(change));
        self.count_answer(value, pages);
        Ok(value)
    }

    fn count_answer(&self, value: Option<u64>, pages: u64) {
        let counts = &self.counts;
        match value {
            Some(_) => counts.drive_hits.fetch_add(1, Ordering::Relaxed),
            None => counts.absent_page_reads.fetch_add(pages, Ordering::Relaxed),
        };
    }

    /// Looks for a key in a slicetable: in its first slot, and in its second if it may have overflowed.
    async fn search(
        &self,
        drive: &Drive,
        region: &Region,
        number: u32,
        key: u64,
        slots: Slots,
    ) -> Result<FoundOn, SliceError> {
        let shape = &self.shape.page;
        let per_page = shape.slots as u32;
        let found = |change: Option<(usize, Change)>, floor, pages| FoundOn {
            pages,
            change: change.map(|(incarnation, change)| {
                (self.generation(region.generation, incarnation), change)
            }),
            floor,
        };
        let first = drive
            .read_page(region, number, slots.first / per_page)
            .await?;
        let page = Page {
            shape,
            bytes: &first.bytes,
        };
        let in_first = page.find((slots.first % per_page) as usize, key);
        if in_first.is_some() || !page.may_have_overflowed(slots) {
            return Ok(found(in_first, first.floor, 1));
        }
        let second_slot = (slots.second % per_page) as usize;
        if slots.first / per_page == slots.second / per_page {
            return Ok(found(page.find(second_slot, key), first.floor, 1));
        }
        let second = drive
            .read_page(region, number, slots.second / per_page)
            .await?;
        let page = Page {
            shape,
            bytes: &second.bytes,
        };
        Ok(found(
            page.find(second_slot, key),
            first.floor.max(second.floor),
            2,
        ))
    }

    /// Which of its slicetables the oldest frozen table of a partition goes to.
    fn oldest_frozen(&self, number: u32) -> usize {
        let state = self.partitions[number as usize].state.lock();
        let oldest = state.frozen.oldest_first().next();
        let oldest = oldest.expect("only what is frozen is flushed");
        ((oldest.generation - 1) % self.drives_of_a_partition()) as usize
    }

    /// What a flush into slicetable `nth` of a partition writes: all tables that are frozen, as far as there are incarnations, or
    /// one where the next goes to another drive. With the newest generation, and where the slicetable lies.
    fn batch_of(&self, number: u32, nth: usize) -> (Batch<'_>, u32, Option<Arc<Region>>) {
        let drives = self.drives_of_a_partition();
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
                incarnation: self.incarnation(generation),
            });
        }
        let batch = Batch::new((&self.shape.page, self.keys), drives > 1, members);
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
            + self.drives_of_a_partition() as usize * size_of::<(Region, usize)>();
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

impl Flush for Inner {
    type Active = Active;
    type Frozen = FrozenTable;

    fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    fn partition(&self, number: u32) -> &Partition<Self> {
        &self.partitions[number as usize]
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
        // While others have had theirs, more may have been frozen.
        let turn = drive.rewriting().await;
        let (mut batch, generation, old) = self.batch_of(number, nth);
        let most_keys = self.shape.page.entries() * self.shape.pages as usize;
        let mut filter = (self.drives_of_a_partition() == 1)
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
        let add = |count: &AtomicU64, by: u64| count.fetch_add(by, Ordering::Relaxed);
        add(&self.counts.flushes, 1);
        add(&self.counts.flushed_tables, batch.tables() as u64);
        add(&self.counts.flushed_entries, batch.len() as u64);
        add(&self.counts.evicted, batch.evicted);
        add(&self.counts.erased, batch.erased);
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

fn value_of(change: Change) -> Option<u64> {
    match change {
        Change::Value(value) => Some(value),
        Change::Delete => None,
    }
}

fn log_shape(shape: &HashShape, settings: &HashSettings, drives: usize) -> LogShape {
    LogShape {
        partitions: shape.partitions,
        drives: if settings.spread { drives as u32 } else { 1 },
        spare_parts: drives as u32 * (FLUSHES_PER_DRIVE + shape.side_tables),
        entries: match settings.log_changes {
            true => (f64::from(shape.table_entries) * LOG_SHARE) as u32 + 1,
            false => 0,
        },
    }
}

/// Where the slicetables on a drive lie, one for each of its partitions.
fn pointers_of(
    log: &Log,
    shape: &HashShape,
    (is_spread, drives): (bool, usize),
    drive: usize,
) -> Vec<(u32, Pointer)> {
    let (first, step, nth) = match is_spread {
        true => (0, 1, drive as u32),
        false => (drive as u32, drives, 0),
    };
    let partitions = (first..shape.partitions).step_by(step);
    let pointers = partitions.map(|partition| (partition, log.pointers.get(partition, nth)));
    pointers.collect()
}
