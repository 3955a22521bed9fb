//! The pages of the region: allocation, reads and writes.
//!
//! No page in use is overwritten. The checkpoint in force may name a released page, so the page becomes free when a
//! checkpoint that began after its release is named. The exception is a young page: taken since the last checkpoint was
//! complete, it is free at once, as no checkpoint names it.
//!
//! ```text
//!            take               release             the next checkpoint begins         that one is named
//!   free ───────────> in use ─────────────> released ─────────────────────> waiting ─────────────────────> free
//!                        └── young ────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! If the drive is told of erased pages, waiting pages are discarded before they become free, adjacent pages together.

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

/// Lengths of the runs of adjacent pages to look for, longest first.
const RUNS: [u32; 3] = [16, 4, 1];
/// A checkpoint is worthwhile if it frees one page in 16 of the region, as it takes pages itself.
const FREED_SHARE: usize = 16;
/// Most pages written at once.
const WRITE_PAGES: usize = 64;

/// The region, in pages.
pub struct PageStore {
    region: Region,
    map: Mutex<PageMap>,
    /// Most pages that a checkpoint takes. Twice as many are reserved for checkpoints: a new one is written while the old
    /// one is in force.
    reserved: AtomicUsize,
    /// Whether the drive is told of released pages.
    discards: bool,
    discard_due: Notify,
    /// Notified when pages become free.
    pub(super) freed: Notify,
    pages_written: AtomicU64,
}

/// State of all pages.
struct PageMap {
    used: BitMap,
    /// Pages taken since the last checkpoint was complete.
    young: BitMap,
    /// A checkpoint is begun and not complete: it may name pages taken now.
    is_in_checkpoint: bool,
    /// A checkpoint is begun, and its outcome is not known.
    is_checkpoint_open: bool,
    free: usize,
    /// Number of pages of checkpoints.
    saved: usize,
    /// Word of `used` at which the search for free pages continues.
    cursor: usize,
    /// Whether no run of this length in [`RUNS`] is left.
    used_up: [bool; RUNS.len()],
    released: Vec<PageId>,
    waiting: Vec<PageId>,
    /// Pages to discard, and the number of pages being discarded.
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
        // Bits behind the region are never free.
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

    /// Takes adjacent pages as far as possible: a drive writes and reads these best.
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

    /// Takes aligned runs of `run` pages, the last one in part if fewer are needed.
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
    /// Creates a store with all pages free, of which it reserves `reserved` for each of two checkpoints.
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

    /// Returns the number of pages of the region.
    pub(super) fn pages(&self) -> usize {
        Self::pages_of(&self.region)
    }

    pub(super) fn pages_of(region: &Region) -> usize {
        (region.len_bytes() / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as usize
    }

    /// Returns the number of free pages.
    pub(super) fn free_pages(&self) -> usize {
        self.map.lock().free
    }

    /// Estimates the bytes of memory of the map.
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

    /// Sets the number of pages reserved for a checkpoint.
    pub(super) fn reserve(&self, pages: usize) {
        self.reserved.store(pages, Ordering::Relaxed);
    }

    /// Returns the number of pages that are free or belong to a checkpoint.
    pub(super) fn free_or_saved(&self) -> usize {
        let map = self.map.lock();
        map.free + map.saved
    }

    /// Takes `count` pages, or none if fewer are free beside the reserved ones.
    pub(super) fn take(&self, count: usize) -> Option<Box<[PageId]>> {
        let mut map = self.map.lock();
        if map.free + map.saved < count + 2 * self.reserved() {
            return None;
        }
        map.take(count)
    }

    /// Takes `count` pages, reserved ones included.
    pub(super) fn take_reserved(&self, count: usize) -> Option<Box<[PageId]>> {
        self.map.lock().take(count)
    }

    /// Takes pages for a checkpoint, reserved ones included, as no page becomes free without a checkpoint.
    pub(super) fn take_for_checkpoint(&self, count: usize) -> Option<Box<[PageId]>> {
        let mut map = self.map.lock();
        let taken = map.take(count)?;
        map.saved += count;
        Some(taken)
    }

    /// Counts `count` claimed pages as pages of a checkpoint.
    pub(super) fn claimed_for_checkpoint(&self, count: usize) {
        self.map.lock().saved += count;
    }

    /// Marks a page that a checkpoint names as used. Returns false if it is used already or does not exist.
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

    /// Releases pages that nothing but checkpoints may name.
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

    /// Whether few free pages are left and a checkpoint would free as many: asked before upkeep has to wait for one.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let few = self.worth_freeing();
        let map = self.map.lock();
        map.released.len() >= few && map.free + map.saved < few + 2 * self.reserved()
    }

    /// Returns the number of freed pages that makes a checkpoint worthwhile.
    pub(super) fn worth_freeing(&self) -> usize {
        (self.pages() / FREED_SHARE).max(1)
    }

    /// Whether a checkpoint, other than one that may be open, would free any page.
    pub(super) fn would_checkpoint_free(&self) -> bool {
        let map = self.map.lock();
        !map.released.is_empty() || !map.waiting.is_empty() && !map.is_checkpoint_open
    }

    /// Returns the number of pages by which the region is short of `count`, all released pages counted as free.
    pub(super) fn missing_pages(&self, count: usize) -> usize {
        let map = self.map.lock();
        let let_go = map.released.len() + map.waiting.len() + map.to_discard.len() + map.discarding;
        (count + 2 * self.reserved()).saturating_sub(map.free + map.saved + let_go)
    }

    /// Begins a checkpoint, which may name every page in use from now on.
    pub(super) fn checkpoint_begins(&self) {
        let mut map = self.map.lock();
        map.young.words.fill(0);
        map.is_in_checkpoint = true;
        map.is_checkpoint_open = true;
        let released = std::mem::take(&mut map.released);
        map.waiting.extend(released);
    }

    /// Notes that the checkpoint names no further page, or is abandoned.
    pub(super) fn checkpoint_is_complete(&self) {
        self.map.lock().is_in_checkpoint = false;
    }

    /// Ends the checkpoint that began last. With `is_named`, it is in force and no other one can be.
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

    /// Tells the drive of released pages, if [configured](super::CascadeConfig::discard). Never returns; one task for the
    /// whole cascade.
    pub async fn discard(&self) {
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

    /// Reads a page. The caller verifies that it is the expected one.
    ///
    /// # Errors
    /// The error of the device.
    pub(super) async fn read(&self, page: PageId) -> Result<AlignedBuf, DeviceError> {
        work::count(Work::DeviceCommand, 1);
        let buf = AlignedBuf::new(PAGE_BYTES);
        self.region.read(offset(page), buf).await
    }

    /// Reads pages, adjacent ones at once. Returns a buffer for each run of adjacent pages.
    ///
    /// # Errors
    /// The error of the device.
    pub(super) async fn read_runs(&self, pages: &[PageId]) -> Result<Vec<AlignedBuf>, DeviceError> {
        let runs = pages.chunk_by(|one, other| one.0 + 1 == other.0);
        try_join_all(runs.map(|run| {
            let buf = AlignedBuf::new(run.len() * PAGE_BYTES);
            self.region.read(offset(run[0]), buf)
        }))
        .await
    }

    /// Writes `bytes` to `pages`, adjacent ones at once.
    ///
    /// # Errors
    /// The error of the device; some pages may be written then.
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

    /// A page that was free earlier could be written, and the discard would then lose its data.
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

    /// The checkpoint being written has the page already.
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

    /// The checkpoint may name it, though it was taken after the checkpoint began.
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
        // Not all of these pages are adjacent.
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
