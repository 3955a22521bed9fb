//! Placements: an index of the items on flash, and how an item is found again by it.
//!
//! Index, streams and rebuild belong together, so they are one unit behind one trait, [`Placement`]. The parts that all
//! placements share are elsewhere and concrete: segments and reads (`store`), journal, checkpoints and the recovery
//! queue (`durability`), writing and reclaim (`reclaim`), and the tie between these and a placement (`flash`).
//! `docs/internals/placements.md` lists the assumptions of each method.
//!
//! [`exact`], an index of everything in memory, is the placement of the default preset. The placements of the papers' systems are
//! in their crates; [`on_flash`] has the parts that the two with an index on flash share.

mod clock;
pub mod exact;
mod kind;
pub mod on_flash;
mod read;
mod stats;

pub use clock::{InMemory, SharedClock};
pub use exact::ExactSettings;
pub use kind::{Description, IndexRoom, IndexSizes, Parts, PlacementKind, StreamPlan};
pub use read::read_copy;
pub use stats::IndexStats;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::durability::OpenError;
pub use crate::durability::dead::DeadCopies;
use crate::format::checkpoint::Section;
use crate::format::location::Place;
use crate::key::{Key, KeyHash};
use crate::reclaim::{Resident, Residents};
use crate::store::{FlashItem, Patience, ReadError, SegmentRecord};

/// The future of a placement's work; it stays on the thread that started it.
pub type PlacementFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Makes the future of a background task on the worker that will run it.
pub type BackgroundTask = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The part of the index that may name a key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlocated;

/// Answer of an index for a key, without reading flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The key is not on flash.
    Absent,
    /// The key may be on flash. Eviction drops a clean item for this answer; a stop and a sync write the item again.
    Perhaps,
    /// The index names a copy.
    At(Located),
}

/// A copy that the index names. Two are equal when they are the same bytes; a place does not come back once it has gone, since
/// its generation has gone.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// Where the copy lies.
    pub place: Place,
    /// Whether the item has been read since it was written; does not count for equality.
    pub fetched: bool,
}

impl PartialEq for Located {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Located {}

/// Reason for a look-up in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The look-up tells nothing about the item's use.
    Peek,
    /// A request reads the item.
    Read,
    /// A copy that [`get`](Placement::get) has found turns out to have been read.
    Found,
}

/// Whether a read of flash counts as a read of the item: it does once a request other than a peek has joined it.
pub type Counts<'a> = &'a (dyn Fn() -> bool + Sync);

/// Result of a read of flash.
#[derive(Debug)]
pub enum Found {
    /// The item, verified: checksum and key.
    Item(FlashItem),
    /// No item of that key.
    Absent,
}

/// Copies that a change displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// There was no copy.
    None,
    /// The copy at this place: it is journalled as dead by its place.
    Known(Place),
    /// There may be copies, at unknown places: they are journalled as dead by key and version.
    Unknown,
}

/// Outcome of an insert into the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The index names the item, and no longer the displaced copy.
    Yes(Displaced),
    /// The index has no space for the item, and names no other copy either; the copy is the one it named before.
    Full(Displaced),
}

/// Outcome of restoring an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The index names the item now, and no longer the displaced copy.
    Taken(Displaced),
    /// The index names the copy at another place: the higher version is to stay.
    Contested(Place),
    /// The index may name another copy, which [`locate`](Placement::locate) tells.
    Unclear,
    /// The index has no space for it.
    Refused,
    /// The earlier run has recorded that the item's entry was lost.
    Lost,
}

/// A batch of items of an earlier run, all of one partition and one segment.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The items.
    pub items: &'a [Resident],
    /// The copy of the items' key that these items outrank.
    pub beaten: Option<Place>,
    /// Marks of the entries for the segment whose loss the earlier run has recorded, in rising order.
    pub lost_marks: &'a [u32],
}

/// Event that concerns the index.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A segment of an earlier run has been restored. An index whose entries do not tell keys apart sees to it that no entry
    /// leads to the dead or the expired items.
    SegmentRestored {
        /// The segment.
        segment: &'a SegmentRecord,
        /// Items of the segment that have not been restored.
        dead: &'a [Resident],
        /// Items that have been restored, had expired, and have been invalidated since.
        expired: &'a [Resident],
    },
    /// Every segment of the earlier run has been restored.
    Recovered,
    /// The checkpoint of the last section is in force, or is not. `None` means that the outcome is unknown: before the engine
    /// asks for another section it makes sure that the earlier checkpoint is the one in force. Also sent where there was no
    /// section.
    CheckpointEnded(Option<bool>),
}

