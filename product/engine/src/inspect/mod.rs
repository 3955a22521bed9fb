//! What an image holds and what a recovery would find, without changing anything.
//!
//! ```text
//!   superblock ─> journal head ─> checkpoint ─> journal ─> footers      the code of an open: find
//!        └ changed meanwhile: again
//!   summaries ──> each item classified as recovery does ──> by key hash: which is the latest
//!   segments  ──> each live item: checksum, key (where asked for)
//! ```
//!
//! It works beside a running cache, of which it takes no lock. Then things change under it. What the
//! superblock names is read again until it stays the same meanwhile; what does not verify is read a
//! second time, and counts as damaged only if a look at journal and superblock after that says that it
//! should still be there. Everything else is of about the moment it was read.
//!
//! Memory: what has died, as for a recovery, and [`InspectOptions::memory_bytes`] for telling which of
//! several items of a key is the latest: [`ITEM_BYTES`] for each item alive, or several passes.

mod items;
mod look;
mod run;
mod verify;

pub use items::{ITEM_BYTES, ItemCounts};
pub use look::{CheckpointReport, JournalReport, JournalState, RecordCounts, SegmentCounts};
pub use run::{InspectOptions, Inspection, inspect};
pub use verify::{Flaw, FlawedPlace, Verified};

use device::{Bytes, DeviceError};

use crate::durability::Distrust;
use crate::durability::journal::JournalError;

/// What an inspection is reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The last page of every segment.
    Footers,
    /// The summaries of live segments.
    Summaries,
    /// All items of live segments.
    Items,
}

/// How far an inspection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What the inspection is reading.
    pub phase: Phase,
    /// Segments done in this phase.
    pub done: u64,
    /// Segments to do in this phase.
    pub total: u64,
}

/// Why there is nothing to inspect.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The device failed while the image was read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device holds nothing but zeros.
    #[error("it holds nothing yet; start a server on it to make an image")]
    Nothing,
    /// The device holds another program's data.
    #[error("it holds something that is not a Flowstone image; name the file of one")]
    Foreign,
    /// An image of another format version.
    #[error(
        "it holds an image of format {found} and this program reads format {expected}: use the \
         program that made it"
    )]
    Version {
        /// The version found.
        found: u32,
        /// The version this program reads.
        expected: u32,
    },
    /// An image whose superblocks are both damaged.
    #[error(
        "both copies of its superblock are damaged, and nothing else tells what it holds; only \
         `serve --force` makes it usable again, empty"
    )]
    Damaged,
    /// A part of an image.
    #[error("it has {:.2} of an image of {:.2}: give it back the rest", Bytes(*device), Bytes(*image))]
    Truncated {
        /// Bytes of the image.
        image: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// The superblock of an image on emulated flash.
    #[error(
        "it is the superblock of an image on emulated flash, which cannot be inspected: ask the \
         server for `stats flash`"
    )]
    SuperblockOnly,
    /// The device of an index.
    #[error(
        "it is the device with the index of the cache {image:016x}: name the one with the items"
    )]
    IsIndexDevice {
        /// The image: its hash seed.
        image: u64,
    },
    /// A running cache writes superblocks faster than they can be looked at.
    #[error("it changes faster than it can be looked at; try again")]
    Busy,
    /// An image of another placement.
    #[error("it holds an image of the `{found}` placement and this program inspects `{expected}`")]
    Placement {
        /// The placement found.
        found: String,
        /// The placement that can be inspected.
        expected: &'static str,
    },
}

/// What the next start would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Find again what is alive.
    Warm {
        /// The image was stopped orderly: memory is there, too.
        orderly: bool,
    },
    /// The next start is going to be empty.
    Empty(Distrust),
    /// Refuse, until somebody decides.
    Refused(JournalError),
}
