//! [`Cascade`]: its parts, and what concerns Tier 1 alone.

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

use crate::ConfigError;

/// Searches that read flash at once, at most: each holds a batch of pages.
pub(super) const SEARCHES: usize = 64;
/// Bits by which entries of Tier 2 and of active lists have more than those of inactive buckets. A look-up asks 64 small blocks of
/// Tier 2, half as many of a list, and six pages of a bucket; of all entries a 48th is in Tier 2 and a twelfth in lists. The
/// fewest reads for the memory come where what is asked of each, times its false positives, is as its share of the entries.
pub(super) const MORE_DIRECT_BITS: u32 = 12;
pub(super) const MORE_ACTIVE_BITS: u32 = 8;
/// Compactions at once: each holds a whole list.
const COMPACTIONS: usize = 1;

/// What the cascade has to know of the segments that its entries name.
pub trait Segments: Send + Sync {
    /// The number of the segment and the position that a place code of Tier 1 names; nothing where the segment has gone.
    fn named_by(&self, code: u64) -> Option<(u32, Position)>;

    /// The place code of a position in the segment with a number; nothing where it has gone.
    fn code(&self, number: u32, position: Position) -> Option<u64>;

    /// Segments with lower numbers have gone, all but a few.
    fn horizon(&self) -> u32;

    /// Makes durable what has been written to the region, which may share its device with the segments. One at a time where
    /// it has one of its own.
    fn sync<'a>(&'a self, region: &'a Region) -> IoFuture<'a, ()> {
        region.sync()
    }

    /// Syncs of the region's device that have failed so far, whoever asked for them: one error is told to one.
    fn failed_syncs(&self) -> u64;
}

/// The index. Used from all threads at once.
pub struct Cascade {
    pub(super) config: CascadeConfig,
    pub(super) shape: Shape,
    pub(super) bounds: Bounds,
    pub(super) layouts: Layouts,
    /// The bits of a hash that are kept.
    pub(super) kept: u64,
    pub(super) image: u64,
    pub(super) partitions: Box<[Mutex<Partition>]>,
    /// Upkeep of each partition waits for this.
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
    /// Pages read by look-ups that Tier 2 answered, by those that Tier 3 answered, and by those that found nothing.
    pub tier2_reads: AtomicU64,
    pub tier3_reads: AtomicU64,
    pub absent_reads: AtomicU64,
    /// Batches of Tier 2 that look-ups have read, whatever answered them.
    pub tier2_batches: AtomicU64,
    pub demoted: AtomicU64,
    pub promoted: AtomicU64,
    pub compactions: AtomicU64,
    /// Pages that could not be read or did not verify.
    pub damaged_pages: AtomicU64,
    /// Mappings dropped since a newer one may have been on such a page.
    pub dropped_behind_damage: AtomicU64,
    /// Mappings dropped since the region was full.
    pub evicted: AtomicU64,
    pub write_errors: AtomicU64,
}

