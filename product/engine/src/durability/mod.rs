//! Durability: what survives the process, and what an earlier one has left.
//!
//! ```text
//!   journal ── what has died since ──┐
//!   checkpoint ── what had died ─────┴─> DeadSet ─> LastRun: live segments, less what has died
//!   superblocks ── what the image is, which checkpoint counts
//!   index_device ── whose index a device of its own has
//!   recovery ── the live segments whose summaries are still to be read
//!   flush ── version cutoffs of `flush_all`, and expiry
//! ```
//!
//! Records and checkpoints only ever kill; `docs/internals/recovery.md` says why that is enough.

pub(crate) mod checkpoint;
pub(crate) mod dead;
pub(crate) mod error;
pub(crate) mod find;
pub(crate) mod flush;
pub(crate) mod index_device;
pub mod journal;
pub(crate) mod medium;
pub(crate) mod recovery;
pub(crate) mod superblocks;

pub(crate) use dead::CheckpointContents;
pub use error::{Distrust, IndexDeviceError, OpenError};
pub(crate) use flush::FlushCutoffs;
pub use index_device::IndexDeviceNeed;
pub use medium::Medium;
pub use recovery::RecoveryStats;
pub use superblocks::{Start, SuperblockCopy};
