//! SliceHash: a hash table of 8-byte keys and values (section 5).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{AlignedBuf, Disk, Journal, PAGE_BYTES, SharedBuf};
use format::slices::{EntryPage, Pointer, SliceKind, SliceSuperblock};
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;
use runtime::sync::{Notify, Permit, Semaphore};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::channel::Channels;
use crate::drive::{Drive, TableShape};
use crate::error::SliceError;
use crate::filter::Filters;
use crate::keys::{Keys, Slots};
use crate::log::{Half, Log, LogShape};
use crate::page::{Page, PageMut};
use crate::regions::{Region, Regions};
use crate::scheduler::{Scheduler, Scheduling};
use crate::settings::{HashSettings, HashShape};
use crate::table::{Change, Full, Table};

/// Entries of a half of the log, for each that a table holds: updates of what is there take an entry, too.
const LOG_SHARE: f64 = 1.25;
/// Tables that are being flushed or wait for it, for each drive.
const FLUSHES_PER_DRIVE: usize = 2;
/// After how long a failed flush is tried again: twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

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
    partitions: Box<[Partition]>,
    filters: Filters,
    log: Log,
    flushes: Semaphore,
    /// Why the last flush has failed, until one succeeds.
    failing: Mutex<Option<SliceError>>,
    flush_failed: Notify,
    counts: Counts,
}

struct Partition {
    state: Mutex<State>,
    /// A flush has ended.
    flushed: Notify,
}

struct State {
    table: Table,
    /// The flush that will write `table`.
    generation: u32,
    half: Half,
    frozen: Option<Frozen>,
    /// The slicetable on each of the partition's drives.
    slicetables: Vec<Option<Arc<Region>>>,
}

/// A table that is full.
struct Frozen {
    table: Arc<Table>,
    half: Half,
    generation: u32,
    flush: FlushState,
    /// Which slicetable it has been written to, and where, where the log does not say so yet.
    written: Option<(usize, Arc<Region>)>,
    /// One of so many that there may be; none where a crash has left it.
    _permit: Option<Permit>,
}

enum FlushState {
    Pending,
    UnderWay,
    Failed(SliceError),
}

#[derive(Default)]
struct Counts {
    lookups: AtomicU64,
    memory_hits: AtomicU64,
    drive_hits: AtomicU64,
    spared: AtomicU64,
    flushes: AtomicU64,
    flushed_entries: AtomicU64,
    evicted: AtomicU64,
    erased: AtomicU64,
}

/// What a [`SliceHash`] has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashStats {
    /// Keys looked up.
    pub lookups: u64,
    /// Of these, answered from a table in memory, also by a delete.
    pub memory_hits: u64,
    /// Found on a drive.
    pub drive_hits: u64,
    /// Not looked for on a drive, because a filter knew that they are not there.
    pub spared: u64,
    /// Pages read by look-ups.
    pub page_reads: u64,
    /// Tables flushed, and the changes in them.
    pub flushes: u64,
    /// Changes flushed.
    pub flushed_entries: u64,
    /// Values that went with the oldest incarnation.
    pub evicted: u64,
    /// Older copies of changed keys that flushes have erased.
    pub erased: u64,
    /// Bytes that flushes have read.
    pub bytes_read: u64,
    /// Bytes that flushes have written.
    pub bytes_written: u64,
    /// Damaged pages that flushes have begun anew.
    pub pages_lost: u64,
}

/// Memory of a [`SliceHash`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashMemory {
    /// The tables of partitions, with those that are being flushed.
    pub tables: u64,
    /// What is kept for each partition beside.
    pub partitions: u64,
    /// Bloom filters.
    pub filters: u64,
    /// Pieces of slicetables that are being rewritten.
    pub pieces: u64,
}

/// What a look-up has found on a drive.
struct FoundOn {
    change: Option<(u32, Change)>,
    /// What is not younger does not count.
    floor: u32,
}

