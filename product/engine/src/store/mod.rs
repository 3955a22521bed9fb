//! The segment store: opens, fills in memory, seals, writes, reads and releases segments.
//!
//! ```text
//!            append                      write_next                    take_victim
//!  free ──> filling ──seal──> sealed ──(erase, program)──> written ──────────────> reclaiming
//!   ▲       in a buffer      in a buffer                   on flash                    │
//!   └────────────────────────────── release: waits for the readers' pins ──────────────┘
//! ```
//!
//! The store knows nothing of keys or indexes. A reader [`pin`](SegmentStore::pin)s the generation of a segment that
//! the index named; a released segment is not written again before its last pin is gone. In the slotted layout one
//! segment is being filled for each slab class in use; when there are more slab classes than buffers, the fullest
//! buffer is sealed short, or longer slots are used. In the hashed layout several segments of a stream are open; the
//! oldest is sealed when none has room for an item. A segment can be [flushed](SegmentStore::flush_filling) before it
//! is full. Buffers are the back-pressure: when all are filled or being written, [`append`](SegmentStore::append) finds
//! no space, and [`space`](SegmentStore::space) tells when to try again.
//!
//! Locks, in the order in which they may nest: `filling`, then one buffer's content, then `queues`. None is held across
//! I/O. A crash leaves the pages programmed so far. Sequence numbers are never reused, so no item of an earlier
//! generation of a segment verifies in a later one.

mod append;
mod checkpoint;
mod core;
mod doubt;
mod filling;
mod flush;
mod hashed;
mod layout;
mod outage;
mod priorities;
mod priority;
mod probe;
mod queues;
mod read;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
mod wear;
mod write;

pub(crate) use self::core::{FILLING_SHARE, FILLING_SHARE_OF_FLASH, StoreConfig};
pub use self::core::{SegmentStore, StoreCounters, StoreUse, Victim};
pub(crate) use checkpoint::{
    CHECKPOINT_STREAM_BYTES, CheckpointSink, CheckpointSource, SavedCheckpoint,
};
pub(crate) use flush::Unflushed;
pub use layout::{AppendItem, Layout, SlabClasses, Source, StreamLayout, Streams};
pub use priorities::InsertionPoints;
pub use priority::{MOST_PRIORITIES, Priority};
pub use read::{FlashItem, Patience, ReadError, SegmentPin};
pub(crate) use segment::SEGMENT_TABLE_BYTES;
pub use segment::SegmentRecord;
pub(crate) use wear::SegmentReads;
pub use wear::Wear;
pub(crate) use write::WriteFailure;

pub use crate::format::location::Place;
pub use crate::format::segment::SegmentId;
