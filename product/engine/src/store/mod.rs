//! The segment store: opens, fills in memory, seals, writes, reads and releases segments.
//!
//! ```text
//!            append                      write_next                    take_victim
//!  free ──> filling ──seal──> sealed ──(erase, program)──> written ──────────────> reclaiming
//!   ▲       in a buffer      in a buffer                   on flash                    │
//!   └────────────────────────────── release: waits for the readers' pins ──────────────┘
//! ```
//!
//! [`SegmentStore`] has a part for each of these:
//!
//! | part | subject |
//! |---|---|
//! | [`SegmentTable`] | state, generation and pins of every segment; its valid items and its reads |
//! | [`Blocks`] | commands to the flash |
//! | [`Buffers`] | segments in memory |
//! | [`SegmentPool`] | queues of free, sealed and written segments; the next victim |
//! | [`Appender`] | segments being filled, sequence numbers |
//! | [`Reader`] | items and summaries, and the memory for reading them |
//! | [`Syncs`](doubt::Syncs) | syncs, and what a failed one puts in doubt |
//! | [`Flusher`](flush::Flusher) | parts of segments, written before the whole |
//! | [`Writer`](write::Writer) | whole segments |
//!
//! The store knows nothing of keys or indexes. A reader [`pin`](SegmentTable::pin)s the generation of a segment that
//! the index named; a released segment is not written again before its last pin is gone. In the slotted layout one
//! segment is being filled for each slab class in use; when there are more slab classes than buffers, the fullest
//! buffer is sealed short, or longer slots are used. In the hashed layout several segments of a stream are open; the
//! oldest is sealed when none has room for an item. A segment can be [flushed](flush::Flusher::flush_filling) before it
//! is full. Buffers are the back-pressure: when all are filled or being written, [`append`](Appender::append) finds
//! no space, and [`space`](SegmentPool::space) tells when to try again.
//!
//! Locks, in the order in which they may nest: `filling`, then one buffer's content, then `queues`. None is held across
//! I/O. A crash leaves the pages programmed so far. Sequence numbers are never reused, so no item of an earlier
//! generation of a segment verifies in a later one.

mod append;
mod blocks;
mod buffers;
mod checkpoint;
mod core;
mod counters;
mod cursor;
mod doubt;
mod failure;
mod filling;
mod flash_item;
mod flush;
mod layout;
mod outage;
mod parts;
mod pool;
mod priorities;
mod priority;
mod queues;
mod read;
mod read_patience;
mod scan;
mod segment;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod unlisted;
mod walk;
mod wear;
mod write;

pub use self::core::SegmentStore;
pub(crate) use self::core::StoreConfig;
pub use append::Appender;
pub(crate) use append::{FILLING_SHARE, FILLING_SHARE_OF_FLASH};
pub use blocks::Blocks;
pub(crate) use blocks::StoreFlash;
pub use buffers::{Buffers, StoreUse};
pub(crate) use checkpoint::{
    CHECKPOINT_STREAM_BYTES, CheckpointSink, CheckpointSource, SavedCheckpoint,
};
pub use counters::{StoreCounters, StoreStats};
pub use doubt::Syncs;

pub(crate) use failure::WriteFailure;
pub use flash_item::FlashItem;
pub(crate) use flush::Unflushed;
pub use layout::{AppendItem, Layout, SlabClasses, Source, StreamLayout, Streams};
pub use pool::{PoolCounts, SegmentPool, Victim};
pub use priorities::InsertionPoints;
pub use priority::{MOST_PRIORITIES, Priority};
pub use read::{Patience, ReadError, Reader};
pub(crate) use scan::Scan;
pub use segment::SegmentRecord;
pub(crate) use table::SEGMENT_TABLE_BYTES;
pub use table::{SegmentPin, SegmentTable};
pub(crate) use walk::{Walk, offset_of};
pub(crate) use wear::SegmentReads;
pub use wear::Wear;

pub use crate::format::location::Place;
pub use crate::format::segment::SegmentId;
