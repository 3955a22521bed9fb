//! The pages of the region: which are free, and how they are read and written.
//!
//! Nothing is overwritten. A page that is released may be named by the checkpoint in force, so it is free again only when
//! another one is named that was begun later; unless it was taken since the last one was complete: no checkpoint can name
//! such a young page.
//!
//! ```text
//!            take               release             the next checkpoint begins         that one is named
//!   free ───────────> in use ─────────────> released ─────────────────────> waiting ─────────────────────> free
//!                        └── young ────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Where the drive is told of what is erased, pages that were waiting are told to it first, those that follow each other at
//! once, and are free after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use device::{AlignedBuf, DeviceError, Disk, PAGE_BYTES, Region, SharedBuf};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use runtime::sync::Notify;
use runtime::work::{self, Work};

/// Number of a page of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PageId(pub(super) u32);

/// Pages that are looked for next to each other, the longest first.
const RUNS: [u32; 3] = [16, 4, 1];
/// What a checkpoint is to free, a part of all pages, as it takes some itself.
const FREED_SHARE: usize = 16;
/// Pages written at once, at most.
const WRITE_PAGES: usize = 64;

/// The region, in pages.
pub(super) struct PageStore {
    region: Region,
    map: Mutex<PageMap>,
    /// Pages that a checkpoint takes, at most. Twice as many are for checkpoints alone: another one is written while one is in
    /// force.
    reserved: AtomicUsize,
    /// Whether the drive is told of pages that are let go of.
    discards: bool,
    discard_due: Notify,
    /// Pages have become free.
    pub(super) freed: Notify,
    pages_written: AtomicU64,
}

/// The pages of checkpoints.
#[derive(Default)]
pub(super) struct Saves {
    /// Of that in force, and of those that may be.
    pub(super) named: Vec<PageId>,
    /// Of the one that is to be named.
    pub(super) pending: Vec<PageId>,
}

/// Which pages are in use.
struct PageMap {
    used: BitMap,
    /// Those taken since the last checkpoint was complete.
    young: BitMap,
    /// A checkpoint is begun and not complete: it may name what is taken.
    is_in_checkpoint: bool,
    /// A checkpoint is begun, and it is not known what has become of it.
    is_checkpoint_open: bool,
    free: usize,
    /// Those that checkpoints take.
    saved: usize,
    /// The word of `used` at which the search for free ones goes on.
    cursor: usize,
    /// Whether there are no runs of the lengths of [`RUNS`] any more.
    used_up: [bool; RUNS.len()],
    released: Vec<PageId>,
    waiting: Vec<PageId>,
    /// What is to be told to the drive, and how much of it is just being told.
    to_discard: Vec<PageId>,
    discarding: usize,
}

struct BitMap {
    words: Vec<u64>,
}

impl BitMap {
    fn new(bits: usize) -> Self {
        Self {
            words: vec![0; bits.div_ceil(64)],
        }
    }

    fn get(&self, bit: usize) -> bool {
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, bit: usize) {
        self.words[bit / 64] |= 1 << (bit % 64);
    }

    fn clear(&mut self, bit: usize) {
        self.words[bit / 64] &= !(1 << (bit % 64));
    }
}

impl PageMap {
    fn new(pages: usize) -> Self {
        let mut used = BitMap::new(pages);
        // What is behind the region is not to be had.
        for page in pages..used.words.len() * 64 {
            used.set(page);
        }
        Self {
            used,
            young: BitMap::new(pages),
            is_in_checkpoint: false,
            is_checkpoint_open: false,
            free: pages,
            saved: 0,
            cursor: 0,
            used_up: [false; RUNS.len()],
            released: Vec::new(),
            waiting: Vec::new(),
            to_discard: Vec::new(),
            discarding: 0,
        }
    }

