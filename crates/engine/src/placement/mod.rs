//! Placements: where items lie on flash, and how they are found again.
//!
//! An index, a layout, a way to reclaim and a way to rebuild belong together, so they are one unit
//! behind one trait, [`Placement`]. The request paths above know no segment; the segment store
//! below knows no key.
//!
//! | placement | index | layout | reclaim |
//! |---|---|---|---|
//! | [`exact`] | `direct`, all in memory | packed | FIFO, keeps what was read recently |

pub mod exact;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use runtime::sync::Notify;

use crate::key::{Key, KeyHash};
use crate::store::{AppendItem, FlashItem, ReadError, SavedCheckpoint};
use exact::{CheckpointHead, RecoveryStats, Written};

/// The future of a placement's work; it stays on the thread that started it.
pub type PlacementFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What an index knows of a key without reading flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It is not on flash.
    Absent,
    /// It may be. The token changes whenever what the index says of the key does.
    Present(Token),
}

/// Stands for what an index said of a key at some moment. Two are equal when they name the same
/// bytes.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// What the index's entry says.
    pub entry: u64,
    /// Which life of the place it names.
    pub life: u64,
    /// Whether it had been read before.
    pub fetched: bool,
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry && self.life == other.life
    }
}

impl Eq for Token {}

/// What a read of flash found.
#[derive(Debug)]
pub enum Found {
    /// The item, verified: checksum and key. It counts as fetched if it was read from flash before.
    Item(FlashItem),
    /// No item of that key: the index entry was another key's.
    Absent,
}

/// What an invalidation took out of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// There was nothing.
    None,
    /// There may have been an older copy on flash.
    Copy,
}

/// Memory in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What grows with the number of objects on flash.
    pub index_bytes: u64,
    /// What does not: buffers and the segment table.
    pub fixed_bytes: u64,
}

/// Counters of a placement; they only grow, except `objects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementStats {
    /// Items the index finds on flash.
    pub objects: u64,
    /// Free segments below which reclaim is pressing, and below which it begins.
    pub low_watermark: u32,
    /// The latter.
    pub high_watermark: u32,
    /// Segments reclaimed.
    pub segments_reclaimed: u64,
    /// Those of them that were dropped whole.
    pub segments_dropped: u64,
    /// How often wear was leveled.
    pub wear_levelings: u64,
    /// Segments erased for that.
    pub segments_leveled: u64,
    /// Bytes of the items that were copied for it.
    pub bytes_copied_to_level: u64,
    /// Items that reclaim kept by copying.
    pub items_copied: u64,
    /// Bytes of them.
    pub bytes_copied: u64,
    /// Live items that reclaim dropped.
    pub items_evicted: u64,
    /// Dead or expired items that reclaim found.
    pub items_expired: u64,
    /// Items dropped because the index had reached its bound.
    pub index_full: u64,
    /// Items lost with segments that could not be written.
    pub items_lost: u64,
}

/// An item seen while dumping the flash.
pub struct DumpItem<'a> {
    /// The item.
    pub item: crate::format::item::ItemRef<'a>,
    /// Hash of its key.
    pub hash: KeyHash,
}

/// Where items lie on flash. Used from all threads at once.
///
/// `place`, `invalidate`, `forget` and `access` are called under the key's partition lock and take
/// memory operations only.
pub trait Placement: Send + Sync {
    /// Its name, as presets and images call it.
    fn name(&self) -> &'static str;

    /// The longest item body, in bytes, that can be placed.
    fn largest_body(&self) -> usize;

    /// What the index knows of a key.
    fn probe(&self, hash: KeyHash) -> Probe;

    /// As [`probe`](Placement::probe), and counts as a read of what is there.
    fn access(&self, hash: KeyHash) -> Probe;

    /// Reads the item of `key`, of which the index has said `token`, or what has taken its place
    /// since; [`Found::Absent`] when another key's item lies there.
    fn get<'a>(
        &'a self,
        key: Key<'a>,
        token: Token,
    ) -> PlacementFuture<'a, Result<Found, ReadError>>;

    /// Takes items from memory, oldest first. Returns how many it took: fewer than all when there
    /// is no [`room`](Placement::room) at present.
    fn place(&self, batch: &[AppendItem<'_>]) -> usize;

    /// The copy of a key on flash, if there is one, is outdated.
    fn invalidate(&self, hash: KeyHash) -> Displaced;

    /// What the index says of a key is wrong or dead; forgets it if it still says the same.
    fn forget(&self, hash: KeyHash, token: Token);

    /// Whether a request that displaces something can go ahead; if not, it waits for
    /// [`room`](Placement::room).
    fn may_displace(&self) -> bool;

    /// Told when [`place`](Placement::place) may find room again.
    fn room(&self) -> &Notify;

    /// A caller has found no room and is going to wait for [`room`](Placement::room).
    fn ask_for_room(&self) {}

    /// The work that goes on in background until [`stop`](Placement::stop): writing, reclaiming.
    /// Each future runs on some worker.
    fn background(self: Arc<Self>) -> Vec<BackgroundTask>;

    /// From now on the segments held in reserve for an orderly stop may be filled, again after a
    /// [`drain`](Placement::drain) too.
    fn use_reserve(&self);

    /// Ends the background work once everything placed is on flash.
    fn stop(&self);

    /// Places nothing any more and resolves once everything placed so far is on flash. Requests that
    /// go on do not hold it up; those that need room on flash wait.
    fn drain(&self) -> PlacementFuture<'_, ()>;

    /// As [`drain`](Placement::drain), and ends reclaim once a checkpoint has room.
    fn settle(&self) -> PlacementFuture<'_, ()>;

    /// Resolves once everything of the last run that lives is found again.
    fn recovered(&self) -> PlacementFuture<'_, ()>;

    /// How far that has come.
    fn recovery(&self) -> RecoveryStats;

    /// Writes a checkpoint of what has died, by the journal's chunks before `end` and the `last`
    /// checkpoint, and where asked of what has been read. `None` when there is no room for it or the
    /// device fails.
    fn checkpoint<'a>(
        &'a self,
        head: &'a CheckpointHead,
        end: u64,
        last: Option<&'a SavedCheckpoint>,
        with_recency: bool,
    ) -> PlacementFuture<'a, Option<Written>>;

    /// Makes everything written durable.
    fn sync(&self) -> PlacementFuture<'_, Result<(), device::DeviceError>>;

    /// Visits the items of one more part of the flash; false once there are no more parts.
    fn dump<'a>(
        &'a self,
        cursor: &'a mut DumpCursor,
        visit: &'a mut dyn FnMut(DumpItem<'_>),
    ) -> PlacementFuture<'a, bool>;

    /// Memory in use.
    fn memory(&self) -> MemoryUse;

    /// Counters.
    fn stats(&self) -> PlacementStats;
}

/// Where a dump has come to: the sequence number of the last segment visited.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpCursor {
    pub(crate) after_sequence: u64,
}

/// Makes the future of a background task on the worker that will run it.
pub type BackgroundTask = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;
