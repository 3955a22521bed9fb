//! [`LimitedJournal`]: a journal whose syncs count for the limit on a drive's writes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use runtime::{Instant, now};

use super::stored::StoredPages;
use super::{Journal, Origin};
use crate::{DeviceError, IoFuture, WriteClass, WriteLimit};

/// A journal on a drive with limited writes. A sync writes each page that has been stored to since the last one: it waits
/// until the limit has space for their bytes, and twice the time of the last one, so that the journal takes at most half of
/// the limit.
pub struct LimitedJournal {
    inner: Arc<dyn Journal>,
    limit: Arc<WriteLimit>,
    stored: StoredPages,
    /// Time before which no sync begins.
    next: Mutex<Option<Instant>>,
}

impl LimitedJournal {
    /// Charges the syncs of `inner` to `limit`.
    pub fn new(inner: Arc<dyn Journal>, limit: Arc<WriteLimit>) -> Self {
        Self {
            stored: StoredPages::new(inner.words()),
            inner,
            limit,
            next: Mutex::default(),
        }
    }

    async fn sync_in_turn(&self) -> Result<(), DeviceError> {
        let next = *self.next.lock();
        let left = next.map_or(Duration::ZERO, |next| next.max(now()).since(now()));
        if !left.is_zero() {
            self.limit.rest(left).await;
        }
        let stored = || self.stored.bytes();
        let bytes = self.limit.pass(WriteClass::Journal, stored).await;
        self.stored.clear();
        *self.next.lock() = Some(now() + 2 * self.limit.time_of(bytes));
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
        self.stored.note(word);
    }

    fn clear(&self, words: Range<usize>) {
        self.inner.clear(words.clone());
        self.stored.note_all(words);
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

    use super::super::stored::PAGE_WORDS;
    use super::*;
    use crate::{MemoryJournal, PAGE_BYTES};

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
