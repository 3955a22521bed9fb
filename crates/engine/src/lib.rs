//! The cache: DRAM tier, segment store, placements, request paths.
//!
//! ```text
//!   server, library
//!        │ lookup / read_flash          │ modify / set / remove
//!   ┌────▼──────────────────────────────▼─────┐
//!   │ cache     request paths, single flight  │  a partition's lock, never held across I/O
//!   │ dram      items in memory, CLOCK        │
//!   ├──────────────────────────────────────────┤
//!   │ placement index, layout, reclaim         │  a shard's lock
//!   ├──────────────────────────────────────────┤
//!   │ store     segments: fill, write, read    │  buffers, queues
//!   └────┬─────────────────────────────────────┘
//!      device
//!
//!   SET:  memory, acknowledged ··evicted··> open segment ··sealed··> flash ··oldest··> reclaimed
//!   GET:  memory │ open segment │ one flash read, kept in memory
//! ```
//!
//! Each layer is ignorant of the one above. Requests run on whatever thread they come in on;
//! writing, reclaim, recovery and checkpoints are background tasks ([`Engine::start_background`]).
//! `lifecycle` opens an image, keeps it durable and stops it, `inspect` only looks at one; `journal` is
//! told of everything that dies; `format` holds every byte offset; `horizon` knows what expiry and `flush_all` have made dead.

#![forbid(unsafe_code)]

pub mod cache;
pub mod config;
pub mod dram;
pub mod format;
pub mod horizon;
pub mod inspect;
pub mod journal;
pub mod key;
pub mod lifecycle;
pub mod placement;
pub mod store;

mod averaged;
mod in_flight;
mod partition;
mod striped;

pub use cache::{
    Amend, CacheError, Change, Engine, EngineStats, FlashRead, ItemView, Lookup, MemoryLookup,
    Modified, Peek, Put,
};
pub use config::{
    AfterDowntime, ConfigError, Dram, EngineConfig, ExactSettings, PlacementConfig, ReclaimPolicy,
    ReclaimSettings, Reserve, Schedule, StaticReserve, WriteSettings,
};
pub use key::{Key, KeyHash};
pub use lifecycle::{CheckpointStats, Distrust, Medium, OpenError, Start, Stop, SuperblockCopy};
pub use partition::PathStats;
pub use placement::DumpCursor;
pub use store::{FlashItem, Layout, Victim};