/// Bits of filters for each entry, so many more than those of inactive buckets; none where these have none.
pub(super) fn more_filter_bits(config: &CascadeConfig, more: u32) -> u32 {
    match config.filter_bits {
        0 => 0,
        bits => bits + more,
    }
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// Why a cascade cannot be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum CascadeError {
    /// Tier 1 cannot be made.
    #[error("tier 1 cannot be made: {0}")]
    Hot(#[from] ConfigError),
    /// Nothing fits the region.
    #[error("the index region has {pages} pages and needs {least} for {capacity} mappings")]
    Region {
        pages: usize,
        least: usize,
        capacity: u64,
    },
}

/// Tier 1 has no space for another mapping until upkeep has moved some of it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotFull;

impl Cascade {
    /// An empty cascade on a region of `image`.
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

    /// Pages of the region without which nothing can be moved.
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

    /// Partitions, each of which has an [`upkeep`](Self::upkeep).
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of memory that it takes, but for what searches and a compaction hold meanwhile.
    pub fn memory_bytes(&self) -> u64 {
        let below = self.flash_tier_bytes.iter();
        let below: u64 = below.map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        self.hot_bytes.load(Ordering::Relaxed) + below + self.store.memory_bytes()
    }

    /// Bytes of memory that Tier 1 takes.
    pub fn hot_bytes(&self) -> u64 {
        self.hot_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of flash in use, and written so far.
    pub fn flash_bytes(&self) -> (u64, u64) {
        let page = device::PAGE_BYTES as u64;
        let used = self.store.pages() - self.store.free_pages();
        (used as u64 * page, self.store.pages_written() * page)
    }

    /// Tells the drive of pages that have been let go of, where that is [wanted](CascadeConfig::discard). Never ends; one for
    /// the whole cascade.
    pub async fn discard(&self) {
        self.store.discard().await;
    }

    /// Whether a checkpoint would free pages that are needed.
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

    /// Whether Tier 1 has space for what has been found below.
    pub(super) fn may_promote(&self, partition: &Partition) -> bool {
        partition.hot.len() < self.bounds.grown()
    }

    /// Whether upkeep is so far behind that what is stored now would soon not be named: callers had better wait for
    /// [`caught_up`](Self::caught_up). False where upkeep makes no way.
    pub fn is_behind(&self) -> bool {
        self.brake.is_pressed()
    }

    /// Notified when upkeep is not behind any more, or makes no way.
    pub fn caught_up(&self) -> &Notify {
        &self.brake.released
    }

    /// Asks for a checkpoint, once.
    pub(super) fn ask_for_checkpoint(&self) {
        if !self.wants_checkpoint.swap(true, Ordering::Relaxed) {
            self.checkpoint_wanted.notify_all();
        }
    }

    /// The place code of an entry; nothing where it is a tombstone, or its segment has gone.
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

    /// Runs `change` on Tier 1 of a partition, and accounts for its memory.
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

    /// What Tier 1 says of a key, and whether it has been looked up since it said so.
    pub fn lookup(&self, hash: u64) -> Option<(Hot, bool)> {
        let hash = hash & self.kept;
        let entry = self.lock(hash).hot.get(hash)?;
        Some((entry.hot, entry.is_recent))
    }

    /// The same, and counts as a look-up.
    pub fn access(&self, hash: u64) -> Option<(Hot, bool)> {
        let hash = hash & self.kept;
        let entry = self.lock(hash).hot.access(hash)?;
        add(&self.counters.tier1_hits, 1);
        Some((entry.hot, entry.is_recent))
    }

    /// What is asked for next concerns these keys, the first of which names the partition.
    pub fn warm(&self, hashes: &mut dyn Iterator<Item = u64>) {
        let Some(first) = hashes.next() else { return };
        self.lock(first).hot.warm(hashes);
    }

    /// Whether a tier below the first may name a key.
    pub fn may_be_below(&self, hash: u64) -> bool {
        let hash = hash & self.kept;
        self.lock(hash).may_be_below(&self.layouts, hash)
    }

    /// Names a place for a key, instead of all that is named for it. Returns what Tier 1 said before. Tier 1 `may_grow`
    /// while what is below it does not keep up, as long as a checkpoint of it would find space.
    ///
    /// # Errors
    /// [`HotFull`], and nothing has changed. Where Tier 1 said something there is always space.
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

    /// No place is named for a key any more, however many were. Returns what Tier 1 said before; whether anything else did
    /// is not known.
    pub fn bury(&self, hash: u64) -> Option<Hot> {
        let hash = hash & self.kept;
        self.change(hash, |partition| {
            let before = partition.hot.get(hash).map(|entry| entry.hot);
            partition.bury(&self.layouts, hash);
            // A tombstone is never refused, and takes the space of what comes next.
            self.press_where_full(self.number_of(hash), partition, self.bounds.grown());
            before
        })
    }

    /// Presses the brake where Tier 1 of a partition, which may have so many entries, nearly does.
    pub(super) fn press_where_full(&self, number: usize, partition: &Partition, most: usize) {
        if partition.hot.len() >= self.brake.entries_of(most, &self.bounds) {
            self.brake.press(number, most);
        }
    }

    /// [`bury`](Self::bury), if Tier 1 says this. Whether it did.
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

    /// Leaves nothing in Tier 1 that names a segment which has gone by now.
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

    /// What Tier 1 says becomes `new`, if it is `old`. Whether it was.
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
