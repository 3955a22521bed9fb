//! A journal in memory for simulations: it ends with the process, and its syncs take no time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{DeviceError, Found, IoFuture, Journal, Origin};

/// A journal in memory that survives no restart.
pub(crate) struct Words(Box<[AtomicU64]>);

impl Words {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Journal for Words {
    fn words(&self) -> usize {
        self.0.len()
    }

    fn origin(&self) -> Origin {
        Origin::without_file(Found::Missing)
    }

    fn load(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        for (word, kept) in words.iter_mut().zip(&self.0[start..]) {
            *word = kept.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn store(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }

    fn clear(&self, words: Range<usize>) {
        for word in &self.0[words] {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn let_go(&self, _words: Range<usize>) {}
}