/// Space in the index for changes, beside the bytes that [`IndexUse`](crate::reclaim::IndexUse) counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// The index takes every change.
    #[default]
    Free,
    /// The index could not name further items: writes wait for [space](crate::store::SegmentStore::space).
    Behind,
    /// The index takes no invalidation either: requests that displace a copy wait.
    Full,
}

/// Demands of the index on its callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Space for changes.
    pub space: Space,
    /// Whether the placement wants a checkpoint: it would free a resource, or many segments have been opened since the last.
    pub wants_checkpoint: bool,
}

/// An index of the items on flash. Used from all threads at once; it protects itself.
///
/// `probe`, `insert` and `invalidate` are called under the partition's lock of their key, and take memory operations only.
/// The caller journals the displaced copies before it answers the request.
pub trait Placement: Residents {
    /// Returns the index's answer for a key.
    fn probe(&self, hash: KeyHash, look: Look) -> Probe;

    /// Prefetches the entries of these keys, all of one partition, which the next calls will ask for.
    fn warm(&self, _hashes: &mut dyn Iterator<Item = KeyHash>) {}

    /// Reads the item of `key`, for which the index answered `probe`, or the item that has taken its place since. An index on
    /// flash is read here, too. Memory for the item is awaited as `patience` says, with no segment pinned. An index whose
    /// [`probe`](Placement::probe) has not noted the read does it here, if by then the look `counts`.
    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>>;

    /// An item has been appended to an open segment: the index names it from now on. Called with the segment's
    /// buffer locked, so that the segment keeps its generation. `clock` is the CLOCK value that it had in memory.
    fn insert(&self, hash: KeyHash, version: u64, place: Place, clock: u8) -> Inserted;

    /// The copies of a key on flash with versions below `version` are outdated: the index names them no more.
    fn invalidate(&self, hash: KeyHash, version: u64) -> Displaced;

    /// Loads the index from the section that it was opened with, or prepares an empty index, and then invalidates the keys that
    /// were `outdated` after the last checkpoint. Called once, before everything else. An index in a section takes no more
    /// memory for the outdated keys than it has, however many they are; elsewhere there are none.
    ///
    /// # Errors
    /// When it cannot be read: then the image starts empty, with another placement.
    fn load(&self, outdated: Vec<(KeyHash, u64)>) -> PlacementFuture<'_, Result<(), OpenError>> {
        for (hash, version) in outdated {
            self.invalidate(hash, version);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    /// Puts items of an earlier run into the index, unless it names another copy of the key than the one that has been beaten.
    /// `each` is called with the number and the outcome of each item. Called without a partition's lock, but never while a write
    /// of this run to one of the keys goes on.
    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored));

    /// Returns the place that the index names for a key, wherever the entry is. Counts as no read of an item. While items are
    /// restored it is asked where [`restore`](Placement::restore) said [`Restored::Unclear`]; then the item is offered again,
    /// with that copy as beaten, or itself where there is none. Nothing else is restored of the partition until then.
    ///
    /// # Errors
    /// When the part of the index that may name the key cannot be read.
    fn locate(&self, _hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns the index's own background work, each task for some worker, for as long as the engine runs.
    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        Vec::new()
    }

    /// Tells the index about an event that needs no answer.
    fn note(&self, _event: Event<'_>) {}

    /// Returns the placement's own part of a checkpoint, for these live segments in rising number, once the state it describes
    /// is durable; `None` if it cannot be made: then there is no checkpoint. At an orderly stop, the `last` one, nothing
    /// changes any more. One at a time.
    fn section(
        &self,
        _living: &[SegmentRecord],
        _last: bool,
    ) -> PlacementFuture<'_, Option<Section>> {
        Box::pin(std::future::ready(Some(Section::default())))
    }

    /// Returns the index's demands on its callers.
    fn pressure(&self) -> Pressure {
        Pressure::default()
    }

    /// Visits the index's statistics, each with its name. Takes no lock under which the journal is appended to.
    fn stats(&self, _visit: &mut dyn FnMut(&'static str, u64)) {}
}