    /// Takes pages that follow each other, as far as there are any: a drive writes and reads those best.
    fn take(&mut self, count: usize) -> Option<Box<[PageId]>> {
        if self.free < count {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        for (run, is_used_up) in RUNS.into_iter().zip(0..) {
            if !self.used_up[is_used_up] {
                self.take_runs(run, count, &mut taken);
                self.used_up[is_used_up] = taken.len() < count;
            }
        }
        debug_assert_eq!(taken.len(), count);
        self.free -= count;
        Some(taken.into())
    }

    /// Takes whole runs of so many pages, which begin at multiples of that; of the last one what is needed.
    fn take_runs(&mut self, run: u32, count: usize, taken: &mut Vec<PageId>) {
        let words = self.used.words.len();
        for _ in 0..=words {
            let word = self.cursor;
            for first in (0..u64::BITS).step_by(run as usize) {
                let mask = (u64::MAX >> (u64::BITS - run)) << first;
                if taken.len() == count {
                    return;
                }
                if self.used.words[word] & mask != 0 {
                    continue;
                }
                for bit in first..first + run.min((count - taken.len()) as u32) {
                    let page = word * 64 + bit as usize;
                    self.used.set(page);
                    if !self.is_in_checkpoint {
                        self.young.set(page);
                    }
                    taken.push(PageId(page as u32));
                }
            }
            self.cursor = (word + 1) % words;
        }
    }

    fn free(&mut self, page: PageId) {
        let bit = page.0 as usize;
        debug_assert!(self.used.get(bit), "page {bit} is free already");
        self.used.clear(bit);
        self.young.clear(bit);
        self.used_up = [false; RUNS.len()];
        self.free += 1;
    }
}

impl PageStore {
    /// A region of whose pages none is in use, and so many are reserved for checkpoints.
    pub(super) fn new(region: Region, reserved: usize, discards: bool) -> Self {
        let pages = Self::pages_of(&region);
        Self {
            region,
            map: Mutex::new(PageMap::new(pages)),
            reserved: AtomicUsize::new(reserved),
            discards,
            discard_due: Notify::default(),
            freed: Notify::default(),
            pages_written: AtomicU64::new(0),
        }
    }

    /// Pages of the region.
    pub(super) fn pages(&self) -> usize {
        Self::pages_of(&self.region)
    }

    pub(super) fn pages_of(region: &Region) -> usize {
        (region.len_bytes() / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as usize
    }

    /// Pages that can be taken.
    pub(super) fn free_pages(&self) -> usize {
        self.map.lock().free
    }

    /// Bytes of memory that the map takes, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        let map = self.map.lock();
        let lists = map.released.capacity() + map.waiting.capacity() + map.to_discard.capacity();
        (self.pages() / 4 + lists * size_of::<PageId>()) as u64
    }

    pub(super) fn pages_written(&self) -> u64 {
        self.pages_written.load(Ordering::Relaxed)
    }

    fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// So many pages are reserved for checkpoints from now on.
    pub(super) fn reserve(&self, pages: usize) {
        self.reserved.store(pages, Ordering::Relaxed);
    }

    /// Pages that are free, or a checkpoint's.
    pub(super) fn free_or_saved(&self) -> usize {
        let map = self.map.lock();
        map.free + map.saved
    }

    /// Takes so many pages; nothing where there are not as many beside what is reserved.
    pub(super) fn take(&self, count: usize) -> Option<Box<[PageId]>> {
        let mut map = self.map.lock();
        if map.free + map.saved < count + 2 * self.reserved() {
            return None;
        }
        map.take(count)
    }

    /// The same, the reserved ones included.
    pub(super) fn take_reserved(&self, count: usize) -> Option<Box<[PageId]>> {
        self.map.lock().take(count)
    }

    /// Takes pages for a checkpoint, without which no page becomes free again: reserved ones, too.
    pub(super) fn take_for_checkpoint(&self, count: usize) -> Option<Box<[PageId]>> {
        let mut map = self.map.lock();
        let taken = map.take(count)?;
        map.saved += count;
        Some(taken)
    }

    /// So many of the pages that have been claimed are those of a checkpoint.
    pub(super) fn claimed_for_checkpoint(&self, count: usize) {
        self.map.lock().saved += count;
    }

    /// Marks a page that a checkpoint names as used; false where it is already, or there is no such page.
    pub(super) fn claim(&self, page: PageId) -> bool {
        let mut map = self.map.lock();
        let bit = page.0 as usize;
        if bit >= self.pages() || map.used.get(bit) {
            return false;
        }
        map.used.set(bit);
        map.free -= 1;
        true
    }

    /// Lets go of pages that nothing names any more but, perhaps, checkpoints.
    pub(super) fn release(&self, pages: impl IntoIterator<Item = PageId>) {
        let mut map = self.map.lock();
        for page in pages {
            if map.young.get(page.0 as usize) {
                map.free(page);
            } else {
                map.released.push(page);
            }
        }
    }

    /// Frees the pages of checkpoints that are not in force.
    pub(super) fn free_checkpoint(&self, pages: Vec<PageId>) {
        let mut map = self.map.lock();
        map.saved -= pages.len();
        pages.into_iter().for_each(|page| map.free(page));
        drop(map);
        self.freed.notify_all();
    }

    /// Whether few pages are left, and a checkpoint would free as many: before upkeep has to wait for it.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let few = self.worth_freeing();
        let map = self.map.lock();
        map.released.len() >= few && map.free + map.saved < few + 2 * self.reserved()
    }

    /// So many pages that a checkpoint is worth it.
    pub(super) fn worth_freeing(&self) -> usize {
        (self.pages() / FREED_SHARE).max(1)
    }

