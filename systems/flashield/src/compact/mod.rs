//! Compact index: locations of objects on flash, in less than 4 bytes of memory each (Flashield, NSDI '19, section 3.4).
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
//! A table is a multiple-choice hash table without chains. An entry lies in one of the 16 slots of its key, and only
//! flash has the key. So an entry cannot move, is found through its key alone, and free slots end no search. If all 16
//! slots of a new key are taken, one of their entries is displaced: a later miss, though the object is on flash. Tables
//! have no lock; the owner keeps each one behind its partition's. Filters belong to all partitions together, as segments
//! do.
//!
//! Invariants:
//! - An entry is among the candidates of its key until it is removed, replaced or displaced. An insertion reports the
//!   entry that it displaces.
//! - An entry changes by slot and location alone: a caller whose look-up is outdated changes nothing.
//! - The memory of a table or a filter never changes after its creation.
//! - Nothing here blocks, or touches a clock or a source of randomness: the same calls give the same table.
//!
//! Failure: no operation fails. A segment or a function out of range is a programmer's error and panics.
//! `docs/internals/indexes.md` has the layout, the formulas and the cost of displacement.

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
