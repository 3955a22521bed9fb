//! Placements: an index of the items on flash, and how an item is found again by it.
//!
//! Index, streams and rebuild belong together, so they are one unit behind one trait, [`Placement`]. The parts that all
//! placements share are elsewhere and concrete: segments and reads (`store`), journal, checkpoints and the recovery
//! queue (`durability`), writing and reclaim (`reclaim`), and the tie between these and a placement (`flash`).
//! `docs/internals/placements.md` lists the assumptions of each method.
//!
//! [`exact`], an index of everything in memory, is the placement of the default preset. The placements of the papers' systems are
//! in their crates.

mod clock;
pub mod exact;
mod kind;
mod read;
mod runs;
mod stats;

pub use clock::{InMemory, SharedClock};
pub use exact::ExactSettings;
pub use kind::{Collecting, Description, IndexRoom, IndexSizes, Parts, PlacementKind, StreamPlan};
pub use read::read_copy;
pub use runs::RunsSettings;
pub use stats::IndexStats;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::durability::OpenError;
pub use crate::durability::dead::DeadCopies;
pub use crate::durability::superseded::Superseded;
use crate::format::checkpoint::{DeadKey, Section};
use crate::format::location::Place;
use crate::format::run_header::RunHeader;
use crate::key::{Key, KeyHash};
use crate::reclaim::{Resident, Residents};
use crate::store::{AppendItem, FlashItem, Patience, ReadError, SegmentRecord};

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

/// A copy that the index names. Two copies are equal if they are the same bytes: a generation never returns, so a place never
/// returns either.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// Place of the copy.
    pub place: Place,
    /// Whether the item has been read since it was written. Equality ignores it.
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
    /// A command counts as a read of the copy that [`get`](Placement::get) found.
    Found,
}

/// Whether a read of flash counts as a read of the item. It does as soon as a request other than a peek has joined the read.
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
    /// The key had no copy.
    None,
    /// The copy at this place. The journal records it as dead by its place.
    Known(Place),
    /// The key may have copies at unknown places. The journal records them as dead by key and version.
    Unknown,
}

/// Outcome of an insert into the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The index names the item, and no longer names the displaced copy.
    Yes(Displaced),
    /// The index has no space for the item, and no longer names the displaced copy either.
    Full(Displaced),
}

/// Outcome of restoring an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The index names the item, and no longer names the displaced copy.
    Taken(Displaced),
    /// The index names the copy at another place. The copy with the higher version must stay.
    Contested(Place),
    /// The index may name another copy; [`locate`](Placement::locate) tells.
    Unclear,
    /// The index has no space for the item.
    Refused,
    /// The earlier run recorded that the item's entry was lost.
    Lost,
}

/// A batch of items of an earlier run, all of one partition and one segment.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The items.
    pub items: &'a [Resident],
    /// Copy that these items outrank. It has the same key.
    pub beaten: Option<Place>,
    /// Marks of lost entries that named the segment, as the earlier run recorded them, in ascending order.
    pub lost_marks: &'a [u32],
}

/// Appends a run header. Returns the place of its first copy; `None` if there is no space.
pub type AppendHeader<'a> = &'a mut dyn FnMut(AppendItem<'_>) -> Option<Place>;

/// Event that concerns the index.
pub enum Event<'a> {
    /// A segment of an earlier run has been restored. An index whose entries do not tell keys apart must now ensure that no
    /// entry leads to the dead or the expired items.
    SegmentRestored {
        /// The segment.
        segment: &'a SegmentRecord,
        /// Items of the segment that have not been restored.
        dead: &'a [Resident],
        /// Items that were restored although they had expired, and that have been invalidated since.
        expired: &'a [Resident],
    },
    /// Every segment of the earlier run has been restored.
    Recovered,
    /// Items have been placed together. Called under the lock of their partition.
    Placed {
        /// Hash of the last one.
        last: KeyHash,
        /// If those that cross no page are listed in no summary: appends the run header that names them, twice. Without a header
        /// they are lost.
        append_header: Option<AppendHeader<'a>>,
    },
    /// Recovery has found a run that is older than all others of its group so far. Of its segments, those that the table does
    /// not have are gone.
    RunFound(&'a RunHeader),
    /// A checkpoint needs the keys that the index keeps as dead.
    DeadKeysWanted(&'a dyn Fn(DeadKey)),
    /// The checkpoint that holds the last section is in force, or is not. `None` means that the outcome is unknown: before
    /// the engine asks for another section, it makes sure that the earlier checkpoint is in force. The event is also sent if
    /// there was no section.
    CheckpointEnded(Option<bool>),
}

/// Space in the index for changes, apart from the bytes that [`IndexUse`](crate::reclaim::IndexUse) counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// The index accepts every change.
    #[default]
    Free,
    /// The index has no space for further items: writes wait for [space](crate::store::SegmentPool::space).
    Behind,
    /// The index accepts no invalidation either: requests that displace a copy wait.
    Full,
}

/// Demands of the index on its callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Space for changes.
    pub space: Space,
    /// Whether the placement wants a checkpoint, either because one would free a resource or because many segments have been
    /// opened since the last one.
    pub wants_checkpoint: bool,
}