    /// Whether another checkpoint than the one that may be open would free anything.
    pub(super) fn would_checkpoint_free(&self) -> bool {
        let map = self.map.lock();
        !map.released.is_empty() || !map.waiting.is_empty() && !map.is_checkpoint_open
    }

    /// How many pages of `count` there will not be when checkpoints have freed what has been let go of.
    pub(super) fn missing_pages(&self, count: usize) -> usize {
        let map = self.map.lock();
        let let_go = map.released.len() + map.waiting.len() + map.to_discard.len() + map.discarding;
        (count + 2 * self.reserved()).saturating_sub(map.free + map.saved + let_go)
    }

    /// A checkpoint is begun: it may name every page that is in use from now on.
    pub(super) fn checkpoint_begins(&self) {
        let mut map = self.map.lock();
        map.young.words.fill(0);
        map.is_in_checkpoint = true;
        map.is_checkpoint_open = true;
        let released = std::mem::take(&mut map.released);
        map.waiting.extend(released);
    }

    /// The checkpoint has all that it will name, or it is given up.
    pub(super) fn checkpoint_is_complete(&self) {
        self.map.lock().is_in_checkpoint = false;
    }

    /// The checkpoint that was begun last is in force, and no other one is: so it is named; or it may not be.
    pub(super) fn checkpoint_ends(&self, is_named: bool) {
        let mut map = self.map.lock();
        map.is_checkpoint_open = false;
        if !is_named {
            return;
        }
        let waiting = std::mem::take(&mut map.waiting);
        if self.discards {
            map.to_discard.extend(waiting);
            drop(map);
            self.discard_due.notify_all();
        } else {
            waiting.into_iter().for_each(|page| map.free(page));
        }
    }

    /// Tells the drive of pages that have been let go of, for as long as the store is used. Never ends.
    pub(super) async fn discard(&self) {
        loop {
            let due = self.discard_due.listener();
            self.discard_some().await;
            due.await;
        }
    }

    async fn discard_some(&self) {
        let mut pages = {
            let mut map = self.map.lock();
            map.discarding = map.to_discard.len();
            std::mem::take(&mut map.to_discard)
        };
        pages.sort_unstable();
        for run in pages.chunk_by(|one, other| one.0 + 1 == other.0) {
            let bytes = (run.len() * PAGE_BYTES) as u64;
            if let Err(error) = self.region.discard(offset(run[0]), bytes).await {
                tracing::debug!(%error, "the drive is not told of a part of the index that has gone");
            }
        }
        let mut map = self.map.lock();
        map.discarding = 0;
        pages.into_iter().for_each(|page| map.free(page));
        drop(map);
        self.freed.notify_all();
    }

    /// Reads a page as it is: whether it is the one that was meant is for the caller to verify.
    ///
    /// # Errors
    /// What the device says.
    pub(super) async fn read(&self, page: PageId) -> Result<AlignedBuf, DeviceError> {
        work::count(Work::DeviceCommand, 1);
        let buf = AlignedBuf::new(PAGE_BYTES);
        self.region.read(offset(page), buf).await
    }

    /// Reads some pages as they are, those that follow each other at once: the bytes of each such run.
    ///
    /// # Errors
    /// What the device says.
    pub(super) async fn read_runs(&self, pages: &[PageId]) -> Result<Vec<AlignedBuf>, DeviceError> {
        let runs = pages.chunk_by(|one, other| one.0 + 1 == other.0);
        try_join_all(runs.map(|run| {
            let buf = AlignedBuf::new(run.len() * PAGE_BYTES);
            self.region.read(offset(run[0]), buf)
        }))
        .await
    }

    /// Writes as many pages as there are in `bytes`, those that follow each other at once.
    ///
    /// # Errors
    /// What the device says; then some may be written.
    pub(super) async fn write(
        &self,
        pages: &[PageId],
        bytes: &Arc<AlignedBuf>,
    ) -> Result<(), DeviceError> {
        debug_assert_eq!(bytes.len(), pages.len() * PAGE_BYTES);
        let mut at = 0;
        while at < pages.len() {
            let follows = |&(one, other): &(&PageId, &PageId)| one.0 + 1 == other.0;
            let rest = &pages[at..pages.len().min(at + WRITE_PAGES)];
            let run = 1 + rest.iter().zip(&rest[1..]).take_while(follows).count();
            let range = at * PAGE_BYTES..(at + run) * PAGE_BYTES;
            let data = SharedBuf::new(Arc::clone(bytes), range);
            work::count(Work::DeviceCommand, 1);
            self.region.write(offset(pages[at]), data).await?;
            at += run;
        }
        let written = pages.len() as u64;
        self.pages_written.fetch_add(written, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }
}

fn offset(page: PageId) -> u64 {
    u64::from(page.0) * PAGE_BYTES as u64
}

#[cfg(test)]
mod tests {
    use device::MemoryDisk;

