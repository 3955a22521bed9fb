//! The DRAM tier of one partition: items in memory, ranked by CLOCK.
//!
//! Items lie in a log of fixed chunks, appended at the head; memory comes free only a chunk at a
//! time, at the tail, so that there is no fragmentation and the bound is exact. CLOCK on a log: when
//! the oldest chunk goes, items read since the hand last passed are appended again with their bit
//! cleared, the others leave. A clean item leaves silently, its copy is on flash; a dirty one is
//! placed on flash first. Values too long for a chunk lie beside the log, shared, and are counted
//! against the same bound.
//!
//! ```text
//!   tail                                  head
//!   │ chunk │ chunk │ chunk │ … │ chunk │ chunk ──> append
//!      └─ evict: dead: skip │ referenced: append again │ clean: forget │ dirty: place on flash
//! ```
//!
//! Everything here runs under the partition's lock and never waits; when flash has no room,
//! [`NoRoom`] goes up to the request path, which waits outside the lock.

mod evict;
mod log;
#[cfg(test)]
mod tests;
mod tier;

pub(crate) use tier::EvictContext;
pub use tier::{DramTier, Handle, NewItem, TierStats};

/// Flash has no room at present for what has to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;
