//! [`Journal`]: memory that survives the process.
//!
//! ```text
//!   engine ── load store ──> Journal ── file: a mapped file
//!                              │      └ memory: for the simulation, with crash images
//!                              └ sync: makes stores survive a power cut
//! ```
//!
//! A word is stored whole or not at all. A crash of the process keeps the stores of each thread in order. A power cut keeps the
//! stores before the last sync and any subset of the later stores.

mod file;
mod limited;
#[cfg(any(test, feature = "faults"))]
mod memory;
mod stored;

use std::ops::Range;
use std::path::PathBuf;

pub use file::{FileJournal, JournalError, JournalProblem, NewJournal, is_same_file};
pub use limited::LimitedJournal;
#[cfg(any(test, feature = "faults"))]
pub use memory::{Decay, JournalImage, MemoryJournal};

#[cfg(any(test, feature = "faults"))]
pub(crate) use stored::StoredPages;

use crate::{DeviceError, IoFuture};

/// State in which the words were found when they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All words of the journal's last use.
    Whole,
    /// None: they are new, and zero.
    Missing,
    /// The first bytes alone. The first words are zero now.
    Short {
        /// Number of these bytes.
        bytes: u64,
    },
}

/// Where the words of a journal come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// State in which they were found when they were opened.
    pub found: Found,
    /// Absolute path of their file, if they have one.
    pub path: Option<PathBuf>,
}

impl Origin {
    /// Returns the origin of words without a file.
    pub const fn without_file(found: Found) -> Self {
        Self { found, path: None }
    }
}

/// An array of words that survives the process. Used from all threads at once; new words are zero.
pub trait Journal: Send + Sync {
    /// Returns the number of words.
    fn words(&self) -> usize;

    /// Returns where the words come from.
    fn origin(&self) -> Origin;

    /// Reads a word.
    ///
    /// # Panics
    /// When the index is past the end.
    fn load(&self, word: usize) -> u64;

    /// Reads the words from `start` on.
    ///
    /// # Errors
    /// When the drive cannot read the words. A load or store of one of them may then lose the page, until the page has been
    /// [cleared](Journal::clear).
    ///
    /// # Panics
    /// When the range passes the end.
    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError>;

    /// Stores a word, without a system call. The value survives the process from then on.
    ///
    /// # Panics
    /// When the index is past the end.
    fn store(&self, word: usize, value: u64);

    /// Sets all of `words` to zero. Whole pages are not read first, so that an unreadable page becomes usable again.
    ///
    /// # Panics
    /// When the range passes the end.
    fn clear(&self, words: Range<usize>);

    /// Makes every earlier store durable.
    fn sync(&self) -> IoFuture<'_, ()>;

    /// Tells that these words will hardly be read again and need not stay in memory.
    fn let_go(&self, words: Range<usize>);
}