    use super::*;

    const PAGES: usize = 100;

    fn store() -> PageStore {
        store_that(false)
    }

    fn store_that(discards: bool) -> PageStore {
        let bytes = (PAGES * PAGE_BYTES) as u64;
        let disk = Arc::new(MemoryDisk::new(bytes));
        PageStore::new(
            Region::new(disk, 0, bytes).expect("whole pages"),
            PAGES / 16,
            discards,
        )
    }

    /// Else what has been written to it meanwhile would be discarded.
    #[test]
    fn a_page_is_free_after_the_drive_has_been_told() {
        let store = store_that(true);
        let pages = store.take_reserved(3).expect("free");
        let bytes = Arc::new(AlignedBuf::new(3 * PAGE_BYTES));
        runtime::sim::Sim::new(1).block_on(async {
            store.write(&pages, &bytes).await.expect("written");
            store.checkpoint_begins();
            store.checkpoint_ends(true);
            store.release(pages.iter().copied());
            store.checkpoint_begins();
            store.checkpoint_ends(true);
            assert_eq!(
                (store.free_pages(), store.missing_pages(PAGES - 12)),
                (PAGES - 3, 0)
            );
            store.discard_some().await;
            assert_eq!(
                (store.free_pages(), store.missing_pages(PAGES - 11)),
                (PAGES, 1)
            );
        });
    }

    #[test]
    fn no_page_is_given_twice() {
        let store = store();
        let mut all: Vec<_> = (0..10)
            .flat_map(|_| store.take_reserved(10).expect("free"))
            .collect();
        assert!(store.take_reserved(1).is_none());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), PAGES);
        store.release(all);
        assert_eq!(store.free_pages(), PAGES, "no checkpoint names them");
    }

    #[test]
    fn what_a_checkpoint_may_name_is_free_once_a_later_one_is_named() {
        let store = store();
        let named = store.take_reserved(1).expect("free");
        store.checkpoint_begins();
        store.checkpoint_is_complete();
        store.checkpoint_ends(true);
        store.release(named.iter().copied());
        assert_eq!(store.free_pages(), PAGES - 1, "the one in force names it");
        store.checkpoint_begins();
        assert_eq!(store.free_pages(), PAGES - 1);
        store.checkpoint_ends(true);
        assert_eq!(store.free_pages(), PAGES);
    }

    /// Released while a checkpoint is written that has it already.
    #[test]
    fn what_is_released_during_a_checkpoint_waits_for_the_next() {
        let store = store();
        let named = store.take_reserved(1).expect("free");
        store.checkpoint_begins();
        store.release(named.iter().copied());
        store.checkpoint_ends(true);
        assert_eq!(store.free_pages(), PAGES - 1);
        store.checkpoint_begins();
        store.checkpoint_ends(true);
        assert_eq!(store.free_pages(), PAGES);
    }

    /// It may name them, though they were taken after it was begun.
    #[test]
    fn what_is_taken_during_a_checkpoint_is_not_young() {
        let store = store();
        store.checkpoint_begins();
        let during = store.take_reserved(1).expect("free");
        store.checkpoint_is_complete();
        let after = store.take_reserved(1).expect("free");
        store.release(during.iter().copied());
        store.release(after.iter().copied());
        assert_eq!(store.free_pages(), PAGES - 1);
    }

    /// Neither the last checkpoint nor the failed one may lose a page.
    #[test]
    fn a_checkpoint_that_fails_frees_nothing() {
        let store = store();
        let page = store.take_reserved(1).expect("free");
        store.checkpoint_begins();
        store.checkpoint_ends(true);
        store.release(page.iter().copied());
        store.checkpoint_begins();
        store.checkpoint_begins();
        assert_eq!(store.free_pages(), PAGES - 1);
        store.checkpoint_ends(true);
        assert_eq!(store.free_pages(), PAGES);
    }

    #[test]
    fn pages_are_read_as_they_were_written() {
        let store = store();
        // Not all follow each other.
        let first = store.take_reserved(3).expect("free");
        let between = store.take_reserved(1).expect("free");
        store.release(first.iter().copied());
        let _ = between;
        let pages: Vec<_> = [50, 51, 7, 8, 9].map(PageId).into();
        let mut bytes = AlignedBuf::new(pages.len() * PAGE_BYTES);
        for (number, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
            page.fill(number as u8 + 1);
        }
        let bytes = Arc::new(bytes);
        runtime::sim::Sim::new(1).block_on(async {
            store.write(&pages, &bytes).await.expect("written");
            for (number, &page) in pages.iter().enumerate() {
                let read = store.read(page).await.expect("read");
                assert!(read.iter().all(|&byte| byte == number as u8 + 1));
            }
        });
        assert_eq!(store.pages_written(), 5);
    }
}
