//! Opening, keeping durable and stopping an image.
//!
//! ```text
//!   open:  superblock, journal head ─> checkpoint, journal, footers: what is live, what is dead
//!             ─> journal head, superblock: a new run, higher limits; synced ─> serve
//!   run:   journal synced every interval │ checkpoint when half of the journal is full, or it has lost records
//!   write_back: what has been dirty for long is placed and flushed; serves Engine::sync
//!   stop:  clean all of memory ─> drain ─> checkpoint ─> sync ─> set the clean mark ─> sync
//! ```
//!
//! `docs/internals/recovery.md` says why nothing is wrong after a crash at any moment of it.

mod durable;
mod expire;
mod open;
mod write_back;

pub use durable::{CheckpointStats, Stop};
pub use open::Opening;

/// Versions reserved at a time, for all partitions.
const VERSION_RESERVE: u64 = 1 << 36;
/// Versions that stay reserved after an orderly stop, for what is acknowledged while it goes on.
const STOP_RESERVE: u64 = 1 << 30;
/// Segment sequence numbers reserved for one run. No round number: the low bits of it that DEAD records
/// keep are to be others in each run.
const SEQUENCE_RESERVE: u64 = (1 << 40) + 100_003;
