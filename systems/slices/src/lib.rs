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
//! | mechanism | section | file |
//! |---|---|---|
//! | SliceHash | 5 | `systems/slices/src/hash.rs`, `systems/slices/src/hash/` |
//! | slicing: a slot of all incarnations in one page | 5.1 | `systems/slices/src/page.rs`, the bytes in `systems/slices/src/encoding/table.rs` |
//! | slicetables: layout, regions, reads and rewrites | 5.1 | `systems/slices/src/drive.rs`, `systems/slices/src/regions.rs`, `systems/slices/src/layout.rs` |
//! | incarnations: a ring for each partition | 5.1 | `systems/slices/src/incarnations.rs` |
//! | flushes | 5.1 | `systems/slices/src/flush.rs`, `systems/slices/src/frozen.rs` |
//! | partitions, and their tables in memory | 5.1.1, 7.1 | `systems/slices/src/table.rs` |
//! | Bloom filters in memory | 5.1.2 | `systems/slices/src/filter.rs` |
//! | concurrent reads over channels | 4.2, 5.2 | `systems/slices/src/scheduler.rs`, `systems/slices/src/channel.rs`, `systems/slices/src/probe.rs` |
//! | several drives | 5.3 | `systems/slices/src/drives.rs` |
//! | SliceBloom | 6, 7.5 | `systems/slices/src/bloom/` |
//! | SliceLSH | 6, 7.5 | `systems/slices/src/lsh/` |
//! | bursts of inserts: side tables | 7.2 | `systems/slices/src/frozen.rs`, `systems/slices/src/hash/batch.rs` |
//! | tolerating failures: the log | 8 | `systems/slices/src/log.rs`, `systems/slices/src/part.rs` |
//! | large pairs: SliceMap | 8 | `systems/slices/src/map/` |
//! | the index of a cache | - | `systems/slices/placement/` |
//!
//! `docs/papers/slices.md` has the design, the states and the effects of a crash; the bytes are in [`encoding`].
//!
//! The crate needs a runtime (`runtime::sim` or `runtime::live`) on the threads that use it, and nothing of the cache.

#![forbid(unsafe_code)]

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
