//! Kinds of placement: the facts about a kind that the engine needs before there is an index, and the parts that an index is
//! made of.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use device::Region;
use runtime::pages::PagePool;
use runtime::sync::Notify;

use super::{Placement, SharedClock};
use crate::durability::OpenError;
use crate::durability::journal::Journal;
use crate::durability::superseded::Superseded;
use crate::format::checkpoint::Section;
use crate::format::location::LocationCodec;
use crate::key::HashSeed;
use crate::reclaim::{DeadCopies, IndexUse};
use crate::settings::{ConfigError, IndexSettings};
use crate::store::{InsertionPoints, Layout, SegmentStore, SlabClasses, Streams};

/// Bytes of an item on flash by which an index is laid out, unless its kind chooses another size.
const EXPECTED_ITEM_BYTES: u64 = 256;
/// Least bytes of memory for each item that an index is laid out for. Its empty tables then take at most a sixteenth of the
/// memory.
const MEMORY_PER_EXPECTED_ITEM: u64 = 4;

/// Most bytes of memory for an item in an index in memory.
const MOST_ITEM_BYTES: f64 = 10.8;

/// A kind of placement, with its settings.
pub trait PlacementKind: Any + Debug + Send + Sync {
    /// Returns the facts about the kind that never change.
    fn describe(&self) -> Description;

    /// Returns the sizes of an index for the given sizes of image and memory.
    ///
    /// # Errors
    /// The first setting of the kind that is out of range.
    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError>;

    /// Makes a placement, either empty or from the section of an earlier run. Calls of [`load`](Placement::load) and
    /// [`restore`](Placement::restore) follow.
    ///
    /// # Errors
    /// If the flash is too large for the index.
    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError>;
}

impl dyn PlacementKind {
    /// Returns the settings if the kind is `K`.
    pub fn settings<K: PlacementKind>(&self) -> Option<&K> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Facts about a kind of placement.
#[derive(Clone, Debug)]
pub struct Description {
    /// Name of the kind, as images keep it: at most 11 bytes.
    pub name: &'static str,
    /// Streams of the items.
    pub streams: StreamPlan,
    /// How a start finds out which copies of a key are dead.
    pub dead_copies: DeadCopies,
    /// Whether entries show by themselves that their segment is gone. Reclaim then does not read a segment of which it keeps
    /// nothing (zero-I/O demapping, SlickCache, section 4.3), and [forgets](crate::reclaim::Residents::forget_segment) every
    /// segment once the items that it keeps have been moved.
    pub demaps_by_itself: bool,
    /// Whether the longer items of a group are placed first, because they find space less easily (Flashield, section 4.1).
    pub places_larger_first: bool,
    /// Whether the index drops pages of mappings when its region is full. The newest mapping of a key may then exist in memory
    /// alone, and a crash loses it.
    pub drops_pages: bool,
    /// Whether the index may forget a written copy while a newer copy of the item is not on flash yet. A crash may then lose both.
    pub forgets_written: bool,
    /// Most items to place between two checks of [`pressure`](Placement::pressure).
    pub placed_at_once: usize,
    /// Most bytes of memory that the index takes for an item, for estimates of the memory that a cache needs.
    pub most_item_bytes: f64,
}

impl Description {
    /// Describes an index in memory that knows the place of every copy, with packed items.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            streams: StreamPlan::Classes(Layout::Packed),
            dead_copies: DeadCopies::Located,
            demaps_by_itself: false,
            places_larger_first: false,
            drops_pages: false,
            forgets_written: false,
            placed_at_once: usize::MAX,
            most_item_bytes: MOST_ITEM_BYTES,
        }
    }
}

/// The streams of a placement, before the bytes of a segment are known.
#[derive(Clone)]
pub enum StreamPlan {
    /// One stream of packed items, or a stream for each slab class.
    Classes(Layout),
    /// One stream of packed items for each priority of segments.
    Priorities(u8),
    /// The placement's own streams.
    Own(Arc<dyn Streams>),
}

impl StreamPlan {
    /// Returns the streams over segments of `segment_bytes`.
    pub fn streams(&self, segment_bytes: u32) -> Arc<dyn Streams> {
        match self {
            Self::Classes(layout) => Arc::new(SlabClasses::new(*layout, segment_bytes)),
            Self::Priorities(priorities) => Arc::new(InsertionPoints(*priorities)),
            Self::Own(streams) => Arc::clone(streams),
        }
    }

    /// Returns the number of priorities of segments.
    pub fn priorities(&self) -> u8 {
        match self {
            Self::Priorities(priorities) => *priorities,
            Self::Classes(_) | Self::Own(_) => 1,
        }
    }
}

impl Debug for StreamPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Classes(layout) => f.debug_tuple("Classes").field(layout).finish(),
            Self::Priorities(priorities) => f.debug_tuple("Priorities").field(priorities).finish(),
            Self::Own(_) => f.write_str("Own"),
        }
    }
}

