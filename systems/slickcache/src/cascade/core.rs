//! [`Cascade`]: its parts, and the operations on Tier 1 alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Disk as _, IoFuture, Region};
use format::mapping::Entry;
use format::segment::Position;
use parking_lot::{Mutex, MutexGuard};
use runtime::pages::PagePool;
use runtime::sync::{Notify, Semaphore};

use super::bounds::{Bounds, Reserve};
use super::brake::Brake;
use super::doubt::Doubt;
use super::hot::{self, Hot, HotTable};
use super::jump;
use super::layout::BlockLayout;
use super::pages::{PageStore, Saves};
use super::partition::{Layouts, Partition};
use super::shape::{CascadeConfig, Shape};
use super::slices::Filter;

use index::ConfigError;

/// Most searches that read flash at once: each holds a batch of pages.
pub(super) const SEARCHES: usize = 64;
/// Filter bits per entry that Tier 2 and active lists have beyond those of inactive buckets. A look-up checks 64 small
/// blocks of Tier 2, half as many blocks of a list, and six pages of a bucket. Tier 2 holds a 48th of all entries, lists
/// a twelfth. For a given memory reads are fewest if the number of checks times the false-positive rate is in proportion
/// to the share of entries.
pub(super) const MORE_DIRECT_BITS: u32 = 12;
pub(super) const MORE_ACTIVE_BITS: u32 = 8;
/// Most compactions at once: each holds a whole list.
const COMPACTIONS: usize = 1;

/// The segments that the entries of a cascade name.
pub trait Segments: Send + Sync {
    /// Returns the segment's number and the position that a place code names, or `None` if the segment is gone.
    fn named_by(&self, code: u64) -> Option<(u32, Position)>;

    /// Returns the place code of a position in a segment, or `None` if the segment is gone.
    fn code(&self, number: u32, position: Position) -> Option<u64>;

    /// Returns a number such that nearly all segments with lower numbers are gone.
    fn horizon(&self) -> u32;

    /// Makes everything written to the region durable. The region may share its device with the segments. If it has a
    /// device of its own, calls do not overlap.
    fn sync<'a>(&'a self, region: &'a Region) -> IoFuture<'a, ()> {
        region.sync()
    }

    /// Returns the number of failed syncs of the region's device, whoever called them, as an error is reported to one
    /// caller only.
    fn failed_syncs(&self) -> u64;
}

/// The index. All threads use it at once.
pub struct Cascade {
    pub(super) config: CascadeConfig,
    pub(super) shape: Shape,
    pub(super) bounds: Bounds,
    pub(super) layouts: Layouts,
    /// Mask of the hash bits that are kept.
    pub(super) kept: u64,
    pub(super) image: u64,
    pub(super) partitions: Box<[Mutex<Partition>]>,
    /// Wakes the upkeep of each partition.
    pub(super) work: Box<[Notify]>,
    pub(super) store: PageStore,
    pub(super) segments: Arc<dyn Segments>,
    pub(super) next_number: AtomicU64,
    pub(super) searches: Semaphore,
    pub(super) compactions: Semaphore,
    pub(super) wants_checkpoint: AtomicBool,
    pub(super) checkpoint_wanted: Arc<Notify>,
    pub(super) brake: Brake,
    pub(super) counters: Counters,
    pub(super) hot_bytes: AtomicU64,
    pub(super) flash_tier_bytes: Box<[AtomicU64]>,
    pub(super) saved: Mutex<Saves>,
    pub(super) doubt: Doubt,
}

/// Counts since the cascade was opened.
#[derive(Debug, Default)]
#[allow(
    missing_docs,
    reason = "the names say it; docs/guide/statistics.md has the table"
)]
pub struct Counters {
    pub tier1_hits: AtomicU64,
    pub tier2_hits: AtomicU64,
    pub tier3_hits: AtomicU64,
    /// Searches of flash that found nothing.
    pub absent: AtomicU64,
    /// Pages read by look-ups that Tier 2 answered, that Tier 3 answered, and that found nothing.
    pub tier2_reads: AtomicU64,
    pub tier3_reads: AtomicU64,
    pub absent_reads: AtomicU64,
    /// Batches of Tier 2 read by all look-ups.
    pub tier2_batches: AtomicU64,
    pub demoted: AtomicU64,
    pub promoted: AtomicU64,
    pub compactions: AtomicU64,
    /// Pages that could not be read or did not verify.
    pub damaged_pages: AtomicU64,
    /// Mappings dropped because a newer one may have been on a damaged page.
    pub dropped_behind_damage: AtomicU64,
    /// Mappings dropped because the region was full.
    pub evicted: AtomicU64,
    pub write_errors: AtomicU64,
}

