//! The DRAM tier of one partition: items in memory, ranked by CLOCK.
//!
//! Items lie in a log of fixed chunks and are appended at the head. Memory is freed one whole chunk at a time, at the
//! tail, so that there is no fragmentation and the bound is exact. CLOCK on a log: when the oldest chunk goes, items
//! read since the hand last passed are appended again with their bit cleared, and the other items leave. A clean item
//! leaves without a write, since its copy is on flash; a dirty item is placed on flash first. Values too long for a
//! chunk lie beside the log, shared, and count against the same bound. Values too large for the memory of one partition
//! count against a bound of all partitions, and leave in an order of their own ([`large`]).
//!
//! ```text
//!   tail                                  head
//!   │ chunk │ chunk │ chunk │ … │ chunk │ chunk ──> append
//!      └─ evict: dead: skip │ referenced: append again │ clean: forget │ dirty: place on flash
//! ```
//!
//! Items that have been dirty for long are placed on flash and stay in memory, clean ([`clean`]).
//!
//! Everything here runs under the partition's lock and never waits. If flash has no space, [`NoSpace`] goes up to the
//! request path, which waits outside the lock.

mod below;
mod clean;
mod collect;
mod collected;
mod context;
mod evict;
mod evicted;
mod expire;
mod items;
mod large;
mod log;
mod long;
#[cfg(test)]
mod tests;
mod tier;

pub(crate) use below::NoSpace;
pub(crate) use clean::{Due, Walked};
pub(crate) use context::EvictContext;
pub(crate) use evicted::Evicted;
pub(crate) use items::{NewItem, Older, TierStats};
pub(crate) use large::{LargeClaim, LargeValues};
pub(crate) use log::{Handle, LogPosition};
pub use long::LongValue;
pub(crate) use tier::{DramTier, LargeFate, inline_bytes};
