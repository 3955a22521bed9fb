//! SliceBloom: a Bloom filter larger than memory (section 6, "Bloom Filters").
//!
//! ```text
//!   insert ──▶ bits of its partition's filter, words of the log ──full──▶ frozen ──flush──▶ slicetable on the drive
//!   look up ─▶ filter, frozen filter ──not all bits──▶ for each function's page: which incarnations have its bits?
//!                                                      └ until none has all, or no function is left
//! ```
//!
//! An inserted key is never denied until its incarnation has been overwritten: the bits of a damaged page count as set in the
//! incarnations that it held (`docs/papers/slices.md` lists the possible failures). A key that was not inserted may be affirmed,
//! as often as [`BloomShape::false_positive_rate`] says.

mod bits;
mod created;
mod memory;
mod page;
mod rates;
mod settings;

use std::iter::once;
use std::sync::Arc;

use crate::encoding::log::FilterHead;
use crate::encoding::table::SliceKind;
use device::{Disk, Journal};
use parking_lot::Mutex;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::counts::Counts;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::flush::{self, Flush, Flushes, Partition, State};
use crate::frozen::{Frozen, FrozenQueue, Written};
use crate::incarnations::Incarnations;
use crate::layout::{Layout, drive_bytes};
use crate::regions::Region;
use crate::superblock::{self, Instance};
use bits::{BitKeys, KeyBits};
use created::{created_shape, superblock_of};
use memory::{FoundFilter, MemoryFilters};
use page::{Candidates, put_bits};

pub use settings::{BitPlacement, BloomSettings, BloomShape};

/// A Bloom filter that lies on drives. Clones are the same filter.
///
/// All operations may be called at once, from every thread that a runtime drives. An [`insert`](Self::insert) that has returned
/// survives the process. A power cut keeps the keys before the last [`sync`](Self::sync). A full partition drops its oldest
/// incarnation, and with it the keys that were inserted first.
#[derive(Clone)]
pub struct SliceBloom(Arc<BloomFilter>);

struct BloomFilter {
    shape: BloomShape,
    keys: BitKeys,
    drives: Drives,
    incarnations: Incarnations,
    partitions: Box<[Partition<BloomFilter>]>,
    memory: MemoryFilters,
    flushes: Flushes,
    counts: Counts<BloomStats>,
}

/// The filter of a partition that takes keys.
struct Active {
    keys: u32,
}

/// Counts of a [`SliceBloom`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct BloomStats {
    /// Keys that have set a bit of the filter in memory. Other inserted keys found all of their bits set.
    pub inserted: u64,
    /// Keys that were looked up, present or absent.
    pub lookups: u64,
    /// Look-ups that a filter in memory has answered by "maybe".
    pub memory_hits: u64,
    /// Look-ups that an incarnation on a drive has answered by "maybe".
    pub drive_hits: u64,
    /// Pages that look-ups have read, for every answer.
    pub page_reads: u64,
    /// Filters that have been flushed.
    pub flushes: u64,
    /// Filters that were overwritten as the oldest incarnation.
    pub evicted: u64,
    /// Bytes that flushes have read.
    pub bytes_read: u64,
    /// Bytes that flushes have written.
    pub bytes_written: u64,
    /// Damaged pages that flushes have started empty. The bits that they held count as set until they are overwritten.
    pub pages_lost: u64,
    /// Damaged pages of filters in memory. All of their bits count as set.
    pub log_pages_lost: u64,
}

/// Memory of a [`SliceBloom`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BloomMemory {
    /// Filters of the partitions, including filters that are being flushed: mapped pages of the log.
    pub filters: u64,
    /// Other memory of the partitions.
    pub partitions: u64,
    /// For each drive, two pieces of the slicetable that it rewrites, one being written and one being read, and the filter that
    /// is added.
    pub pieces: u64,
}

impl SliceBloom {
    /// Returns the words of the log of a filter with these settings on drives of these sizes in bytes.
    ///
    /// # Errors
    /// As [`BloomSettings::shape`].
    pub fn log_words(settings: &BloomSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        Ok(MemoryFilters::words(&settings.shape(drive_bytes)?))
    }

    /// Returns [`log_words`](Self::log_words) for these drives.
    ///
    /// # Errors
    /// As [`BloomSettings::shape`].
    pub fn log_words_for(
        settings: &BloomSettings,
        disks: &[Arc<dyn Disk>],
    ) -> Result<usize, SliceError> {
        Self::log_words(settings, &drive_bytes(disks))
    }

