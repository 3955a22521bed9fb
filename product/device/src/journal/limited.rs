//! [`LimitedJournal`]: a journal whose syncs count for the limit on a drive's writes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use runtime::{Instant, now};

use super::{Journal, Origin};
use crate::{DeviceError, IoFuture, PAGE_BYTES, WriteLimit};

/// Words of a page.
const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// A journal on a drive with limited writes. A sync writes each page that has been stored to since the last one: their
/// bytes are charged to the limit, and other writes wait for them. Syncs wait only for earlier syncs, so that the journal
/// takes at most half of the limit.
pub struct LimitedJournal {
    inner: Arc<dyn Journal>,
    limit: Arc<WriteLimit>,
    /// One bit for each page: whether it has been stored to since the last sync.
    dirty: Box<[AtomicU64]>,
    /// Time before which no sync begins.
    next: Mutex<Option<Instant>>,
}

impl LimitedJournal {
    /// Charges the syncs of `inner` to `limit`.
    pub fn new(inner: Arc<dyn Journal>, limit: Arc<WriteLimit>) -> Self {
        let pages = inner.words().div_ceil(PAGE_WORDS);
        Self {
            inner,
            limit,
            dirty: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            next: Mutex::default(),
        }
    }

    fn note(&self, page: usize) {
        let (bits, bit) = (&self.dirty[page / 64], 1 << (page % 64));
        if bits.load(Ordering::Relaxed) & bit == 0 {
            bits.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of the pages stored to since the last call.
    fn take_dirty(&self) -> u64 {
        let pages = |bits: &AtomicU64| match bits.load(Ordering::Relaxed) {
            0 => 0,
            _ => u64::from(bits.swap(0, Ordering::Relaxed).count_ones()),
        };
        self.dirty.iter().map(pages).sum::<u64>() * PAGE_BYTES as u64
    }

    async fn sync_in_turn(&self) -> Result<(), DeviceError> {
        let next = *self.next.lock();
        let left = next.map_or(Duration::ZERO, |next| next.max(now()).since(now()));
        if !left.is_zero() {
            runtime::sleep(left).await;
        }
        let taken = self.limit.charge(self.take_dirty());
        *self.next.lock() = Some(now() + 2 * taken);
        self.inner.sync().await
    }
}

impl Journal for LimitedJournal {
    fn words(&self) -> usize {
        self.inner.words()
    }

    fn load(&self, word: usize) -> u64 {
        self.inner.load(word)
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        self.inner.read(start, words)
    }

    fn store(&self, word: usize, value: u64) {
        self.inner.store(word, value);
        self.note(word / PAGE_WORDS);
    }

    fn clear(&self, words: Range<usize>) {
        let pages = words.start / PAGE_WORDS..words.end.div_ceil(PAGE_WORDS);
        self.inner.clear(words);
        pages.for_each(|page| self.note(page));
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(self.sync_in_turn())
    }

    fn let_go(&self, words: Range<usize>) {
        self.inner.let_go(words);
    }

    fn origin(&self) -> Origin {
        self.inner.origin()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use runtime::sim::Sim;

    use super::*;
    use crate::MemoryJournal;

    #[test]
    fn syncs_are_charged_and_take_half_of_the_limit_at_most() {
        Sim::new(1).block_on(async {
            let limit = Arc::new(WriteLimit::new(NonZeroU64::new(64 << 10).unwrap()));
            let inner = Arc::new(MemoryJournal::new(1 << 16));
            let journal = LimitedJournal::new(inner, Arc::clone(&limit));
            let begun = now();
            for nth in 0..100 {
                journal.store(0, nth);
                journal.store(PAGE_WORDS - 1, nth);
                journal.store(5 * PAGE_WORDS, nth);
                journal.sync().await.unwrap();
            }
            // Two pages of 4 KiB each time: 800 KiB, at 32 KiB a second.
            let seconds = now().since(begun).as_secs_f64();
            assert!((24.7..25.1).contains(&seconds), "{seconds}");
            assert_eq!(limit.counts().charged, 100 * 2 * PAGE_BYTES as u64);
            journal.sync().await.unwrap();
            assert_eq!(
                limit.counts().charged,
                100 * 2 * PAGE_BYTES as u64,
                "nothing is dirty"
            );
        });
    }
}
