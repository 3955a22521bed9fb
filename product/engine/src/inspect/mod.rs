//! Inspecting an image: its content, and the items that a recovery would find. Nothing is changed.
//!
//! ```text
//!   superblock ─> journal head ─> checkpoint ─> journal ─> footers      the code of an open: find
//!        └ again, if it has changed
//!   summaries ──> each item classified as recovery does ──> by key hash: the latest item of each key
//!   segments  ──> each live item: checksum, key (if asked for)
//! ```
//!
//! An inspection works beside a running cache and takes none of its locks, so the image may change during it. The
//! superblock is read again until it has not changed while its parts were read. Data that does not verify is read a
//! second time; it counts as damaged only if a look at journal and superblock after that says that it should still be
//! there. All other results are as of about the moment of their read.
//!
//! Memory: the dead items, as for a recovery, and [`InspectOptions::memory_bytes`] to find the latest of several items
//! of a key. That takes [`ITEM_BYTES`] for each live item, or several passes.

mod flaws;
mod items;
mod look;
mod run;
mod runs;
mod verify;

pub use flaws::{Flaw, FlawedPlace};
pub use items::{ITEM_BYTES, ItemCounts};
pub use look::{CheckpointReport, JournalReport, JournalState, RecordCounts, SegmentCounts};
pub use run::{InspectOptions, Inspection, inspect};
pub use verify::Verified;

use device::{Bytes, DeviceError, Setting};

use crate::durability::Distrust;
use crate::durability::journal::JournalError;

/// Phase of an inspection, by the data that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The last page of every segment.
    Footers,
    /// The run headers of live segments.
    Headers,
    /// The summaries of live segments.
    Summaries,
    /// All items of live segments.
    Items,
}

/// Progress of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Present phase.
    pub phase: Phase,
    /// Segments done in this phase.
    pub done: u64,
    /// Segments to do in this phase.
    pub total: u64,
}

/// Reason for which there is nothing to inspect.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The device failed while the image was read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device holds only zeros.
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
    /// Both superblocks of the image are damaged.
    #[error(
        "both copies of its superblock are damaged, and nothing else tells what it holds; only a \
         start with {} makes it usable again, empty",
        Setting::Force
    )]
    Damaged,
    /// The device holds a part of an image.
    #[error("it has {:.2} of an image of {:.2}: give it back the rest", Bytes(*device), Bytes(*image))]
    Truncated {
        /// Bytes of the image.
        image: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// The device holds the superblock of an image on emulated flash.
    #[error(
        "it is the superblock of an image on emulated flash, which cannot be inspected: ask the \
         server for `stats flash`"
    )]
    SuperblockOnly,
    /// The device is that of an index.
    #[error(
        "it is the device with the index of the cache {image:016x}: name the one with the items"
    )]
    IsIndexDevice {
        /// The id of the image.
        image: u64,
    },
    /// A running cache writes superblocks faster than they can be read.
    #[error("it changes faster than it can be looked at; try again")]
    Busy,
    /// An image of another placement.
    #[error(
        "it holds an image of the `{found}` placement and this program inspects `exact` and `runs`"
    )]
    Placement {
        /// The placement found.
        found: String,
    },
}

/// Expected outcome of the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The start would find the live items.
    Warm {
        /// The image was stopped orderly: the items in memory were saved, too.
        orderly: bool,
    },
    /// The start would be empty.
    Empty(Distrust),
    /// The start would be refused until the operator decides.
    Refused(JournalError),
}
