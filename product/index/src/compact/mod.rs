//! Compact index: where objects lie on flash, in less than 4 bytes of memory each (Flashield, NSDI '19, section 3.4).
//!
//! ```text
//!   hash ── 16 look-up functions ──> slots of a CompactTable, one table per partition
//!                                      │ segment, function, rank         bit-packed, no key and no hash of one
//!                                      ▼
//!                                    SegmentFilter of that segment       Bloom filter, immutable
//!                                      │ may hold the key
//!                                      ▼
//!                                    the caller reads the object at `function(key)` in the segment, compares the key,
//!                                    and goes on with the next candidate if it is another's       (figure 5)
//! ```
//!
//! A table is a multiple-choice hash table without chains: an entry lies in one of the 16 slots of its key, and which key
//! it belongs to is known on flash alone. So an entry can neither move nor be found but through its key, free slots end no
//! search, and where all 16 slots of a new key are taken one of the entries in them is displaced: a later miss, though the
//! object is on flash. Tables have no lock; whoever owns one keeps it behind its partition's. Filters belong to all
//! partitions together, as segments do.
//!
//! Invariants:
//! - What was inserted is among the candidates of its key until it is removed, replaced or displaced, and whoever inserts
//!   is told what was displaced.
//! - An entry changes by slot and location alone: a caller whose look-up is outdated changes nothing.
//! - A table and a filter take the memory that they took when they were made.
//! - Nothing here blocks, or touches a clock or a source of randomness: the same calls give the same table.
//!
//! Failure: no operation fails. A segment or a function out of range is a programmer's error and panics.
//! `docs/internals/indexes.md` has the layout, the formulas and what displacement costs.

mod config;
mod entry;
mod filters;
mod lookup;
#[cfg(test)]
mod model_tests;
mod probes;
mod table;
#[cfg(test)]
mod tests;
mod victim;

pub use config::{CompactConfig, OutOfRange, SEGMENT_BITS_HIGHEST, SKIP_BITS_HIGHEST};
pub use entry::{CLOCK_HIGHEST, CompactEntry, FUNCTIONS, Location, Rank};
pub use filters::{FILTER_BITS_PER_100_KEYS, FILTER_KEY_BITS, SegmentFilter, SegmentFilters};
pub use format::segment::SegmentId;
pub use lookup::candidates;
pub use probes::{PROBES, SlotId};
pub use table::{CompactTable, Inserted};
pub use victim::{Taken, last_collided, oldest};
