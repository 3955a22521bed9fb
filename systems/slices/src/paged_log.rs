//! A log within a disk, for a table whose changes are not logged. It holds only the words that say where slicetables lie.
//!
//! ```text
//!   page 0: place A │ place B │ page 1: place A │ place B │ …          each place: head │ words
//! ```
//!
//! The words are in memory. A sync writes the pages that have changed, each to the older of its two places, so that one place is
//! whole even if a crash tears the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::encoding::log::{LOG_PAGE_WORDS, LogPage};
use device::{
    AlignedBuf, DeviceError, Disk, Found, IoFuture, Journal, Origin, PAGE_BYTES, SharedBuf,
};
use parking_lot::Mutex;
use runtime::sync::Semaphore;

use crate::error::SliceError;

/// Words in a part of a disk. They do not survive the process before they are synced.
pub struct PagedLog {
    disk: Arc<dyn Disk>,
    instance: u64,
    words: Box<[AtomicU64]>,
    pages: Box<[Mutex<PageState>]>,
    syncing: Semaphore,
}

#[derive(Clone, Copy, Default)]
struct PageState {
    has_changed: bool,
    /// Number of durable writes of the page. The newest is in place A if the number is odd.
    writes: u64,
    /// `writes` + 1 while a sync that has written the page has not succeeded. The next sync writes the page again to the same
    /// place, because the other place is the durable one.
    written: Option<u64>,
}

fn pages_of(words: usize) -> usize {
    words.div_ceil(LOG_PAGE_WORDS)
}

impl PagedLog {
    /// Returns the bytes of a disk for `words` words.
    pub fn bytes_for(words: usize) -> u64 {
        2 * (pages_of(words) * PAGE_BYTES) as u64
    }

    /// Creates a log of `words` zeros. `instance` tells its pages from earlier contents of the disk.
    pub fn create(disk: Arc<dyn Disk>, words: usize, instance: u64) -> Self {
        let changed = PageState {
            has_changed: true,
            ..PageState::default()
        };
        Self::of(
            disk,
            instance,
            vec![0; words],
            vec![changed; pages_of(words)],
        )
    }

    /// Opens the log with the newest words on the disk.
    ///
    /// # Errors
    /// [`SliceError::OtherLog`] if a page is valid in neither place, and errors of the device.
    pub async fn open(
        disk: Arc<dyn Disk>,
        words: usize,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let (mut found, mut states) = (Vec::new(), Vec::new());
        for page in 0..pages_of(words) {
            let at = 2 * (page * PAGE_BYTES) as u64;
            let read = disk.read(at, AlignedBuf::new(2 * PAGE_BYTES)).await;
            let both = read.map_err(SliceError::log)?;
            let newest = both
                .chunks_exact(PAGE_BYTES)
                .filter_map(|bytes| LogPage::decode(bytes, instance, page as u32))
                .max_by_key(|page| page.writes.get());
            let newest = newest.ok_or(SliceError::OtherLog)?;
            found.extend(newest.words.iter().map(|word| word.get()));
            states.push(PageState {
                writes: newest.writes.get(),
                ..PageState::default()
            });
        }
        found.truncate(words);
        // Pages written by a process that has died may not be durable yet. The other place must stay until they are.
        disk.sync().await.map_err(SliceError::log)?;
        Ok(Self::of(disk, instance, found, states))
    }

    fn of(disk: Arc<dyn Disk>, instance: u64, words: Vec<u64>, pages: Vec<PageState>) -> Self {
        Self {
            disk,
            instance,
            words: words.into_iter().map(AtomicU64::new).collect(),
            pages: pages.into_iter().map(Mutex::new).collect(),
            syncing: Semaphore::new(1),
        }
    }

    /// Returns the memory of the log, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.words) + size_of_val(&*self.pages)) as u64
    }

    /// Writes a page if it has changed, or if an earlier sync of it failed or was cancelled.
    async fn write(&self, number: usize) -> Result<(), DeviceError> {
        let writes = {
            let mut page = self.pages[number].lock();
            if !std::mem::take(&mut page.has_changed) && page.written.is_none() {
                return Ok(());
            }
            let writes = page.writes + 1;
            page.written = Some(writes);
            writes
        };
        let first = number * LOG_PAGE_WORDS;
        let last = (first + LOG_PAGE_WORDS).min(self.words.len());
        let words = self.words[first..last]
            .iter()
            .map(|word| word.load(Ordering::Acquire));
        let mut bytes = AlignedBuf::new(PAGE_BYTES);
        LogPage::encode(&mut bytes, self.instance, number as u32, writes, words);
        let place = 2 * number as u64 + (writes + 1) % 2;
        let at = place * PAGE_BYTES as u64;
        self.disk.write(at, SharedBuf::from(bytes)).await
    }

    async fn sync_pages(&self) -> Result<(), DeviceError> {
        let _alone = self.syncing.acquire().await;
        for number in 0..self.pages.len() {
            self.write(number).await?;
        }
        self.disk.sync().await?;
        for page in &self.pages {
            let mut page = page.lock();
            page.writes = page.written.take().unwrap_or(page.writes);
        }
        Ok(())
    }
}

impl Journal for PagedLog {
    fn words(&self) -> usize {
        self.words.len()
    }

    fn origin(&self) -> Origin {
        Origin::without_file(Found::Whole)
    }

    fn load(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        for (word, at) in words.iter_mut().zip(start..) {
            *word = self.load(at);
        }
        Ok(())
    }

    fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Release);
        self.pages[word / LOG_PAGE_WORDS].lock().has_changed = true;
    }

    fn clear(&self, words: std::ops::Range<usize>) {
        words.for_each(|word| self.store(word, 0));
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(self.sync_pages())
    }

    fn let_go(&self, _words: std::ops::Range<usize>) {}
}
