//! Opening an image, keeping it durable, and stopping it.
//!
//! ```text
//!   open:  superblock, journal head ─> checkpoint, journal, footers: live segments, dead items
//!             ─> journal head, superblock: a new run, higher limits; synced ─> serve
//!   run:   journal synced every interval │ checkpoint when half of the journal is full, or it has lost records
//!   write_back: items that have been dirty for long are placed and flushed; serves Engine::sync
//!   stop:  clean all of memory ─> drain ─> checkpoint ─> sync ─> set the clean mark ─> sync
//! ```
//!
//! `docs/internals/recovery.md` says why a crash at any moment leaves nothing wrong.

mod base;
mod budget;
mod durable;
mod expire;
mod image;
mod index;
mod open;
mod run_start;
mod write_back;

pub use durable::{CheckpointStats, Stop};
pub use open::Opening;

/// Versions reserved at a time, for all partitions.
const VERSION_RESERVE: u64 = 1 << 36;
/// Versions that stay reserved after an orderly stop, for writes acknowledged during the stop.
const STOP_RESERVE: u64 = 1 << 30;
/// Segment sequence numbers reserved for one run. Not a round number: its low bits, which DEAD records keep, are to
/// differ between runs.
const SEQUENCE_RESERVE: u64 = (1 << 40) + 100_003;