    /// Creates an empty filter on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words). Each
    /// partition lies on one of the drives.
    ///
    /// # Errors
    /// Settings that are out of range, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &BloomSettings,
    ) -> Result<Self, SliceError> {
        let shape = settings.shape(&drive_bytes(&disks))?;
        let layout = settings.layout();
        let instance = Instance::random();
        let superblock = superblock_of(&layout, &shape, instance);
        let words = MemoryFilters::words(&shape);
        superblock::create(&disks, &*journal, words, superblock, &layout).await?;
        let memory = MemoryFilters::create(journal, &shape, instance.id).await?;
        Self::start(disks, memory, &layout, shape, instance).await
    }

    /// Opens the filter on `disks`, named in the order of its creation, with its log. `settings` says how the filter is used;
    /// values that were chosen at its creation are kept.
    ///
    /// # Errors
    /// If the disks hold no filter, if a drive or the log is missing, belongs to another structure or is shorter than it was, if
    /// a setting is out of range, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &BloomSettings,
    ) -> Result<Self, SliceError> {
        let found = superblock::read(&disks, SliceKind::Bloom).await?;
        let layout = settings.layout().created(&found)?;
        let shape = created_shape(&found)?;
        let instance = Instance::of(&found);
        let memory = MemoryFilters::open(journal, &shape, instance.id)?;
        superblock::check_space(&disks, &found, &layout, &memory.pointers)?;
        Self::start(disks, memory, &layout, shape, instance).await
    }

    async fn start(
        disks: Vec<Arc<dyn Disk>>,
        memory: MemoryFilters,
        layout: &Layout,
        shape: BloomShape,
        instance: Instance,
    ) -> Result<Self, SliceError> {
        let drives = Drives::open(disks, layout, instance, shape.pages, &memory.pointers)?;
        let mut inner = BloomFilter {
            keys: BitKeys {
                seed: instance.seed,
                partitions: shape.partitions,
                pages: shape.pages,
                page: shape.page,
                functions: shape.functions,
                placement: shape.placement,
            },
            incarnations: Incarnations {
                count: shape.page.incarnations,
                slicetables: 1,
            },
            shape,
            flushes: Flushes::new(drives.len(), 0),
            drives,
            partitions: Box::new([]),
            memory,
            counts: Counts::default(),
        };
        inner.partitions = (0..shape.partitions)
            .map(|number| inner.found(number))
            .collect::<Result<_, _>>()?;
        let opened = Self(Arc::new(inner));
        // Stores that the previous process has not synced may be lost. They are made durable before anything is done with them.
        opened.sync().await?;
        flush::all_flushed(&opened.0).await?;
        Ok(opened)
    }

    /// Returns whether a key may have been inserted. Returns true if it was and its incarnation has not been overwritten, and
    /// otherwise false, except for false positives. Reads no page if a filter in memory says "maybe". Otherwise it reads a page
    /// for each function, or one page with [`BitPlacement::OnePage`], and stops once no incarnation has all bits so far.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page ([`SliceError::Damaged`]): the key may have been inserted.
    pub async fn may_contain(&self, key: &[u8]) -> Result<bool, SliceError> {
        self.0.may_contain(key).await
    }

    /// Inserts a key. A key that was inserted before lasts as if it were new. Waits while both filters of the partition are full.
    ///
    /// # Errors
    /// The error of the last flush, if there is no space because flushes fail. They are tried again until they succeed.
    pub async fn insert(&self, key: &[u8]) -> Result<(), SliceError> {
        let inner = &self.0;
        let bits = inner.keys.bits(key);
        let attempt = |state: &mut State<BloomFilter>| inner.try_insert(state, &bits);
        let is_full = |state: &mut State<BloomFilter>| state.active.keys >= inner.shape.keys;
        flush::change(inner, bits.partition, attempt, is_full).await
    }

    /// Makes all inserts that have returned durable.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn sync(&self) -> Result<(), SliceError> {
        self.0.sync().await
    }

    /// Flushes every filter that has keys. Each becomes an incarnation, however few keys it has. Durability does not need it.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn flush(&self) -> Result<(), SliceError> {
        flush::flush_all(&self.0, |state| state.active.keys > 0).await
    }

    /// Waits for the flushes under way, and makes all inserts durable. The drives may be opened again when it has returned and
    /// every clone is gone. A filter that is merely dropped may still be flushing.
    ///
    /// # Errors
    /// The error of a flush or of the log. Keys in the log are not lost.
    pub async fn close(self) -> Result<(), SliceError> {
        flush::close(&self.0).await?;
        self.sync().await
    }

    /// Returns the counts since the filter was opened.
    pub fn stats(&self) -> BloomStats {
        let drives = self.0.drives.counts();
        BloomStats {
            page_reads: drives.page_reads,
            bytes_read: drives.bytes_read,
            bytes_written: drives.bytes_written,
            pages_lost: drives.pages_lost,
            ..self.0.counts.sums()
        }
    }

    /// Returns the drive of a key, and the channels of its pages, in the order in which a look-up reads them. Channels count from
    /// that of the slicetable's first page.
    pub fn places_of(&self, key: &[u8]) -> (usize, Vec<u32>) {
        let inner = &self.0;
        let bits = inner.keys.bits(key);
        let drive = inner.drives.of(bits.partition);
        let page = &inner.shape.page;
        let mut pages: Vec<u32> = bits
            .slots()
            .iter()
            .map(|slot| slot / page.slots as u32)
            .collect();
        pages.dedup();
        let channel = |page| drive.shape.channel(page);
        (drive.number, pages.into_iter().map(channel).collect())
    }

    /// Returns the shape that follows from the settings of the filter's creation.
    pub fn shape(&self) -> &BloomShape {
        &self.0.shape
    }

    /// Returns the memory of the filter now.
    pub fn memory(&self) -> BloomMemory {
        self.0.memory()
    }
}