/// Returns the filter bits per entry: `more` than inactive buckets have, or 0 if these have no filters.
pub(super) fn more_filter_bits(config: &CascadeConfig, more: u32) -> u32 {
    match config.filter_bits {
        0 => 0,
        bits => bits + more,
    }
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// Reason why a cascade cannot be created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum CascadeError {
    /// Tier 1 cannot be created.
    #[error("tier 1 cannot be made: {0}")]
    Hot(#[from] ConfigError),
    /// The region is too small.
    #[error("the index region has {pages} pages and needs {least} for {capacity} mappings")]
    Region {
        pages: usize,
        least: usize,
        capacity: u64,
    },
}

/// Tier 1 has no space for another mapping until upkeep moves some down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotFull;

impl Cascade {
    /// Creates an empty cascade on a region of `image`.
    ///
    /// # Errors
    /// [`CascadeError`].
    pub fn new(
        config: CascadeConfig,
        region: Region,
        image: u64,
        segments: Arc<dyn Segments>,
        pool: &Arc<PagePool>,
    ) -> Result<Self, CascadeError> {
        let shape = Shape::of(&config);
        let pages = PageStore::pages_of(&region);
        let bounds = Bounds::new(&config, &shape, pages);
        let store = PageStore::new(region, bounds.reserved(), config.discard);
        let least = Self::least_pages(&config);
        if store.pages() < least {
            return Err(CascadeError::Region {
                pages: store.pages(),
                least,
                capacity: config.capacity,
            });
        }
        let kept_bits = hot::kept_bits(&config, &shape)?;
        let layout = |prefix_bits, block_entries, more_bits| BlockLayout {
            image,
            prefix_bits,
            filter: Filter::new(block_entries, more_filter_bits(&config, more_bits)),
            page_filter: Filter::new(shape.page_entries, config.filter_bits),
            page_entries: shape.page_entries,
            whole_blocks: config.whole_blocks,
        };
        let list_bits = shape.partition_bits + shape.list_bits;
        let layouts = Layouts {
            direct: layout(shape.partition_bits, shape.demoted(), MORE_DIRECT_BITS),
            active: layout(list_bits, shape.buffered(), MORE_ACTIVE_BITS),
            list_bits: shape.list_bits,
            ratio: shape.ratio,
            jump_distance: shape.jump_distance,
        };
        let partition = |number| {
            let hot = HotTable::new(&config, &shape, number, Arc::clone(pool))?;
            Ok(Mutex::new(Partition::new(hot, &layouts)))
        };
        let partitions = (0..shape.partitions())
            .map(partition)
            .collect::<Result<Box<[_]>, ConfigError>>()?;
        let hot_bytes = partitions.iter().map(|one| one.lock().hot.memory_bytes());
        let hot_bytes = AtomicU64::new(hot_bytes.sum());
        let count = shape.partitions();
        let cascade = Self {
            config,
            shape,
            bounds,
            layouts,
            kept: u64::MAX << (u64::BITS - kept_bits),
            image,
            partitions,
            work: (0..count).map(|_| Notify::default()).collect(),
            store,
            segments,
            next_number: AtomicU64::new(1),
            searches: Semaphore::new(SEARCHES),
            compactions: Semaphore::new(COMPACTIONS),
            wants_checkpoint: AtomicBool::new(false),
            checkpoint_wanted: Arc::default(),
            brake: Brake::new(count),
            counters: Counters::default(),
            hot_bytes,
            flash_tier_bytes: (0..count).map(|_| AtomicU64::new(0)).collect(),
            saved: Mutex::default(),
            doubt: Doubt::new(count),
        };
        for number in 0..count {
            cascade.account(number, &cascade.partitions[number].lock());
        }
        Ok(cascade)
    }

    /// Returns the fewest pages of a region with which upkeep can move mappings.
    pub fn least_pages(config: &CascadeConfig) -> usize {
        let shape = Shape::of(config);
        let jump_pages = if shape.jump_distance > 0 {
            jump::most_pages(shape.active_blocks, shape.active_blocks * shape.buffered())
        } else {
            0
        };
        let of_partition = (shape.direct_blocks + 4) * shape.direct_pages
            + shape.lists() * ((shape.active_blocks + 4) * shape.active_pages + jump_pages);
        let moved = 2 * shape.partitions() * of_partition;
        moved + 2 * Reserve::checkpoint_pages(&shape, moved)
    }

    /// Returns the number of partitions, each of which needs an [`upkeep`](Self::upkeep) task.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the bytes of memory in use, without the buffers of running searches and compactions.
    pub fn memory_bytes(&self) -> u64 {
        let below = self.flash_tier_bytes.iter();
        let below: u64 = below.map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        self.hot_bytes.load(Ordering::Relaxed) + below + self.store.memory_bytes()
    }

    /// Returns the bytes of memory of Tier 1.
    pub fn hot_bytes(&self) -> u64 {
        self.hot_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of flash in use, and the bytes written so far.
    pub fn flash_bytes(&self) -> (u64, u64) {
        let page = device::PAGE_BYTES as u64;
        let used = self.store.pages() - self.store.free_pages();
        (used as u64 * page, self.store.pages_written() * page)
    }

    /// Tells the drive of released pages, if [configured](CascadeConfig::discard). Never returns; one task for the whole
    /// cascade.
    pub async fn discard(&self) {
        self.store.discard().await;
    }

    /// Returns whether a checkpoint would free pages that are needed.
    pub fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint.load(Ordering::Relaxed)
    }

    /// Makes the index notify `wanted` when it begins to want a checkpoint.
    #[must_use]
    pub fn notifying(mut self, wanted: &Arc<Notify>) -> Self {
        self.checkpoint_wanted = Arc::clone(wanted);
        self
    }

    /// Notified when a checkpoint is wanted.
    pub fn checkpoint_wanted(&self) -> &Notify {
        &self.checkpoint_wanted
    }

    /// Whether Tier 1 has so many tombstones that soon no checkpoint would have space for it.
    pub(super) fn is_overwhelmed(&self, partition: &Partition) -> bool {
        partition.hot.len() > self.bounds.buried()
    }

    /// Whether Tier 1 has space for a mapping found in a lower tier.
    pub(super) fn may_promote(&self, partition: &Partition) -> bool {
        partition.hot.len() < self.bounds.grown()
    }

    /// Returns whether upkeep is so far behind that Tier 1 may soon refuse mappings. Callers should then wait for
    /// [`caught_up`](Self::caught_up). Returns false if upkeep cannot make progress.
    pub fn is_behind(&self) -> bool {
        self.brake.is_pressed()
    }

    /// Notified when upkeep has caught up, or cannot make progress.
    pub fn caught_up(&self) -> &Notify {
        &self.brake.released
    }

    /// Asks for a checkpoint unless one is asked for already.
    pub(super) fn ask_for_checkpoint(&self) {
        if !self.wants_checkpoint.swap(true, Ordering::Relaxed) {
            self.checkpoint_wanted.notify_all();
        }
    }

    /// Returns the place code of an entry, or `None` for a tombstone and for a segment that is gone.
    pub(super) fn code_of(&self, entry: &Entry) -> Option<u64> {
        let (number, position) = entry.item()?;
        self.segments.code(number, position)
    }

    pub(super) fn number_of(&self, hash: u64) -> usize {
        ((hash >> 1) >> (63 - self.shape.partition_bits)) as usize
    }

    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Partition> {
        self.partitions[self.number_of(hash)].lock()
    }

    /// Runs `change` on the partition of `hash` and updates the memory accounted to Tier 1.
    pub(super) fn change<T>(&self, hash: u64, change: impl FnOnce(&mut Partition) -> T) -> T {
        let mut partition = self.lock(hash);
        let before = partition.hot.memory_bytes();
        let result = change(&mut partition);
        let grown = partition.hot.memory_bytes().wrapping_sub(before);
        let is_due = partition.hot.len() > self.bounds.hot();
        drop(partition);
        if grown != 0 {
            add(&self.hot_bytes, grown);
        }
        if is_due {
            self.work[self.number_of(hash)].notify_all();
        }
        result
    }

    pub(super) fn account(&self, number: usize, partition: &Partition) {
        if partition.hot.len() < self.brake.entries(&self.bounds) {
            self.brake.release(number);
        }
        if let Some(reserved) = self.bounds.settle(&self.shape, number, partition.hot.len()) {
            self.store.reserve(reserved);
        }
        let bytes = partition.heap_bytes() as u64;
        self.flash_tier_bytes[number].store(bytes, Ordering::Relaxed);
    }

    /// Returns the mapping of a key in Tier 1, and whether it was read since it was inserted or passed over.
    pub fn lookup(&self, hash: u64) -> Option<(Hot, bool)> {
        let hash = hash & self.kept;
        let entry = self.lock(hash).hot.get(hash)?;
        Some((entry.hot, entry.is_recent))
    }

    /// As [`lookup`](Self::lookup), and counts as a read.
    pub fn access(&self, hash: u64) -> Option<(Hot, bool)> {
        let hash = hash & self.kept;
        let entry = self.lock(hash).hot.access(hash)?;
        add(&self.counters.tier1_hits, 1);
        Some((entry.hot, entry.is_recent))
    }

    /// Touches the buckets of these keys, all of one partition, ahead of calls that need them. The first key only selects
    /// the partition.
    pub fn warm(&self, hashes: &mut dyn Iterator<Item = u64>) {
        let Some(first) = hashes.next() else { return };
        self.lock(first).hot.warm(hashes);
    }

    /// Whether a tier below the first may name a key.
    pub fn may_be_below(&self, hash: u64) -> bool {
        let hash = hash & self.kept;
        self.lock(hash).may_be_below(&self.layouts, hash)
    }

    /// Maps a key to a place and supersedes all its older mappings. Returns the mapping that Tier 1 had. If `may_grow`,
    /// Tier 1 may exceed its size while the lower tiers do not keep up, as far as a checkpoint of it has space.
    ///
    /// # Errors
    /// [`HotFull`], with nothing changed. A key that Tier 1 has already is never refused.
    pub fn insert(&self, hash: u64, code: u64, may_grow: bool) -> Result<Option<Hot>, HotFull> {
        let hash = hash & self.kept;
        let most = if may_grow {
            self.bounds.grown()
        } else {
            self.bounds.most_hot()
        };
        self.change(hash, |partition| {
            let before = partition.hot.get(hash).map(|entry| entry.hot);
            self.press_where_full(self.number_of(hash), partition, most);
            if before.is_none() && partition.hot.len() >= most {
                return Err(HotFull);
            }
            partition.hot.put(hash, Hot::At(code), true);
            Ok(before)
        })
    }

    /// Removes all mappings of a key. Returns the mapping that Tier 1 had; whether a lower tier had one is not known.
    pub fn bury(&self, hash: u64) -> Option<Hot> {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let before = partition.hot.get(hash).map(|entry| entry.hot);
            partition.bury(&self.layouts, hash);
            // A tombstone is never refused, so it takes space from later insertions.
            self.press_where_full(self.number_of(hash), partition, self.bounds.grown());
            before
        })
    }

    /// Presses the brake if Tier 1 of a partition nearly has `most` entries.
    pub(super) fn press_where_full(&self, number: usize, partition: &Partition, most: usize) {
        if partition.hot.len() >= self.brake.entries_of(most, &self.bounds) {
            self.brake.press(number, most);
        }
    }

    /// [Buries](Self::bury) a key if Tier 1 maps it to `code`. Returns whether it did.
    pub fn bury_if(&self, hash: u64, code: u64) -> bool {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let is_named = partition.says(hash, code);
            if is_named {
                partition.bury(&self.layouts, hash);
                self.press_where_full(self.number_of(hash), partition, self.bounds.grown());
            }
            is_named
        })
    }

    /// Removes all mappings of reclaimed segments from Tier 1.
    pub fn sweep(&self) {
        for number in 0..self.partitions.len() {
            let partition = &mut *self.partitions[number].lock();
            let before = partition.hot.memory_bytes();
            let gone = partition
                .hot
                .take_gone(|code| self.segments.named_by(code).is_none());
            for hash in gone {
                partition.bury(&self.layouts, hash);
            }
            let grown = partition.hot.memory_bytes().wrapping_sub(before);
            add(&self.hot_bytes, grown);
        }
    }

    /// Replaces the mapping of a key by `new` if Tier 1 maps it to `old`. Returns whether it did.
    pub fn replace_if(&self, hash: u64, old: u64, new: u64) -> bool {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let is_named = partition.says(hash, old);
            if is_named {
                partition.hot.put(hash, Hot::At(new), true);
            }
            is_named
        })
    }
}