/// An index of the items on flash. All threads call it at once; it does its own locking.
///
/// `probe`, `insert` and `invalidate` are called under the partition lock of their key, and work in memory only. The caller
/// journals the displaced copies before it answers the request.
pub trait Placement: Residents {
    /// Returns the index's answer for a key. `look` is the reason for the question.
    fn probe(&self, hash: KeyHash, look: Look) -> Probe;

    /// Prefetches the entries of `hashes`, all in one partition, for the calls that follow.
    fn warm(&self, _hashes: &mut dyn Iterator<Item = KeyHash>) {}

    /// Reads the item of `key`, for which the index answered `probe`, or the item that has replaced it since. Also reads an
    /// index on flash. `patience` says whether the read waits for memory; no segment is pinned while it waits. An index whose
    /// [`probe`](Placement::probe) has not noted the read notes it here, if the read `counts` by then.
    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>>;

    /// Makes the index name an item that has been appended to an open segment. Called with the segment's buffer locked, so
    /// that the segment keeps its generation. `clock` is the CLOCK value that the item had in memory.
    fn insert(&self, hash: KeyHash, version: u64, place: Place, clock: u8) -> Inserted;

    /// Makes the index forget the copies of a key with versions below `version`.
    fn invalidate(&self, hash: KeyHash, version: u64) -> Displaced;

    /// Loads the index from the section that it was opened with, or prepares an empty index. Then invalidates the keys that
    /// were `outdated` after the last checkpoint. Called once, before all other methods. An index in a section takes no
    /// additional memory for the outdated keys, however many they are; one that tells dead copies at reads gets all dead keys;
    /// other indexes get none.
    ///
    /// # Errors
    /// If the index cannot be read. The image then starts empty, with a new placement.
    fn load(&self, outdated: Vec<(KeyHash, u64)>) -> PlacementFuture<'_, Result<(), OpenError>> {
        for (hash, version) in outdated {
            self.invalidate(hash, version);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    /// Puts items of an earlier run into the index, unless the index names a copy of the key other than the beaten one. Calls
    /// `each` with the number and the outcome of each item. Called without a partition lock, but never during a write of this
    /// run to one of the keys.
    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored));

    /// Returns the place that the index names for a key, in memory or on flash. Does not count as a read of the item. The
    /// recovery calls it after [`restore`](Placement::restore) answered [`Restored::Unclear`], then offers the item again
    /// with the returned copy as the beaten one, or with the item's own place if there is no copy. Until then it restores
    /// nothing else of the partition.
    ///
    /// # Errors
    /// If the part of the index that may name the key cannot be read.
    fn locate(&self, _hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns the background tasks of the index. Each runs on some worker for as long as the engine runs.
    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        Vec::new()
    }

    /// Tells the index about an event.
    fn note(&self, _event: Event<'_>) {}

    /// Returns the placement's own part of a checkpoint that covers these live segments, in ascending order of number. It
    /// returns once the state that the section describes is durable. Returns `None` if it cannot make the section; there is
    /// no checkpoint then. The `last` section is the one of an orderly stop, when nothing changes any more. Calls do not
    /// overlap.
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
