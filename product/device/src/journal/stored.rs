//! [`StoredPages`]: the pages of a journal that the next sync writes.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::PAGE_BYTES;

/// Words of a page.
pub(super) const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// The pages stored to since the last sync: one bit for each.
pub(crate) struct StoredPages(Box<[AtomicU64]>);

impl StoredPages {
    /// Returns the pages of a journal of `words` words, none of them stored to.
    pub(crate) fn new(words: usize) -> Self {
        let pages = words.div_ceil(PAGE_WORDS);
        Self((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes a store to a word.
    pub(crate) fn note(&self, word: usize) {
        self.note_page(word / PAGE_WORDS);
    }

    /// Notes stores to all of these words.
    pub(crate) fn note_all(&self, words: Range<usize>) {
        let pages = words.start / PAGE_WORDS..words.end.div_ceil(PAGE_WORDS);
        pages.for_each(|page| self.note_page(page));
    }

    fn note_page(&self, page: usize) {
        let (bits, bit) = (&self.0[page / 64], 1 << (page % 64));
        if bits.load(Ordering::Relaxed) & bit == 0 {
            bits.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of the pages.
    pub(crate) fn bytes(&self) -> u64 {
        let pages = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        self.0.iter().map(pages).sum::<u64>() * PAGE_BYTES as u64
    }

    /// Begins anew: a sync writes the pages.
    pub(crate) fn clear(&self) {
        for bits in &self.0 {
            bits.store(0, Ordering::Relaxed);
        }
    }
}
