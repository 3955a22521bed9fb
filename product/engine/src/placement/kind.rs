//! Kinds of placement: the facts about one that the engine needs before there is an index, and the parts that an index is
//! opened with.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use device::Region;
use runtime::pages::PagePool;
use runtime::sync::Notify;

use super::{Placement, SharedClock};
use crate::durability::OpenError;
use crate::durability::journal::Journal;
use crate::format::checkpoint::Section;
use crate::format::location::LocationCodec;
use crate::reclaim::{DeadCopies, IndexUse};
use crate::settings::{ConfigError, IndexSettings};
use crate::store::{InsertionPoints, Layout, SegmentStore, SlabClasses, Streams};

/// Bytes of an item that an index is laid out for, unless its kind chooses another size.
const EXPECTED_ITEM_BYTES: u64 = 256;
/// Memory for each item that an index is laid out for, at least, in bytes: its empty tables then take a sixteenth of the
/// memory at most.
const MEMORY_PER_EXPECTED_ITEM: u64 = 4;

/// A kind of placement, with its settings.
pub trait PlacementKind: Any + Debug + Send + Sync {
    /// Returns the facts about the kind that never change.
    fn describe(&self) -> Description;

    /// Returns the sizes of an index in an image and a memory of these sizes.
    ///
    /// # Errors
    /// The first setting of the kind that is out of range.
    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError>;

    /// Makes a placement, empty or from the section of an earlier run. [`load`](Placement::load) and
    /// [`restore`](Placement::restore) follow.
    ///
    /// # Errors
    /// When the flash is too large for the index.
    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError>;
}

impl dyn PlacementKind {
    /// Returns the settings as those of a known kind.
    pub fn settings<K: PlacementKind>(&self) -> Option<&K> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Facts about a kind of placement.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name, as images keep it: up to 11 bytes.
    pub name: &'static str,
    /// The streams that items go to.
    pub streams: StreamPlan,
    /// How a start tells which copies of a key are dead.
    pub dead_copies: DeadCopies,
    /// Whether entries tell by themselves that their segment has gone. Reclaim then does not read a segment of which
    /// nothing is kept (zero-I/O demapping, SlickCache, section 4.3), and
    /// [forgets](crate::reclaim::Residents::forget_segment) every segment once the items that it keeps have been moved.
    pub demaps_by_itself: bool,
    /// Whether the longer items of a group are placed first, because they find space less easily (Flashield, section 4.1).
    pub places_larger_first: bool,
    /// Most items to place between two looks at [`pressure`](Placement::pressure).
    pub placed_at_once: usize,
}

impl Description {
    /// An index in memory that knows the place of every copy, with packed items.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            streams: StreamPlan::Classes(Layout::Packed),
            dead_copies: DeadCopies::Located,
            demaps_by_itself: false,
            places_larger_first: false,
            placed_at_once: usize::MAX,
        }
    }
}

/// The streams of a placement, before the bytes of a segment are known.
#[derive(Clone)]
pub enum StreamPlan {
    /// One stream of packed items, or a stream for each slab class.
    Classes(Layout),
    /// A stream of packed items for each priority of segments.
    Priorities(u8),
    /// Streams of the placement's own.
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

    /// Returns the number of priorities that segments have.
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

/// Sizes that an index is laid out by.
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
    /// Returns the bytes of memory at which reclaim has to make space in the index.
    pub fn max_index_bytes(&self) -> u64 {
        self.memory_bytes / 100 * u64::from(self.settings.percent)
    }

    /// Returns the items that the index is laid out for: the image's, or one for each `item_bytes` of flash, if there are
    /// `memory_per_item` bytes of memory for each.
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
    /// Items that the index is laid out for; an image never changes it.
    pub expected_items: u64,
    /// Least bytes that the index overwrites in place, inside the image, rounded up to whole MiB, or on a device of its
    /// own.
    pub region_bytes: u64,
    /// Bytes of memory of the index of an empty image.
    pub least_bytes: u64,
    /// Bytes of memory that the background work of the index holds, beside the index.
    pub working_bytes: u64,
    /// Least bytes of memory that an item takes in the index; 0 where memory does not bound the items.
    pub item_bytes: u64,
}

impl IndexSizes {
    /// Sizes of an index in memory whose tables grow with its items.
    pub fn in_memory(room: &IndexRoom) -> Self {
        Self {
            expected_items: room.items(EXPECTED_ITEM_BYTES, MEMORY_PER_EXPECTED_ITEM),
            region_bytes: 0,
            least_bytes: 0,
            working_bytes: 0,
            item_bytes: 0,
        }
    }

    /// Returns the most items that an index of `index_bytes` of memory names.
    pub(crate) fn items_in(&self, index_bytes: u64) -> u64 {
        index_bytes.checked_div(self.item_bytes).unwrap_or(u64::MAX)
    }
}

/// Parts that a placement is made of.
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
    /// Settings of the index.
    pub settings: IndexSettings,
    /// The placement's own part of the last checkpoint. The placement treats an unknown version, or damaged bytes, as none.
    pub section: Option<Section>,
    /// The journal, for an index that records the entries it loses. Set before anything is placed or restored.
    pub journal: Arc<OnceLock<Arc<Journal>>>,
    /// Notified by the placement when it begins to [want a checkpoint](super::Pressure::wants_checkpoint).
    pub checkpoint_wanted: Arc<Notify>,
    /// The CLOCK of memory, for an index that shares it.
    pub clock: Arc<SharedClock>,
}