pub(crate) fn page_aligned(bytes: usize) -> AlignedBuf {
    AlignedBuf::new(bytes.max(PAGE_BYTES))
}

impl SliceHash {
    /// Words of the log of a structure with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words(settings: &HashSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        let shape = settings.shape(drive_bytes)?;
        Ok(log_shape(&shape, settings.spread, drive_bytes.len()).words())
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
        let log_shape = log_shape(&shape, settings.spread, disks.len());
        let head_bytes = settings.head_bytes();
        let (instance, seed) = (runtime::random_id(), runtime::random_u64());
        for (number, disk) in disks.iter().enumerate() {
            let superblock = superblock(settings, &shape, (number, disks.len()), (instance, seed));
            let mut head = page_aligned(head_bytes as usize);
            superblock.encode(&mut head);
            disk.write(0, SharedBuf::from(head))
                .await
                .map_err(SliceError::device(number))?;
            disk.sync().await.map_err(SliceError::device(number))?;
        }
        let log = Log::create(journal, log_shape, instance)?;
        log.sync(|_| ()).await?;
        Self::start(disks, log, settings, shape, (instance, seed)).await
    }

    /// Opens the table on `disks`, named in the order in which they were when it was created, with its log. What had not
    /// reached a drive is taken from the log. `settings` says how it is used; what was chosen when it was created is kept.
    ///
    /// # Errors
    /// When it is no such table, or a drive or the log is missing or another's, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let mut first: Option<SliceSuperblock> = None;
        for (number, disk) in disks.iter().enumerate() {
            let page = disk
                .read(0, AlignedBuf::new(PAGE_BYTES))
                .await
                .map_err(SliceError::device(number))?;
            let found =
                SliceSuperblock::decode(&page).map_err(|source| SliceError::NoStructure {
                    drive: number,
                    source,
                })?;
            check_superblock(
                SliceKind::Hash,
                &found,
                (number, disks.len()),
                first.as_ref(),
            )?;
            first.get_or_insert(found);
        }
        let Some(found) = first else {
            return Err(SliceError::Setting("name at least one drive".to_owned()));
        };
        let settings = created_settings(&found, settings);
        let shape = created_shape(&found);
        let log_shape = log_shape(&shape, settings.spread, disks.len());
        let (instance, seed) = (found.instance.get(), found.hash_seed.get());
        let log = Log::open(journal, log_shape, instance)?;
        Self::start(disks, log, &settings, shape, (instance, seed)).await
    }

    async fn start(
        disks: Vec<Arc<dyn Disk>>,
        log: Log,
        settings: &HashSettings,
        shape: HashShape,
        (instance, seed): (u64, u64),
    ) -> Result<Self, SliceError> {
        let keys = Keys {
            seed,
            partitions: shape.partitions,
            slots: shape.pages * shape.page.slots as u32,
        };
        let table_shape = TableShape {
            instance,
            pages: shape.pages,
            page_bytes: shape.page.page_bytes,
            piece_bytes: settings.piece_bytes as usize,
            head_bytes: settings.head_bytes(),
            channels: settings.channels,
        };
        let count = disks.len();
        let drives: Box<[Drive]> = disks
            .into_iter()
            .enumerate()
            .map(|(number, disk)| {
                let used: Vec<u32> = (0..shape.partitions)
                    .filter(|partition| settings.spread || *partition as usize % count == number)
                    .map(|partition| {
                        log.pointer(partition, if settings.spread { number as u32 } else { 0 })
                    })
                    .filter(|pointer| pointer.generation > 0)
                    .map(|pointer| pointer.region)
                    .collect();
                let regions = (disk.len_bytes() - settings.head_bytes()) / shape.region_bytes;
                let regions = Regions::without(u32::try_from(regions).unwrap_or(u32::MAX), &used);
                let scheduler = Scheduler::new(settings.scheduling, settings.channels.count);
                Drive::new(number, disk, table_shape, scheduler, regions)
            })
            .collect();
        let most_keys = shape.page.entries() * shape.pages as usize;
        let mut inner = Inner {
            filters: Filters::new(shape.partitions, most_keys, settings.filter_bytes),
            flushes: Semaphore::new(FLUSHES_PER_DRIVE * count),
            shape,
            keys,
            is_spread: settings.spread,
            drives,
            partitions: Box::new([]),
            log,
            failing: Mutex::new(None),
            flush_failed: Notify::new(),
            counts: Counts::default(),
        };
        inner.partitions = (0..shape.partitions)
            .map(|partition| inner.replayed(partition))
            .collect::<Result<_, _>>()?;
        let opened = Self(Arc::new(inner));
        // What has been found is not lost by the next crash: until it is synced, the count of the first change would be.
        opened.sync().await?;
        for number in 0..shape.partitions {
            opened.flushed(number).await?;
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

    /// Sets the value of a key. Waits where both tables of the partition are full.
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
        let halves = |each: &mut dyn FnMut(&mut Half)| {
            for partition in &inner.partitions {
                let mut state = partition.state.lock();
                each(&mut state.half);
                if let Some(frozen) = &mut state.frozen {
                    each(&mut frozen.half);
                }
            }
        };
        inner.log.sync(halves).await
    }

    /// Flushes every table that has changes.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn flush(&self) -> Result<(), SliceError> {
        for number in 0..self.0.shape.partitions {
            self.flushed(number).await?;
            let permit = self.0.permit().await?;
            if self.0.freeze(number, permit, |state| state.table.len() > 0) {
                self.spawn_flush(number);
            }
            self.flushed(number).await?;
        }
        Ok(())
    }

    async fn change(&self, key: u64, change: Change) -> Result<(), SliceError> {
        let number = self.0.keys.partition(key);
        let partition = &self.0.partitions[number as usize];
        loop {
            let has_frozen = {
                let mut state = partition.state.lock();
                if self.0.try_change(&mut state, key, change).is_ok() {
                    return Ok(());
                }
                state.frozen.is_some()
            };
            if has_frozen {
                self.flushed(number).await?;
                continue;
            }
            let permit = self.0.permit().await?;
            if self
                .0
                .freeze(number, permit, |state| self.0.is_full_for(state, key))
            {
                self.spawn_flush(number);
            }
        }
    }

    /// Waits until nothing is frozen in a partition.
    async fn flushed(&self, number: u32) -> Result<(), SliceError> {
        let partition = &self.0.partitions[number as usize];
        loop {
            let flushed = partition.flushed.listener();
            {
                let mut state = partition.state.lock();
                let Some(frozen) = &mut state.frozen else {
                    return Ok(());
                };
                match &frozen.flush {
                    FlushState::Failed(error) => return Err(error.clone()),
                    FlushState::UnderWay => {}
                    FlushState::Pending => {
                        frozen.flush = FlushState::UnderWay;
                        self.spawn_flush(number);
                    }
                }
            }
            flushed.await;
        }
    }

    /// Flushes the frozen table of a partition, again and again until it succeeds or the table is no longer used.
    fn spawn_flush(&self, number: u32) {
        let this = Arc::downgrade(&self.0);
        runtime::spawn_detached(async move {
            let mut pause = FIRST_RETRY;
            loop {
                let Some(inner) = this.upgrade() else { return };
                if inner.flush(number).await {
                    return;
                }
                drop(inner);
                runtime::sleep(pause).await;
                pause = (2 * pause).min(LAST_RETRY);
            }
        });
    }

    /// What it has done since it was opened.
    pub fn stats(&self) -> HashStats {
        let counts = &self.0.counts;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let drives = |count: fn(&Drive) -> &AtomicU64| {
            self.0.drives.iter().map(|drive| load(count(drive))).sum()
        };
        HashStats {
            lookups: load(&counts.lookups),
            memory_hits: load(&counts.memory_hits),
            drive_hits: load(&counts.drive_hits),
            spared: load(&counts.spared),
            page_reads: drives(|drive| &drive.counts.page_reads),
            flushes: load(&counts.flushes),
            flushed_entries: load(&counts.flushed_entries),
            evicted: load(&counts.evicted),
            erased: load(&counts.erased),
            bytes_read: drives(|drive| &drive.counts.bytes_read),
            bytes_written: drives(|drive| &drive.counts.bytes_written),
            pages_lost: drives(|drive| &drive.counts.pages_lost),
        }
    }

    /// Its shape.
    pub fn shape(&self) -> &HashShape {
        &self.0.shape
    }

    /// The memory it has now.
    pub fn memory(&self) -> HashMemory {
        self.0.memory()
    }
}

