//! Placements: an index of the items on flash, and how an item is found again by it.
//!
//! Index, streams and rebuild belong together, so they are one unit behind one trait, [`Placement`]. The parts that all
//! placements share are elsewhere and concrete: segments and reads (`store`), journal, checkpoints and the recovery
//! queue (`durability`), writing and reclaim (`reclaim`), and the tie between these and a placement (`flash`).
//! `docs/internals/placements.md` lists the assumptions of each method.
//!
//! | placement | index | streams | displaced copies |
//! |---|---|---|---|
//! | [`exact`] | `direct`, all in memory | one, or one for each slab class | located |
//! | [`tiered`] | `cascade`, a tenth in memory | the same | not located |
//! | [`sliced`] | a SliceHash, all on flash | one, packed | not located |
//! | [`hashed`] | `compact`, without keys, all in memory | one, where hashes say | not located |

pub use index::cascade;
pub use index::compact::PROBES;

pub mod exact;
pub mod hashed;
mod index_disk;
mod numbers;
mod restored;
pub mod sliced;
mod stats;
pub mod tiered;

pub use stats::CompactStats;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use device::Region;
use runtime::pages::PagePool;
use runtime::sync::Notify;

use crate::durability::OpenError;
use crate::durability::journal::Journal;
use crate::format::checkpoint::Section;
use crate::format::location::{LocationCodec, Place};
use crate::key::{Key, KeyHash};
use crate::reclaim::{IndexUse, Named, Resident, Residents};
use crate::store::{FlashItem, Patience, ReadError, SegmentRecord, SegmentStore, Streams};

/// Bytes of an item that an index is laid out for.
const EXPECTED_ITEM_BYTES: u64 = 256;
/// Memory for each item that an index is laid out for, at least: its empty tables then take a
/// sixteenth of the memory at most.
const MEMORY_PER_EXPECTED_ITEM: u64 = 4;

/// The future of a placement's work; it stays on the thread that started it.
pub type PlacementFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Makes the future of a background task on the worker that will run it.
pub type BackgroundTask = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Counters of an index that is partly on flash, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingStats {
    /// Look-ups that memory answered, direct blocks, and lists and buckets.
    pub hits: [u64; 3],
    /// Look-ups that no tier answered though flash had to be read.
    pub misses: u64,
    /// Pages of the index read by look-ups that the second tier answered, the third, and none.
    pub reads: [u64; 3],
    /// Batches of the second tier that look-ups have read, whichever tier answered.
    pub batches: u64,
    /// Bytes of the index written to flash.
    pub bytes_written: u64,
    /// Bytes of flash that the index holds now.
    pub flash_bytes: u64,
    /// Mappings found below the first tier and put there.
    pub promoted: u64,
    /// Mappings moved from the first tier to flash.
    pub demoted: u64,
    /// Active lists that have been compacted.
    pub compactions: u64,
    /// Mappings dropped for want of flash.
    pub evicted: u64,
    /// Mappings dropped since a newer one may have been on a page that cannot be read.
    pub dropped_behind_damage: u64,
    /// Pages that could not be read, or were damaged.
    pub damaged_pages: u64,
    /// Writes of the index that failed.
    pub write_errors: u64,
    /// Memory and flash of the index, part by part.
    pub usage: cascade::Usage,
}

impl MappingStats {
    /// Returns the mappings dropped for either reason.
    pub fn dropped(&self) -> u64 {
        self.evicted + self.dropped_behind_damage
    }
}

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
    At(Token),
}

/// A state of the index's entry for a key. Opaque to all but the placement that made it; two tokens are equal when they
/// name the same bytes, and no token comes back once it has gone.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    entry: u64,
    generation: u64,
    fetched: bool,
}

impl Token {
    /// The state in which the index says `entry`, in a `generation` that makes it unique. `fetched` tells that the
    /// item has been read since it was written; it does not count for equality.
    pub fn new(entry: u64, generation: u64, fetched: bool) -> Self {
        Self {
            entry,
            generation,
            fetched,
        }
    }

