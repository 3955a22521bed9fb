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
mod outlook;
mod run;
mod verify;

pub use items::{ITEM_BYTES, ItemCounts};
pub use look::{CheckpointReport, JournalReport, JournalState, RecordCounts, SegmentCounts};
pub use outlook::{InspectError, Outlook, Phase, Progress};
pub use run::{InspectOptions, Inspection, inspect};
pub use verify::{Flaw, FlawedPlace, Verified};