impl BloomMemory {
    /// Returns the memory of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.filters + self.partitions + self.pieces
    }
}

impl BloomFilter {
    /// Returns the state of a partition as the log has it.
    fn found(&self, number: u32) -> Result<Partition<Self>, SliceError> {
        let pointer = self.memory.pointers.get(number, 0);
        let written = pointer.generation;
        let first = self.memory.find(number, written + 1)?;
        let next = self.memory.find(number, written + 2)?;
        if first.is_none() {
            self.memory.begin(number, written + 1);
        }
        let lost = first.iter().chain(&next).map(|found| found.pages_lost);
        let lost = lost.sum();
        self.counts.add(|counts| counts.log_pages_lost = lost);
        let keys = |found: FoundFilter| found.keys;
        let (keys, generation, frozen) = match next {
            None => (first.map_or(0, keys), written + 1, None),
            Some(found) => (found.keys, written + 2, Some(Frozen::left((), written + 1))),
        };
        Ok(Partition::new(State {
            active: Active { keys },
            generation,
            frozen: FrozenQueue::left(frozen),
            slicetables: vec![self.drives.of(number).found(pointer)],
        }))
    }

    /// Sets the bits of a key. Returns whether there was space for it.
    fn try_insert(&self, state: &mut State<Self>, bits: &KeyBits) -> bool {
        let (number, generation) = (bits.partition, state.generation);
        if self.memory.has(number, generation, bits.slots()) {
            return true;
        }
        if state.active.keys >= self.shape.keys {
            return false;
        }
        state.active.keys += 1;
        let head = FilterHead {
            generation,
            keys: state.active.keys,
        };
        self.memory.insert(number, head, bits.slots());
        self.counts.add(|counts| counts.inserted = 1);
        true
    }

    async fn sync(&self) -> Result<(), SliceError> {
        let store_again = || {
            for (number, partition) in (0..).zip(&self.partitions) {
                let state = partition.state.lock();
                self.memory.store_again(number, state.generation);
                for frozen in state.frozen.oldest_first() {
                    self.memory.store_again(number, frozen.generation);
                }
            }
        };
        // Filters whose pages are not known to be durable yet. After this sync an empty page is damage.
        let begun = Mutex::new(Vec::new());
        let note_begun = || {
            for (number, partition) in (0..).zip(&self.partitions) {
                let state = partition.state.lock();
                let frozen = state.frozen.oldest_first().map(|frozen| frozen.generation);
                let generations = once(state.generation).chain(frozen);
                let unmarked =
                    generations.filter(|&generation| !self.memory.is_marked(number, generation));
                let unmarked = unmarked.map(|generation| (number, generation));
                begun.lock().extend(unmarked);
            }
        };
        let mark = || {
            for &(number, generation) in &*begun.lock() {
                let state = self.partitions[number as usize].state.lock();
                // The half may belong to another generation by now.
                if state.generation <= generation + 1 {
                    self.memory.set_mark(number, generation);
                }
            }
        };
        let pointers = &self.memory.pointers;
        pointers.sync(store_again, note_begun, mark).await
    }

