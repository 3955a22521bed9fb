//! [`Journal`]: memory that survives the process.
//!
//! ```text
//!   engine ── load store ──> Journal ── file: a mapped file
//!                              │      └ memory: for the simulation, and what a crash would leave
//!                              └ sync: what is stored outlives the machine's power, too
//! ```
//!
//! A word is stored whole or not at all. Stores of one thread are kept in order by a crash of the
//! process; a power cut keeps those before the last sync and any part of the others.

mod file;
mod memory;

use std::ops::Range;

pub use file::{FileJournal, JournalError, JournalProblem, NewJournal};
pub use memory::{Decay, JournalImage, MemoryJournal};

use crate::{DeviceError, IoFuture};

/// An array of words that survives the process. Used from all threads at once; new ones are zero.
pub trait Journal: Send + Sync {
    /// How many words it has.
    fn words(&self) -> usize;

    /// Reads a word.
    ///
    /// # Panics
    /// Past the end.
    fn load(&self, word: usize) -> u64;

    /// Reads the words from `start` on.
    ///
    /// # Errors
    /// Where the drive does not give them back. To load or store one of them may end the process then, until the
    /// page has been [cleared](Journal::clear).
    ///
    /// # Panics
    /// Past the end.
    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError>;

    /// Sets a word: no system call. It survives the process from then on.
    ///
    /// # Panics
    /// Past the end.
    fn store(&self, word: usize, value: u64);

    /// Sets all of `words` to zero. Whole pages are not read for it: those that could not be can be used again.
    ///
    /// # Panics
    /// Past the end.
    fn clear(&self, words: Range<usize>);

    /// Makes every store before this call durable.
    fn sync(&self) -> IoFuture<'_, ()>;

    /// These words will hardly be read again: they need not stay in memory.
    fn let_go(&self, words: Range<usize>);
}
