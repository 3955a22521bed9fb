//! Cascade mapping: an index of which a small part is in memory (SlickCache, `SoCC` '18, section 4).
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
//! Keys are 64-bit hashes, of which all tiers keep the same topmost bits. An entry names a segment by a number that no other
//! generation of a segment has, so that nothing is to be done when a segment is reclaimed (zero-I/O demapping, section 4.3):
//! a match whose segment has gone is a miss. Whoever owns the cascade verifies keys.
//!
//! A partition is behind one lock, held for memory operations only. Its upkeep is one task, which alone moves what is below
//! Tier 1. A search notes under the lock which pages it will read; a page that has been let go of and written again since
//! does not verify, and the search begins anew.
//!
//! What a crash leaves is what the last checkpoint names ([`Cascade::save`]): no page of it is written again before another
//! one is named. `docs/papers/cascade.md` has the sizes.

mod block;
mod bounds;
mod brake;
mod checkpoint;
mod core;
mod doubt;
mod footprint;
mod hot;
mod jump;
mod layout;
mod order;
mod pages;
mod partition;
mod search;
mod shape;
mod slices;
mod trim;
mod upkeep;
mod usage;

#[cfg(test)]
mod tests;

pub use self::core::{Cascade, CascadeError, Counters, HotFull, Segments};
pub use checkpoint::{LoadError, Loaded, SaveError};
pub use hot::Hot;
pub use search::{Searched, Tier};
pub use shape::{CascadeConfig, OutOfRange, Replacement, Sizes};
pub use usage::Usage;