    /// Returns the entry of the index.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// The generation that makes the entry unique.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the item has been read since it was written.
    pub fn fetched(&self) -> bool {
        self.fetched
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        (self.entry, self.generation) == (other.entry, other.generation)
    }
}

impl Eq for Token {}

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

/// Items of a partition in memory, and its free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InMemory {
    /// Items of the partition that are in memory.
    pub items: u64,
    /// Bytes that the partition may take beside those it has.
    pub spare_bytes: u64,
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
}

/// An index of the items on flash. Used from all threads at once; it protects itself.
///
/// `probe`, `access`, `insert`, `invalidate` and `forget` are called under the partition's lock of their key, and
/// take memory operations only. The caller journals the displaced copies before it answers the request.
pub trait Placement: Residents {
    /// Returns the index's answer for a key.
    fn probe(&self, hash: KeyHash) -> Probe;

    /// As [`probe`](Placement::probe), and counts as a read of the item, in an index that remembers reads.
    fn access(&self, hash: KeyHash) -> Probe {
        self.probe(hash)
    }

    /// A copy that [`get`](Placement::get) has found turns out to have been read.
    fn note_read(&self, hash: KeyHash) {
        self.access(hash);
    }

    /// Prefetches the entries of these keys, all of one partition, which the next calls will ask for.
    fn warm(&self, _hashes: &mut dyn Iterator<Item = KeyHash>) {}

    /// Reads the item of `key`, for which the index answered `probe`, or the item that has taken its place since. An index on
    /// flash is read here, too. Memory for the item is waited for as `patience` says, with no segment pinned. An index in which
    /// [`access`](Placement::access) has not noted the read does it here, if by then the look `counts`.
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

