//! Counters, as atomic words in the order of the struct that their users get.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

const WORD_BYTES: usize = size_of::<u64>();

/// A struct of `u64` fields.
pub(crate) trait Numbers: FromBytes + IntoBytes + Immutable {}

impl<S: FromBytes + IntoBytes + Immutable> Numbers for S {}

/// Counters that add up to a struct `S`. May be used from all threads at once.
pub(crate) struct Counts<S> {
    words: Box<[AtomicU64]>,
    sums: PhantomData<fn() -> S>,
}

impl<S: Numbers> Default for Counts<S> {
    fn default() -> Self {
        const { assert!(size_of::<S>().is_multiple_of(WORD_BYTES)) };
        let words = 0..size_of::<S>() / WORD_BYTES;
        Self {
            words: words.map(|_| AtomicU64::new(0)).collect(),
            sums: PhantomData,
        }
    }
}

impl<S: Numbers> Counts<S> {
    /// Adds to each counter the number that `set` sets its field to.
    pub(crate) fn add(&self, set: impl FnOnce(&mut S)) {
        let mut numbers = S::new_zeroed();
        set(&mut numbers);
        // Of a length that the compiler knows, so that it drops the words that stay 0.
        let words = &self.words[..size_of::<S>() / WORD_BYTES];
        for (word, bytes) in words
            .iter()
            .zip(numbers.as_bytes().chunks_exact(WORD_BYTES))
        {
            let number = u64::from_ne_bytes(bytes.try_into().expect("words have 8 bytes"));
            if number > 0 {
                word.fetch_add(number, Ordering::Relaxed);
            }
        }
    }

    /// Returns the sums.
    pub(crate) fn sums(&self) -> S {
        let words: Vec<u64> = self
            .words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        S::read_from_bytes(words.as_bytes()).expect("a word for each field")
    }
}
