//! Durability: the state that survives the process, and the start from the state that an earlier process has left.
//!
//! ```text
//!   journal ───── deaths since the checkpoint ──┐
//!   checkpoint ── deaths before it ─────────────┴─> DeadSet ─> LastRun: live segments, with their dead items
//!   superblocks ── identity of the image, and the checkpoint in force
//!   journal_place ── path of the journal
//!   index_device ── header of a separate device for the index
//!   recovery ── the live segments whose summaries are still to be read
//!   clock ── clocks by which the items of earlier runs expire
//!   superseded ── dead keys that a checkpoint may strike out
//!   flush ── version cutoffs of `flush_all`, and expiry
//! ```
//!
//! Records and checkpoints only ever declare items dead; `docs/internals/recovery.md` says why that is enough.

pub(crate) mod checkpoint;
pub(crate) mod clock;
pub(crate) mod dead;
pub(crate) mod error;
pub(crate) mod find;
pub(crate) mod flush;
pub(crate) mod index_device;
pub mod journal;
pub(crate) mod journal_place;
pub(crate) mod medium;
pub(crate) mod recovery;
pub(crate) mod superblocks;
pub(crate) mod superseded;

pub(crate) use dead::CheckpointContents;
pub use error::{Distrust, IndexDeviceError, OpenError};
pub(crate) use flush::FlushCutoffs;
pub use index_device::IndexDeviceNeed;
pub use medium::Medium;
pub use recovery::RecoveryStats;
pub use superblocks::{Start, SuperblockCopy, image_bytes};