    /// [`invalidate`](Self::invalidate) of all keys that were outdated after the last checkpoint, however many they are: at a start,
    /// before anything else is changed. An index that survives takes no more memory for them than it has.
    fn outdated(&self, keys: Vec<(KeyHash, u64)>) -> PlacementFuture<'_, ()> {
        for (hash, version) in keys {
            self.invalidate(hash, version);
        }
        Box::pin(std::future::ready(()))
    }

    /// Forgets the entry of a key, which is wrong or dead, if it is still the same.
    fn forget(&self, hash: KeyHash, token: Token) -> Displaced;

    /// Loads the index from the section that it was opened with, or prepares an empty index. Called once, before everything
    /// else.
    ///
    /// # Errors
    /// When it cannot be read: then the image starts empty, with another placement.
    fn load(&self) -> PlacementFuture<'_, Result<(), OpenError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Puts items of an earlier run, all of one partition, into the index, unless it names another copy of the key
    /// than the one that has been `beaten`. `each` is called with the number and the outcome of each item.
    /// Called without a partition's lock, but never while a write of this run to one of the keys goes on.
    fn restore(
        &self,
        items: &[Resident],
        beaten: Option<Place>,
        each: &mut dyn FnMut(usize, Restored),
    );

    /// The place that the index names for a key. Asked where [`restore`](Placement::restore) said [`Restored::Unclear`]; then
    /// the item is offered again, with that copy as `beaten`, or itself where there is none. Nothing else is restored of the
    /// partition meanwhile.
    ///
    /// # Errors
    /// When the part of the index that may name the key cannot be read.
    fn locate(&self, _hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns which of these items of a segment the index names, for a dump. May read flash, a few pages at once, and counts
    /// as no read of an item.
    fn names<'a>(&'a self, items: &'a [Resident]) -> PlacementFuture<'a, Vec<bool>> {
        let is_named = |item| self.check(item, &mut |_| true) == Named::Kept;
        let named = items.iter().map(is_named).collect();
        Box::pin(std::future::ready(named))
    }

    /// Whether an item that goes back to memory has been read on flash.
    fn has_been_read(&self, _item: &Resident) -> bool {
        true
    }

    /// The CLOCK value that an item takes along when it goes back to memory.
    fn clock_of(&self, _item: &Resident) -> u8 {
        0
    }

    /// One CLOCK over memory and flash (Flashield, section 4.3). Something has come into memory, in the partition of this hash:
    /// moves the hand if more is hot than may be, and returns how many of the items in memory it has passed meanwhile.
    fn keep_one_clock(&self, _hash: KeyHash, _memory: InMemory) -> u64 {
        0
    }

    /// Whether a checkpoint that goes by the index has an item: by its entry, if the loss of that entry is recorded.
    fn is_recorded(&self, item: &Resident) -> bool {
        self.check(item, &mut |_| true) == Named::Kept
    }

    /// Gives the journal to an index that records the entries it loses. Called once, before anything is placed or restored.
    fn record_in(&self, _journal: &Arc<Journal>) {}

    /// Whether copies that are displaced and [`Unknown`](Displaced::Unknown) are located later on, and recorded then. Their
    /// KEY DEAD records hold until a KEY LOCATED or until all older segments have gone, whichever copies are durable. An item
    /// that never had an entry cannot be located: it is declared dead by its place at a start that finds it dead by key, and when the
    /// index refuses it.
    fn locates_later(&self) -> bool {
        false
    }

    /// Work of its own that goes on in background, each task on some worker, for as long as the engine does.
    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        Vec::new()
    }

    /// All of a segment that is to be restored has been. The other items that its summary lists are `dead`; `expired` ones
    /// have been restored, and invalidated since. An index whose entries do not tell keys apart sees to it that none leads to
    /// either.
    fn segment_restored(
        &self,
        _segment: &SegmentRecord,
        _dead: &[Resident],
        _expired: &[Resident],
    ) {
    }

    /// The marks of the entries that an item may have had; nothing where entries tell keys apart.
    fn entry_marks(&self, _item: &Resident) -> Option<[u32; PROBES]> {
        None
    }

    /// Everything of the last run has been restored.
    fn recovered(&self) {}

    /// Returns the placement's own part of a checkpoint, for these live segments in rising number, once the state it describes
    /// is durable; `None` if it cannot be made: then there is no checkpoint. At an orderly stop, the `last` one, nothing
    /// changes meanwhile. One at a time.
    fn section(
        &self,
        _living: &[SegmentRecord],
        _last: bool,
    ) -> PlacementFuture<'_, Option<Section>> {
        Box::pin(std::future::ready(Some(Section::default())))
    }

    /// Tells whether the checkpoint of the last section is in force. `None` means that the outcome is unknown: before the engine
    /// asks for another section it makes sure that the earlier checkpoint is the one in force. Also called where there was no
    /// section.
    fn section_ended(&self, _is_named: Option<bool>) {}

    /// Returns the counters of an index of several tiers; zeros for another index.
    fn mappings(&self) -> MappingStats {
        MappingStats::default()
    }

    /// Returns an upper bound of the living items whose entries an index without keys has lost, or a start may lose; 0 for
    /// another index. Takes no lock.
    fn entries_lost(&self) -> u64 {
        0
    }

    /// Returns the counters of an index without keys; zeros for another index.
    fn compact(&self) -> CompactStats {
        CompactStats::default()
    }

    /// Whether the placement wants a checkpoint: it would free a resource, or many segments have been opened since the last.
    fn wants_checkpoint(&self) -> bool {
        false
    }

    /// Whether a writer had better wait for space, because the index could not name the item.
    fn is_behind(&self) -> bool {
        false
    }

    /// Whether the longer items of a group are to be placed first, because they find space more easily.
    fn takes_larger_first(&self) -> bool {
        false
    }

    /// Returns the most items to place between two calls of [`is_behind`](Self::is_behind).
    fn placed_at_once(&self) -> usize {
        usize::MAX
    }

    /// Whether it takes further invalidations without waiting; if not, requests that displace a copy wait.
    fn may_invalidate(&self) -> bool {
        true
    }

    /// Notified when it begins to want a checkpoint; `None` if it never does.
    fn checkpoint_wanted(&self) -> Option<&Notify> {
        None
    }
}