    async fn may_contain(&self, key: &[u8]) -> Result<bool, SliceError> {
        self.counts.add(|counts| counts.lookups = 1);
        let bits = self.keys.bits(key);
        let number = bits.partition;
        let region = {
            let state = self.partitions[number as usize].state.lock();
            let frozen = state.frozen.newest_first();
            let frozen = frozen.map(|frozen| frozen.generation);
            let mut generations = once(state.generation).chain(frozen);
            if generations.any(|generation| self.memory.has(number, generation, bits.slots())) {
                self.counts.add(|counts| counts.memory_hits = 1);
                return Ok(true);
            }
            match &state.slicetables[0] {
                Some(region) => Arc::clone(region),
                None => return Ok(false),
            }
        };
        let page = &self.shape.page;
        let per_page = page.slots as u32;
        let mut candidates = Candidates::all(page);
        let by_page = |a: &u32, b: &u32| a / per_page == b / per_page;
        for slots in bits.slots().chunk_by(by_page) {
            let page_number = slots[0] / per_page;
            let drive = self.drives.of(number);
            let read = drive.read_page(&region, number, page_number).await?;
            let slots = slots.iter().map(|slot| (slot % per_page) as usize);
            let is_unknown = |incarnation| {
                let generation = self.incarnations.generation(region.generation, incarnation);
                generation.is_some_and(|generation| generation <= read.floor)
            };
            let is_unknown = (read.floor > 0).then_some(is_unknown);
            candidates.keep(page, &read.bytes, slots, is_unknown);
            if candidates.is_empty() {
                return Ok(false);
            }
        }
        self.counts.add(|counts| counts.drive_hits = 1);
        Ok(true)
    }

    fn memory(&self) -> BloomMemory {
        let filter = 8 * self.shape.filter_words() as u64;
        let frozen = self
            .partitions
            .iter()
            .map(|partition| partition.state.lock().frozen.len());
        let filters = self.partitions.len() + frozen.sum::<usize>();
        // Includes the region and the five words of the log.
        let per_partition = size_of::<Partition<Self>>()
            + size_of::<(Region, usize)>()
            + size_of::<(u64, [FilterHead; 4])>();
        let pieces = self.drives.iter();
        BloomMemory {
            filters: filter * filters as u64,
            partitions: (self.partitions.len() * per_partition) as u64,
            pieces: pieces
                .map(|drive| {
                    let pieces = 2 * drive.shape.piece_bytes as u64;
                    pieces.min(self.shape.region_bytes) + filter
                })
                .sum(),
        }
    }
}

impl Flush for BloomFilter {
    type Active = Active;
    /// The filter is in its half of the log.
    type Frozen = ();

    fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    fn drives(&self) -> &Drives {
        &self.drives
    }

    fn partitions(&self) -> &[Partition<Self>] {
        &self.partitions
    }

    fn freeze(&self, number: u32, next: u32, active: &mut Active) {
        active.keys = 0;
        self.memory.begin(number, next);
    }

    fn most_frozen(&self) -> usize {
        1
    }

    async fn rewrite(&self, number: u32) -> Result<Written, SliceError> {
        let drive = self.drives.of(number);
        let turn = drive.rewriting().await;
        let (generation, old) = {
            let state = self.partitions[number as usize].state.lock();
            let frozen = state.frozen.oldest_first().next();
            let frozen = frozen.expect("only what is frozen is flushed");
            (frozen.generation, state.slicetables[0].clone())
        };
        let filter = self.memory.read(number, generation)?;
        self.counts
            .add(|counts| counts.log_pages_lost = filter.pages_lost);
        let filter = filter.words;
        let (page, incarnation) = (&self.shape.page, self.incarnations.of(generation));
        let change = |page_number: u32, bytes: &mut [u8]| {
            let first = page_number as usize * page.slots;
            put_bits(page, bytes, incarnation, &filter, first);
        };
        let rewritten = drive.rewrite(turn, old.as_deref(), number, generation, change);
        let region = rewritten.await?;
        let is_evicted = generation as usize > page.incarnations;
        self.counts.add(|counts| {
            counts.flushes = 1;
            counts.evicted = is_evicted.into();
        });
        Ok(Written {
            nth: 0,
            region: Arc::new(region),
        })
    }

    async fn point(&self, number: u32, nth: usize, region: &Arc<Region>) -> Result<(), SliceError> {
        let pointers = &self.memory.pointers;
        pointers.set(number, nth as u32, region.pointer()).await?;
        self.memory.let_go(number, region.generation);
        Ok(())
    }

    fn release(&self, _flushed: ()) {}
}