/// Sizes by which an index is laid out.
#[derive(Clone, Copy, Debug)]
pub struct IndexRoom {
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of the segments.
    pub flash_bytes: u64,
    /// Bytes of the engine's memory.
    pub memory_bytes: u64,
    /// Bits of the hash that choose the partition.
    pub partition_bits: u32,
    /// Items that the index of the image is laid out for; `None` for a new image.
    pub expected_items: Option<u64>,
    /// Settings of the index.
    pub settings: IndexSettings,
}

impl IndexRoom {
    /// Returns the bytes of memory in the index above which reclaim makes space.
    pub fn max_index_bytes(&self) -> u64 {
        self.memory_bytes / 100 * u64::from(self.settings.percent)
    }

    /// Returns the number of items for which the index is laid out: that of the image, or one for each `item_bytes` of flash,
    /// as far as there are `memory_per_item` bytes of memory for each.
    pub fn items(&self, item_bytes: u64, memory_per_item: u64) -> u64 {
        self.expected_items.unwrap_or_else(|| {
            (self.flash_bytes / item_bytes)
                .min(self.memory_bytes / memory_per_item)
                .max(1)
        })
    }
}

/// Sizes of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSizes {
    /// Number of items for which the index is laid out; never changes for an image.
    pub expected_items: u64,
    /// Least bytes of the region that the index overwrites in place. The region lies inside the image, rounded up to whole
    /// MiB, or on a device of its own.
    pub region_bytes: u64,
    /// Bytes of memory of the index of an empty image.
    pub least_bytes: u64,
    /// Bytes of memory that the index's background work holds in addition.
    pub working_bytes: u64,
    /// Least bytes of memory for an item in the index; 0 if memory does not limit the items.
    pub item_bytes: u64,
    /// How items collect in memory before they are placed; `None` if each is placed when it leaves.
    pub collecting: Option<Collecting>,
}

/// How items collect in memory before they are placed together, in the order of their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collecting {
    /// Bits of the hash that choose the group of a partition. The fullest group is placed.
    pub group_bits: u32,
    /// Share of the memory for items that collected items may take, in sixteenths.
    pub sixteenths: u32,
    /// Items that cross no page are listed in no summary where so many of them are placed together.
    pub least_unlisted: usize,
}

impl IndexSizes {
    /// Returns the sizes of an index in memory whose tables grow with its items.
    pub fn in_memory(room: &IndexRoom) -> Self {
        Self {
            expected_items: room.items(EXPECTED_ITEM_BYTES, MEMORY_PER_EXPECTED_ITEM),
            region_bytes: 0,
            least_bytes: 0,
            working_bytes: 0,
            item_bytes: 0,
            collecting: None,
        }
    }

    /// Returns the most items that an index can name in `index_bytes` of memory.
    pub(crate) fn items_in(&self, index_bytes: u64) -> u64 {
        index_bytes.checked_div(self.item_bytes).unwrap_or(u64::MAX)
    }
}

/// Parts from which a placement is made.
pub struct Parts {
    /// Segments to read from.
    pub store: Arc<SegmentStore>,
    /// Id of the image, which distinguishes its pages in the region from those of another image.
    pub image: u64,
    /// Seed of the key hash, for an index that hashes keys itself.
    pub hash_seed: HashSeed,
    /// Packs a segment and a position into as few bits as the flash needs.
    pub codec: LocationCodec,
    /// Pages of memory for an index in memory.
    pub pool: Arc<PagePool>,
    /// Bits of the hash that choose the partition.
    pub partition_bits: u32,
    /// Number of items for which the index is laid out; never changes for an image.
    pub expected_items: u64,
    /// How items collect before they are placed.
    pub collecting: Option<Collecting>,
    /// Number of items that will probably be restored, and for which the index may reserve space at once; 0 while the memory
    /// for them is in use.
    pub items_to_restore: usize,
    /// Counters of the items and bytes that the placement holds.
    pub index_use: Arc<IndexUse>,
    /// Region that the index may overwrite in place, in the image or on a second device.
    pub index_region: Option<Region>,
    /// Whether the region is on a device of its own. A sync of that device makes nothing else durable, and its failure
    /// concerns no segment.
    pub index_is_apart: bool,
    /// Whether erased ranges are discarded on the drive.
    pub discard: bool,
    /// Settings of the index.
    pub settings: IndexSettings,
    /// The placement's own part of the last checkpoint. The placement treats an unknown version or damaged bytes like a
    /// missing section.
    pub section: Option<Section>,
    /// Journal for an index that records the entries it loses. Set before anything is placed or restored.
    pub journal: Arc<OnceLock<Arc<Journal>>>,
    /// Notified by the placement when it starts to [want a checkpoint](super::Pressure::wants_checkpoint).
    pub checkpoint_wanted: Arc<Notify>,
    /// The CLOCK of memory, for an index that shares it.
    pub clock: Arc<SharedClock>,
    /// Collects the dead keys that copies placed since supersede, from an index whose dead copies are told
    /// [at reads](crate::durability::dead::DeadCopies::AtReads).
    pub superseded: Arc<Superseded>,
}
