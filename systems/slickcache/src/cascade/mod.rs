//! Cascade mapping: an index that keeps a small part of its mappings in memory and the rest on flash (SlickCache, `SoCC`
//! '18, section 4).
//!
//! ```text
//!   insert, bury ──> Tier 1   HotTable, in memory                              hot
//!                      │ CLOCK, a block's worth at once                         │ upkeep
//!                      ▼                                                        ▼
//!                    Tier 2   for each partition a FIFO of blocks              direct
//!                      │ the oldest block                                       │ upkeep
//!                      ▼                                                        ▼
//!                    Tier 3   active lists, a buffer each ──compaction──> inactive buckets
//!
//!   search: Tier 1, Tier 2 in batches of pages, newest first, then active, then inactive. The first match ends it.
//! ```
//!
//! ```text
//!   Cascade ─┬─ Tiers        the partitions in memory; operations on Tier 1
//!            ├─ Flash        the pages of the region, their numbers, pages in doubt
//!            ├─ Searches     look-ups in Tiers and Flash
//!            ├─ Checkpoints  save Tiers to Flash, and load them
//!            └─ Upkeep       of one partition, from Tiers to Flash: its Writer, a Compaction, a Repair
//! ```
//!
//! Keys are 64-bit hashes; all tiers keep the same topmost bits. An entry names a segment by a number that no other
//! generation of a segment has. Reclaim of a segment therefore changes nothing here (zero-I/O demapping, section 4.3): a
//! match whose segment is gone is a miss. The owner of the cascade verifies keys.
//!
//! Each partition has one lock, held for memory operations only, and one upkeep task. Only this task moves mappings below
//! Tier 1. Under the lock a search lists the pages that it will read. If a page was released and rewritten since, it does
//! not verify, and the search starts again.
//!
//! After a crash the index is as the last checkpoint names it ([`Checkpoints::save`]): no page of a checkpoint is rewritten
//! before another one is named. `docs/papers/cascade.md` has the sizes.

mod block;
mod bounds;
mod brake;
mod checkpoint;
mod core;
mod counters;
mod doubt;
mod flash;
mod footprint;
mod hot;
mod jump;
mod layout;
mod layouts;
mod order;
mod pages;
mod partition;
mod request;
mod search;
mod segments;
mod shape;
mod slices;
mod tiers;
mod upkeep;
mod usage;

#[cfg(test)]
mod tests;

pub use self::core::{Cascade, CascadeError};
pub use brake::Brake;
pub use checkpoint::{Checkpoints, LoadError, Loaded, SaveError};
pub use counters::Counters;
pub use flash::Flash;
pub use footprint::Footprint;
pub use hot::Hot;
pub use pages::PageStore;
pub use request::CheckpointRequest;
pub use search::{Searched, Searches, Tier};
pub use segments::Segments;
pub use shape::{CascadeConfig, OutOfRange, Replacement, Sizes};
pub use tiers::{HotFull, Tiers};
pub use upkeep::Upkeep;
pub use usage::{MemoryUse, Usage};
