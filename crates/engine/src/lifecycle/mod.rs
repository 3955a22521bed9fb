//! Opening, keeping durable and stopping an image.
//!
//! ```text
//!   open:  superblock, journal head ─> checkpoint, journal, footers: what lives, what is dead
//!             ─> journal head, superblock: a new run, higher limits; synced ─> serve
//!   run:   journal synced every interval │ checkpoint when half of the journal is full
//!   stop:  place all of memory ─> drain ─> checkpoint ─> sync ─> set the clean mark ─> sync
//! ```
//!
//! `docs/recovery.md` says why nothing is wrong after a crash at any moment of it.

mod durable;
mod find;
mod medium;
mod open;
mod superblocks;

use std::sync::atomic::{AtomicBool, AtomicU64};

use device::{DeviceError, Region};
use parking_lot::Mutex;
use runtime::sync::Notify;

pub use durable::CheckpointStats;
pub use medium::Medium;
pub use superblocks::SuperblockCopy;

pub(crate) use find::{
    Found, find, look_at_journal, read_checkpoint, saved_checkpoint, unsaved_chunks,
};
pub(crate) use superblocks::Copies;

use crate::config::ConfigError;
use crate::format::superblock::Superblock;
use crate::journal::{JournalError, Unusable};
use crate::placement::exact::ExactError;
use crate::store::{SavedCheckpoint, SegmentId};

/// Versions reserved at a time, in each partition.
const VERSION_RESERVE: u64 = 1 << 44;
/// Segment sequence numbers reserved for one run. No round number: the low bits of it that DEAD records
/// keep are to be others in each run.
const SEQUENCE_RESERVE: u64 = (1 << 40) + 100_003;
/// Times an orderly stop places what segments that could not be written have lost.
const MAX_ROUNDS: usize = 3;
/// Placement of the images this program makes.
pub(crate) const PLACEMENT: &str = "exact";

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The journal cannot be opened.
    #[error(transparent)]
    JournalFile(#[from] device::JournalError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The index cannot be set up.
    #[error(transparent)]
    Index(#[from] ExactError),
    /// Somebody else's data.
    #[error(
        "it holds something that is not a Flowstone image; name another path, or use --force to \
         overwrite it"
    )]
    Foreign,
    /// An image of another format version.
    #[error(
        "it holds an image of format {found} and this program reads format {expected}: use the \
         program that made it, or --force to start empty"
    )]
    Version {
        /// The version found.
        found: u32,
        /// The version this program reads.
        expected: u32,
    },
    /// An image whose superblocks are both damaged.
    #[error("both copies of its superblock are damaged; use --force to start empty")]
    Damaged,
    /// An image of another size than the device.
    #[error(
        "it holds an image of {image} bytes and {device} are given: use --flash-size {image}, or \
         --force to start empty"
    )]
    Size {
        /// Bytes of the image.
        image: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// An image on flash of another size.
    #[error(
        "it holds an image on {image} bytes of flash and the device has {device}: give it the same \
         device, or --force to start empty"
    )]
    FlashSize {
        /// Bytes of flash of the image.
        image: u64,
        /// Bytes of flash of the device.
        device: u64,
    },
    /// The superblock alone.
    #[error(
        "it is the superblock of an image on emulated flash: name the file with the flash, as \
         nand:PRESET,file=PATH"
    )]
    SuperblockOnly,
    /// An image made on flash of another shape.
    #[error(
        "it holds an image with segments of {image} bytes on {image_channels} channels and the \
         device has {device} on {device_channels}: give it the same device, or --force to start \
         empty"
    )]
    Geometry {
        /// Bytes of a segment of the image.
        image: u32,
        /// Its channels.
        image_channels: u32,
        /// Bytes of an erase block of the device.
        device: u64,
        /// The device's channels.
        device_channels: u32,
    },
    /// An image of another placement.
    #[error(
        "it holds an image of the `{found}` placement and this preset uses `{expected}`: use the \
         preset it was made with, or --force to start empty"
    )]
    Placement {
        /// The placement found.
        found: String,
        /// The placement asked for.
        expected: &'static str,
    },
}

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new image.
    New,
    /// What the last run has left on flash.
    Warm {
        /// Items in living segments, dead ones among them.
        items: u64,
        /// It was stopped orderly: memory is there, too.
        orderly: bool,
    },
    /// Nothing that can be trusted.
    Empty(Distrust),
    /// Something else that `force` overwrote.
    Forced,
}

/// Why an image starts empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The journal cannot tell what has died.
    #[error("its journal cannot be used: {0}")]
    Journal(#[from] Unusable),
    /// Records between the checkpoint and those that are left are missing.
    #[error("part of its journal is missing")]
    JournalGap,
    /// The checkpoint does not verify.
    #[error("its checkpoint does not verify")]
    Checkpoint,
    /// Too many segments cannot be read.
    #[error("its flash cannot be read")]
    Unreadable,
    /// It has been down for longer than allowed.
    #[error("it was down for longer than max_downtime")]
    Downtime,
}

/// What an orderly stop left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything; the next start has it all.
    Complete {
        /// Objects on flash.
        objects: u64,
    },
    /// The deadline passed or the device failed; the next start misses what was in memory only.
    Incomplete {
        /// Items that were not on flash yet.
        items_left: u64,
    },
    /// It had been stopped before.
    Already,
}

/// The part of an engine that opens it, keeps it durable and stops it.
pub(crate) struct Lifecycle {
    meta: Region,
    superblock: Mutex<Superblock>,
    /// The checkpoint that the superblock names.
    checkpoint: Mutex<Option<SavedCheckpoint>>,
    /// Segments of checkpoints of which it is not known whether the superblock names them.
    doubtful: Mutex<Vec<SegmentId>>,
    stopped: AtomicBool,
    /// It has stopped as far as it is going to be.
    saved: AtomicBool,
    /// Told when it is stopped, and again when it is saved.
    stopping: Notify,
    /// A checkpoint is being written.
    checkpointing: AtomicBool,
    /// Told when it is not any more.
    checkpointed: Notify,
    start: Start,
    stats: CheckpointCounters,
}

#[derive(Debug, Default)]
struct CheckpointCounters {
    written: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    syncs: AtomicU64,
    sync_errors: AtomicU64,
}
