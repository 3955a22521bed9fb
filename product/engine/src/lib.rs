//! The cache: memory tier, flash tier, request paths.
//!
//! ```text
//!   server, library
//!        │ lookup / read_flash          │ modify / set / remove
//!   ┌────▼──────────────────────────────▼──────┐
//!   │ lifecycle  open                          │  inspect only reads an image
//!   │ cache      request paths, single flight  │
//!   │ background checkpoints, write-back, stop │
//!   │ tiers      memory above flash            │  a partition's lock, never held across I/O
//!   │ dram       items in memory, CLOCK        │  admission: which items go to flash
//!   ├──────────────────────────────────────────┤
//!   │ flash      ties the layers below to a placement: place, invalidate, drain, recovery
//!   │ placement  an index: where an item lies  │  an index's own lock
//!   │ reclaim    writing and reclaiming segments, policies
//!   │ durability journal, dead sets, checkpoints, state of an earlier run
//!   │ store      segments: append, write, read │  buffers, queues
//!   └────┬─────────────────────────────────────┘
//!      device
//!
//!   SET:  memory, acknowledged ··evicted··> open segment ··sealed··> flash ··oldest··> reclaimed
//!   GET:  memory │ open segment │ one flash read, kept in memory
//! ```
//!
//! No layer knows the layers above it; a test reads the imports and fails if one does. Requests run on the calling
//! thread. Writing, reclaim, recovery and checkpoints are background tasks ([`Engine::start_background`]). `format`
//! holds every byte offset.

#![forbid(unsafe_code)]

mod background;
mod cache;
pub mod config;
mod dram;
mod durability;
pub mod flash;

pub mod inspect;
mod key;
mod lifecycle;
pub mod placement;
pub mod preset;
pub mod reclaim;
mod settings;
pub mod store;

pub mod admission;
mod counter;
#[cfg(test)]
mod explore;
#[cfg(any(test, feature = "history"))]
pub mod history;
mod in_flight;
mod partition;
mod sync;
mod tiers;

pub use ::format;
pub use admission::{
    AdmissionKind, AdmissionStats, AdmitAdaptive, AdmitAll, AdmitGhosts, AdmitRandom, AdmitReread,
};
pub use background::{CheckpointStats, Stop, SyncError};
pub use cache::{
    Amend, CacheError, Change, Engine, EngineStats, FlashRead, ItemView, Loans, Lookup,
    MemoryCursor, Modified, Owner, Peek, Put, SharedValue,
};
pub use config::{
    AfterDowntime, ConfigError, Dram, EngineConfig, IndexSettings, ReclaimPolicy, ReclaimSettings,
    Reserve, Schedule, StaticReserve, WriteSettings,
};
pub use counter::{Count, NamedCounts, NamedStats};
pub use dram::LongValue;
pub use durability::{
    Distrust, IndexDeviceError, IndexDeviceNeed, Medium, OpenError, RecoveryStats, Start,
    SuperblockCopy, image_bytes, journal,
};
pub use flash::{DumpCursor, FlashStats};
pub use key::{HashSeed, Key, KeyHash, Passthrough};
pub use lifecycle::Opening;
pub use partition::PathStats;
pub use placement::{ExactSettings, IndexStats, PlacementKind};
pub use store::{FlashItem, Layout, Victim};