impl Inner {
    /// The state of a partition as the log has it.
    fn replayed(&self, number: u32) -> Result<Partition, SliceError> {
        let slicetables: Vec<Option<Arc<Region>>> = self
            .drives_of(number)
            .enumerate()
            .map(|(nth, drive)| {
                let pointer = self.log.pointer(number, nth as u32);
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
        let (half, changes) = self.log.replay(number, written + 1)?;
        let (next_half, next_changes) = self.log.replay(number, written + 2)?;
        let table = self.table_of(changes)?;
        let (half, table, generation, frozen) = if next_changes.is_empty() {
            (half, table, written + 1, None)
        } else {
            let frozen = Frozen {
                table: Arc::new(table),
                half,
                generation: written + 1,
                flush: FlushState::Pending,
                written: None,
                _permit: None,
            };
            (
                next_half,
                self.table_of(next_changes)?,
                written + 2,
                Some(frozen),
            )
        };
        Ok(Partition {
            state: Mutex::new(State {
                table,
                generation,
                half,
                frozen,
                slicetables,
            }),
            flushed: Notify::new(),
        })
    }

    fn table_of(&self, changes: Vec<(u64, Change)>) -> Result<Table, SliceError> {
        let mut table = self.new_table();
        for (key, change) in changes {
            // What fitted once does so again: places follow from the order of changes.
            table
                .insert(key, change)
                .map_err(|Full| SliceError::OtherLog)?;
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

    fn try_change(&self, state: &mut State, key: u64, change: Change) -> Result<(), Full> {
        if !self.log.has_space(&state.half) {
            return Err(Full);
        }
        state.table.insert(key, change)?;
        self.log.append(&mut state.half, key, change);
        Ok(())
    }

    /// Whether the table does not take `key`, as it is.
    fn is_full_for(&self, state: &mut State, key: u64) -> bool {
        !self.log.has_space(&state.half) || !state.table.has_place(key)
    }

    /// Freezes the table of a partition, if nothing is frozen and `is_time`; its next one begins empty. Whether it has: then
    /// the caller flushes it.
    fn freeze(
        &self,
        number: u32,
        permit: Permit,
        is_time: impl FnOnce(&mut State) -> bool,
    ) -> bool {
        let mut state = self.partitions[number as usize].state.lock();
        if state.frozen.is_some() || !is_time(&mut state) {
            return false;
        }
        let table = std::mem::replace(&mut state.table, self.new_table());
        let generation = state.generation;
        state.generation += 1;
        let next = self.log.begin(number, state.generation);
        let half = std::mem::replace(&mut state.half, next);
        state.frozen = Some(Frozen {
            table: Arc::new(table),
            half,
            generation,
            flush: FlushState::UnderWay,
            written: None,
            _permit: Some(permit),
        });
        true
    }

    /// The right to freeze a table.
    async fn permit(&self) -> Result<Permit, SliceError> {
        loop {
            let failed = self.flush_failed.listener();
            if let Some(permit) = self.flushes.try_acquire() {
                return Ok(permit);
            }
            if let Some(error) = self.failing.lock().clone() {
                return Err(error);
            }
            match select(pin!(self.flushes.acquire()), failed).await {
                Either::Left((permit, _)) => return Ok(permit),
                Either::Right(_) => {}
            }
        }
    }

    /// Flushes the frozen table of a partition: whether that has succeeded. Until then it stays.
    async fn flush(&self, number: u32) -> bool {
        let partition = &self.partitions[number as usize];
        let outcome = self.write_frozen(number).await;
        let is_flushed = outcome.is_ok();
        {
            let mut state = partition.state.lock();
            match outcome {
                Ok((nth, region)) => {
                    state.frozen = None;
                    state.slicetables[nth] = Some(region);
                    *self.failing.lock() = None;
                }
                Err(error) => {
                    *self.failing.lock() = Some(error.clone());
                    if let Some(frozen) = &mut state.frozen {
                        frozen.flush = FlushState::Failed(error);
                    }
                }
            }
        }
        partition.flushed.notify_all();
        if !is_flushed {
            self.flush_failed.notify_all();
        }
        is_flushed
    }

    /// Writes the frozen table into a slicetable, and says so in the log: which of the partition's, and where it is now.
    async fn write_frozen(&self, number: u32) -> Result<(usize, Arc<Region>), SliceError> {
        let partition = &self.partitions[number as usize];
        let written = {
            let state = partition.state.lock();
            state
                .frozen
                .as_ref()
                .and_then(|frozen| frozen.written.clone())
        };
        let (nth, region) = match written {
            Some(written) => written,
            None => {
                let written = self.rewrite(number).await?;
                if let Some(frozen) = &mut partition.state.lock().frozen {
                    frozen.written = Some(written.clone());
                }
                written
            }
        };
        let pointer = Pointer {
            generation: region.generation,
            region: region.number,
        };
        self.log.point(number, nth as u32, pointer).await?;
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        Ok((nth, region))
    }

    /// Writes the frozen table of a partition into a slicetable: which of the partition's, and where it is.
    async fn rewrite(&self, number: u32) -> Result<(usize, Arc<Region>), SliceError> {
        let drives = self.drives_of_a_partition();
        let (table, generation, nth, old) = {
            let state = self.partitions[number as usize].state.lock();
            let frozen = state
                .frozen
                .as_ref()
                .expect("only what is frozen is flushed");
            let nth = ((frozen.generation - 1) % drives) as usize;
            (
                Arc::clone(&frozen.table),
                frozen.generation,
                nth,
                state.slicetables[nth].clone(),
            )
        };
        let drive = self
            .drives_of(number)
            .nth(nth)
            .expect("slicetables lie on drives");
        let incarnation = self.incarnation(generation);
        let shape = &self.shape.page;
        let slots = shape.slots as u32;
        let most_keys = shape.entries() * self.shape.pages as usize;
        let mut filter = (drives == 1)
            .then(|| self.filters.deserved(number, most_keys))
            .flatten();
        let mut note = |key| {
            if let Some(filter) = &mut filter {
                filter.insert(self.keys.slots(key));
            }
        };
        let mut overflowed: Vec<Slots> = table.overflowed().collect();
        overflowed.sort_unstable_by_key(|slots| slots.first);
        let mut overflowed = overflowed.into_iter().peekable();
        let (mut evicted, mut erased) = (0, 0);
        let change = |page_number: u32, bytes: &mut [u8]| {
            let mut page = PageMut { shape, bytes };
            evicted += page.evict(incarnation);
            erased += page.erase(|key| table.get(key).is_some(), &mut note);
            for slot in 0..slots {
                // A delete has done its work where there are no other slicetables.
                let kept = |&(_, change): &(u64, Change)| drives > 1 || change != Change::Delete;
                let bucket = table.bucket(page_number * slots + slot).filter(kept);
                page.put(
                    slot as usize,
                    incarnation,
                    bucket.inspect(|&(key, _)| note(key)),
                );
            }
            while let Some(slots_of) = overflowed.next_if(|of| of.first / slots == page_number) {
                page.note_overflow(incarnation, slots_of);
            }
        };
        let region = drive
            .rewrite(old.as_deref(), number, generation, change)
            .await?;
        self.filters.set(number, filter);
        let add = |count: &AtomicU64, by: u64| count.fetch_add(by, Ordering::Relaxed);
        add(&self.counts.flushed_entries, table.len() as u64);
        add(&self.counts.evicted, evicted);
        add(&self.counts.erased, erased);
        Ok((nth, Arc::new(region)))
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
        let (in_memory, slicetables) = {
            let state = self.partitions[number as usize].state.lock();
            let frozen = || {
                state
                    .frozen
                    .as_ref()
                    .and_then(|frozen| frozen.table.get(key))
            };
            match state.table.get(key).or_else(frozen) {
                Some(change) => (Some(change), Vec::new()),
                None => (None, state.slicetables.clone()),
            }
        };
        if let Some(change) = in_memory {
            self.counts.memory_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value_of(change));
        }
        let slots = self.keys.slots(key);
        if !self.filters.may_have(number, slots) {
            self.counts.spared.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let searches = self
            .drives_of(number)
            .zip(&slicetables)
            .filter_map(|(drive, region)| {
                let region = region.as_deref()?;
                Some(self.search(drive, region, number, key, slots))
            });
        let mut youngest: Option<(u32, Change)> = None;
        let mut floor = 0;
        for found in join_all(searches).await {
            let found = found?;
            floor = floor.max(found.floor);
            if found.change.map(|(generation, _)| generation)
                > youngest.map(|(generation, _)| generation)
            {
                youngest = found.change;
            }
        }
        let is_known = self.drives_of_a_partition() == 1
            || youngest.is_some_and(|(generation, _)| generation > floor);
        let value = youngest
            .filter(|_| is_known)
            .and_then(|(_, change)| value_of(change));
        self.counts
            .drive_hits
            .fetch_add(value.is_some().into(), Ordering::Relaxed);
        Ok(value)
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
        let found = |change: Option<(usize, Change)>, floor| FoundOn {
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
            return Ok(found(in_first, first.floor));
        }
        let second_slot = (slots.second % per_page) as usize;
        if slots.first / per_page == slots.second / per_page {
            return Ok(found(page.find(second_slot, key), first.floor));
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
        ))
    }

    fn memory(&self) -> HashMemory {
        let table =
            Table::bytes_of(self.keys.slots as usize * self.shape.page.bucket_entries) as u64;
        let frozen = self
            .partitions
            .iter()
            .filter(|partition| partition.state.lock().frozen.is_some());
        let tables = self.partitions.len() + frozen.count();
        let per_partition = size_of::<Partition>()
            + self.drives_of_a_partition() as usize * size_of::<(Region, usize)>();
        HashMemory {
            tables: table * tables as u64,
            partitions: (self.partitions.len() * per_partition) as u64,
            filters: self.filters.memory_bytes(),
            pieces: self
                .drives
                .iter()
                .map(|drive| drive.shape.piece_bytes as u64)
                .sum(),
        }
    }
}

fn value_of(change: Change) -> Option<u64> {
    match change {
        Change::Value(value) => Some(value),
        Change::Delete => None,
    }
}

fn log_shape(shape: &HashShape, is_spread: bool, drives: usize) -> LogShape {
    LogShape {
        partitions: shape.partitions,
        drives: if is_spread { drives as u32 } else { 1 },
        entries: (f64::from(shape.table_entries) * LOG_SHARE) as u32 + 1,
    }
}

fn superblock(
    settings: &HashSettings,
    shape: &HashShape,
    (number, count): (usize, usize),
    (instance, seed): (u64, u64),
) -> SliceSuperblock {
    let mut superblock = SliceSuperblock::new(SliceKind::Hash);
    superblock.instance = U64::new(instance);
    superblock.hash_seed = U64::new(seed);
    superblock.own[0] = U64::new(shape.table_entries.into());
    let numbers = [
        (&mut superblock.drive, number as u32),
        (&mut superblock.drives, count as u32),
        (&mut superblock.spread, settings.spread.into()),
        (&mut superblock.partitions, shape.partitions),
        (&mut superblock.pages, shape.pages),
        (&mut superblock.page_bytes, shape.page.page_bytes as u32),
        (&mut superblock.incarnations, shape.page.incarnations as u32),
        (&mut superblock.slots_per_page, shape.page.slots as u32),
        (
            &mut superblock.bucket_entries,
            shape.page.bucket_entries as u32,
        ),
        (&mut superblock.filter_bytes, shape.page.filter_bytes as u32),
        (&mut superblock.channels, settings.channels.count),
        (&mut superblock.chunk_bytes, settings.channels.chunk_bytes),
    ];
    for (field, value) in numbers {
        *field = U32::new(value);
    }
    superblock
}

/// Whether a superblock is that of drive `number` of `given`, of an `expected` structure, and of the same one as `first`.
pub(crate) fn check_superblock(
    expected: SliceKind,
    found: &SliceSuperblock,
    (number, given): (usize, usize),
    first: Option<&SliceSuperblock>,
) -> Result<(), SliceError> {
    if found.kind.get() != expected as u32 {
        return Err(SliceError::OtherKind {
            drive: number,
            found: SliceKind::name_of(found.kind.get()),
            expected: SliceKind::name_of(expected as u32),
        });
    }
    let drives = found.drives.get();
    if drives as usize != given {
        return Err(SliceError::DrivesMissing { drives, given });
    }
    if found.drive.get() as usize != number {
        let found = found.drive.get();
        return Err(SliceError::OtherDrive {
            expected: number,
            found,
            drives,
        });
    }
    match first.is_none_or(|first| first.instance == found.instance) {
        true => Ok(()),
        false => Err(SliceError::OtherInstance { drive: number }),
    }
}

/// The settings with what was chosen when the table was created.
fn created_settings(found: &SliceSuperblock, settings: &HashSettings) -> HashSettings {
    let channels = Channels {
        count: found.channels.get(),
        chunk_bytes: found.chunk_bytes.get(),
    };
    let stripe = channels.stripe_bytes().max(1);
    let pieces = u64::from(settings.piece_bytes).div_ceil(stripe) * stripe;
    HashSettings {
        partitions: Some(found.partitions.get()),
        incarnations: found.incarnations.get(),
        bucket_entries: Some(found.bucket_entries.get()),
        page_bytes: found.page_bytes.get(),
        channels,
        piece_bytes: u32::try_from(pieces).unwrap_or(u32::MAX),
        spread: found.spread.get() != 0,
        scheduling: Scheduling {
            queue_depth: settings.scheduling.queue_depth.max(1),
            channel_depth: settings.scheduling.channel_depth.max(1),
            ..settings.scheduling
        },
        ..settings.clone()
    }
}

fn created_shape(found: &SliceSuperblock) -> HashShape {
    let page = EntryPage {
        page_bytes: found.page_bytes.get() as usize,
        incarnations: found.incarnations.get() as usize,
        slots: found.slots_per_page.get() as usize,
        bucket_entries: found.bucket_entries.get() as usize,
        filter_bytes: found.filter_bytes.get() as usize,
    };
    HashShape {
        partitions: found.partitions.get(),
        pages: found.pages.get(),
        page,
        table_entries: found.own[0].get() as u32,
        region_bytes: u64::from(found.pages.get()) * u64::from(found.page_bytes.get()),
    }
}
