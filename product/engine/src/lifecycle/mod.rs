//! Opening an image.
//!
//! ```text
//!   open:  superblock, journal head ─> checkpoint, journal, footers: live segments, dead items
//!             ─> journal head, superblock: a new run, higher limits; synced ─> serve
//! ```
//!
//! `docs/internals/recovery.md` says why a crash at any moment leaves nothing wrong.

mod base;
mod budget;
mod image;
mod index;
mod open;
mod run_start;

pub use open::Opening;

/// Segment sequence numbers reserved for one run. Not a round number: its low bits, which DEAD records keep, are to
/// differ between runs.
pub(crate) const SEQUENCE_RESERVE: u64 = (1 << 40) + 100_003;
