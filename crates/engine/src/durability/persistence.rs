//! The state of an open image.

use std::sync::atomic::AtomicBool;

use device::Region;
use parking_lot::Mutex;
use runtime::sync::Notify;

use super::error::Distrust;
use crate::counter::counters;
use crate::format::superblock::Superblock;
use crate::store::{SavedCheckpoint, SegmentId};

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new image.
    New,
    /// What the last run has left on flash.
    Warm {
        /// Items in live segments, dead ones among them.
        items: u64,
        /// The image was stopped orderly: what was in memory is there, too.
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
    /// The stop has saved all that it is going to save.
    pub(crate) saved: AtomicBool,
    /// Notified when `stopped` is set, and again when `saved` is.
    pub(crate) stopping: Notify,
    /// A checkpoint is being written.
    pub(crate) checkpointing: AtomicBool,
    /// Notified when a checkpoint is not being written any more.
    pub(crate) checkpointed: Notify,
    pub(crate) start: Start,
    pub(crate) counters: CheckpointCounters,
}

counters! {
    CheckpointCounters, read as
    /// What has been done to survive a crash; only grows.
    CheckpointStats {
        /// Checkpoints written.
        written,
        /// Bytes of the checkpoints written, on flash.
        bytes,
        /// Checkpoints that could not be written.
        failed,
        /// Times that the journal was synced.
        syncs,
        /// Times that the journal could not be synced.
        sync_errors,
    }
}
