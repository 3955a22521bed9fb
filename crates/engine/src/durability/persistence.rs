//! The state of an open image.

use std::sync::atomic::{AtomicBool, AtomicU64};

use device::Region;
use parking_lot::Mutex;
use runtime::sync::Notify;

use super::error::Distrust;
use crate::format::superblock::Superblock;
use crate::store::{SavedCheckpoint, SegmentId};

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

/// What an engine keeps of its image: where the superblock lies and what it says, and what is under way.
pub(crate) struct Persistence {
    pub(crate) meta: Region,
    pub(crate) superblock: Mutex<Superblock>,
    /// The checkpoint that the superblock names.
    pub(crate) checkpoint: Mutex<Option<SavedCheckpoint>>,
    /// Segments of checkpoints of which it is not known whether the superblock names them.
    pub(crate) doubtful: Mutex<Vec<SegmentId>>,
    pub(crate) stopped: AtomicBool,
    /// It has stopped as far as it is going to be.
    pub(crate) saved: AtomicBool,
    /// Told when it is stopped, and again when it is saved.
    pub(crate) stopping: Notify,
    /// A checkpoint is being written.
    pub(crate) checkpointing: AtomicBool,
    /// Told when it is not any more.
    pub(crate) checkpointed: Notify,
    pub(crate) start: Start,
    pub(crate) stats: CheckpointCounters,
}

#[derive(Debug, Default)]
pub(crate) struct CheckpointCounters {
    pub(crate) written: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_errors: AtomicU64,
}
