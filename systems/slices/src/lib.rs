//! Indexes larger than memory whose look-ups read one page: the "slice indexes" of ANCS '14.
//!
//! ```text
//!   SliceHash  SliceBloom  SliceLsh     entries, bits and vectors, in memory and in the log
//!          │ pages, changes of pages
//!        Drive ── Scheduler             slicetables: read a page, rewrite all
//!          │
//!        device::Disk                   a file, a drive, an emulated one
//! ```
//!
//! `docs/papers/slices.md` has the design, the states and the effects of a crash; the bytes are in [`encoding`].
//!
//! The crate needs a runtime (`runtime::sim` or `runtime::live`) on the threads that use it, and nothing of the cache.

mod bloom;
mod channel;
mod counts;
mod drive;
mod drives;
pub mod encoding;
mod error;
mod files;
mod filter;
mod flush;
mod frozen;
mod hash;
mod incarnations;
mod keys;
mod layout;
mod log;
mod lsh;
mod map;
mod page;
mod paged_log;
mod part;
mod parts;
mod pointers;
mod probe;
mod regions;
mod retry;
mod scheduler;
mod settings;
mod superblock;
mod table;
mod words;

pub use bloom::{BitPlacement, BloomMemory, BloomSettings, BloomShape, BloomStats, SliceBloom};
pub use channel::Channels;
pub use error::{SliceError, VectorError};
pub use files::{Files, log_path};
pub use hash::index::{Before, InMemory, Known, SliceIndex, TableInMemory};
pub use hash::{HashMemory, HashStats, SliceHash, get_all};
pub use keys::key_of_text;
pub use lsh::{
    ChannelReads, Choice, Components, Family, LshLayout, LshMemory, LshSettings, LshShape,
    LshStats, Neighbour, RingShape, SliceLsh, Target, VectorId,
};
pub use map::{MapMemory, MapSettings, MapShape, MapStats, RecordShape, SliceMap};
pub use paged_log::PagedLog;
pub use probe::{PROBED_BYTES, probe_channels};
pub use scheduler::Scheduling;
pub use settings::{FILL, HashSettings, HashShape};