/// The parts that a placement is made of.
pub struct Parts {
    /// The segments, to read from.
    pub store: Arc<SegmentStore>,
    /// Id of the image, which distinguishes its pages in the region from those of another image.
    pub image: u64,
    /// Packs segment and position into as few bits as the flash needs.
    pub codec: LocationCodec,
    /// Whole pages for an index in memory.
    pub pool: Arc<PagePool>,
    /// Bits of the hash that choose the partition.
    pub partition_bits: u32,
    /// Items that the index is laid out for; an image never changes it.
    pub expected_items: u64,
    /// Items for which space may be made at once, as they will probably be restored; 0 where the memory for them is
    /// still in use.
    pub items_to_restore: usize,
    /// Counters of the items and bytes that the placement holds.
    pub index_use: Arc<IndexUse>,
    /// The part of the image, or the second device, that the index may overwrite in place.
    pub index_region: Option<Region>,
    /// Whether the region is on a device of its own: a sync of it makes nothing else durable, and a failed sync concerns no
    /// segment.
    pub index_is_apart: bool,
    /// Whether erased ranges are discarded on the drive.
    pub discard: bool,
    /// Its own part of the last checkpoint. A version it does not know, or bytes that make no sense, are as none.
    pub section: Option<Section>,
}

/// A kind of placement, with its settings.
pub trait PlacementKind: Send + Sync {
    /// The placement's name, as images keep it: up to 11 bytes.
    fn name(&self) -> &'static str;

    /// Returns the streams that items go to, in segments of `segment_bytes`.
    fn streams(&self, segment_bytes: u32) -> Arc<dyn Streams>;

    /// Returns the least bytes that the index of a new image of `image_bytes` overwrites in place: in the image, rounded up to
    /// whole MiB, or on a device of its own.
    fn index_region_bytes(&self, _image_bytes: u64) -> u64 {
        0
    }

    /// Returns the number of items that the index of a new image is laid out for, given the bytes of flash that hold them and
    /// the bytes of the engine's memory.
    fn expected_items(&self, flash_bytes: u64, memory_bytes: u64) -> u64 {
        (flash_bytes / EXPECTED_ITEM_BYTES)
            .min(memory_bytes / MEMORY_PER_EXPECTED_ITEM)
            .max(1)
    }

    /// Whether displaced copies are always [`Known`](Displaced::Known). Where they are not, segments are reclaimed
    /// in order of age, and versions alone decide which copy of a key a recovery takes.
    fn locates_displaced(&self) -> bool;

    /// Whether a start finds the index as it was at the last checkpoint, by that checkpoint's section. Then only items that
    /// have been placed since are restored, and `invalidate` is called before with the keys outdated since: with the
    /// hash as far as the journal keeps it, whose last 4 bits are 0. Where displaced copies are located it is not asked.
    fn survives(&self) -> bool {
        false
    }

    /// Bytes of memory, out of `memory_bytes`, at which reclaim has to make space in the index.
    fn max_index_bytes(&self, memory_bytes: u64) -> u64 {
        memory_bytes
    }

    /// Returns the bytes of memory that the index of an empty image takes, laid out for `expected_items`.
    fn least_index_bytes(&self, _expected_items: u64, _partition_bits: u32) -> u64 {
        0
    }

    /// Returns the bytes of memory that the background work of an index for `expected_items` holds, beside the index.
    fn working_bytes(&self, _expected_items: u64) -> u64 {
        0
    }

    /// Estimates how many items an index of `index_bytes` of memory names.
    fn items_in(&self, _index_bytes: u64) -> u64 {
        u64::MAX
    }

    /// Makes a placement, empty or from the section of an earlier run; the items follow by
    /// [`restore`](Placement::restore).
    ///
    /// # Errors
    /// When the flash is too large for the index.
    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError>;
}
