//! SliceHash: a hash table of 8-byte keys and values (section 5).

mod created;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Disk, Journal};
use format::slices::{Pointer, SliceKind};
use futures_util::future::join_all;

use crate::drive::{Drive, TableShape, drives};
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{self, Flush, Flushes, Frozen, Partition, State};
use crate::keys::{Keys, Slots};
use crate::layout::refuse_twice;
use crate::log::{Half, Log, LogShape, Replayed};
use crate::page::{Page, PageMut};
use crate::pointers::check_regions;
use crate::regions::Region;
use crate::settings::{HashSettings, HashShape};
use crate::superblock::{self, Instance};
use crate::table::{Change, Full, Table};
use created::{created_settings, created_shape, superblock_of};
use stats::Counts;

pub use stats::{HashMemory, HashStats};

/// Entries of a half of the log, for each that a table holds: updates of what is there take an entry, too.
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
}

/// What is in memory of a partition and takes changes.
struct Active {
    table: Table,
    half: Half,
}

/// A table that is full.
struct FrozenTable {
    table: Arc<Table>,
    half: Half,
}

/// What a look-up has found on a drive.
struct FoundOn {
    change: Option<(u32, Change)>,
    /// What is not younger does not count.
    floor: u32,
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
        let log_shape = log_shape(&shape, settings.spread, disks.len());
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
        let log_shape = log_shape(&shape, settings.spread, disks.len());
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
            flushes: Flushes::new(count),
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
                each(&mut state.active.half);
                if let Some(frozen) = &mut state.frozen {
                    each(&mut frozen.memory.half);
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
        let next = self.log.replay(number, written + 2)?;
        let (half, changes) = match self.log.replay(number, written + 1)? {
            Replayed::Begun(half, changes) => (half, changes),
            Replayed::NotBegun => (self.log.begin(number, written + 1), Vec::new()),
        };
        let table = self.table_of(number, changes)?;
        let (active, generation, frozen) = match next {
            Replayed::Begun(next_half, next_changes) if !next_changes.is_empty() => {
                let table = Arc::new(table);
                let next = Active {
                    table: self.table_of(number, next_changes)?,
                    half: next_half,
                };
                let frozen = Frozen::left(FrozenTable { table, half }, written + 1);
                (next, written + 2, Some(frozen))
            }
            _ => (Active { table, half }, written + 1, None),
        };
        Ok(Partition::new(State {
            active,
            generation,
            frozen,
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
            self.log.has_space(&active.half) && active.table.insert(key, change).is_ok();
        if has_changed {
            self.log.append(&mut active.half, key, change);
        }
        has_changed
    }

    /// Whether the table does not take `key`, as it is.
    fn is_full_for(&self, active: &mut Active, key: u64) -> bool {
        !self.log.has_space(&active.half) || !active.table.has_place(key)
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
                let frozen = state.frozen.as_ref()?;
                frozen.memory.table.get(key)
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
            self.count_hit(value);
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
        let is_known = youngest.is_some_and(|(generation, _)| generation > floor);
        let value = youngest
            .filter(|_| is_known)
            .and_then(|(_, change)| value_of(change));
        self.count_hit(value);
        Ok(value)
    }

    fn count_hit(&self, value: Option<u64>) {
        self.counts
            .drive_hits
            .fetch_add(value.is_some().into(), Ordering::Relaxed);
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
        let per_partition = size_of::<Partition<Self>>()
            + self.drives_of_a_partition() as usize * size_of::<(Region, usize)>();
        HashMemory {
            tables: table * tables as u64,
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
            half: self.log.begin(number, next),
        };
        let mut full = std::mem::replace(active, next);
        full.table.settle();
        FrozenTable {
            table: Arc::new(full.table),
            half: full.half,
        }
    }

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
                Arc::clone(&frozen.memory.table),
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
        add(&self.counts.flushes, 1);
        add(&self.counts.flushed_entries, table.len() as u64);
        add(&self.counts.evicted, evicted);
        add(&self.counts.erased, erased);
        Ok((nth, Arc::new(region)))
    }

    async fn point(&self, number: u32, nth: usize, region: &Arc<Region>) -> Result<(), SliceError> {
        let pointers = &self.log.pointers;
        pointers.set(number, nth as u32, region.pointer()).await
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
