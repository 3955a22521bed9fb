//! [`FreeSegments`]: the number of segments that writing and reclaim keep free, and the items in memory on which it depends.

use std::sync::{Arc, OnceLock, Weak};

use super::Resident;
use super::watermarks::{Load, Regulator, Watermarks};
use crate::counter::{Count as _, Ewma};
use crate::format::item::{CHECKSUM_BYTES, ItemRef};
use crate::format::segment::{PAGE_BYTES, SUMMARY_ENTRY_BYTES};
use crate::settings::{ReclaimPolicy, ReclaimSettings};
use crate::store::SegmentStore;

/// Number of reclaims that take processor time at once, beside requests.
pub(super) const TURNS: usize = 2;
/// Maximum bytes of an object in a checkpoint: dead, or read since it was written.
const CHECKPOINT_ENTRY_BYTES: u64 = 2;
/// Segments that a checkpoint may need in addition to its lists.
const CHECKPOINT_SPARE_SEGMENTS: u32 = 2;

/// Takes items of segments being reclaimed back into memory.
pub(crate) trait ReturnToMemory: Send + Sync {
    /// Moves an item from the index into memory, dirty. Returns false if the index no longer names it, or memory has no
    /// space.
    fn take_back(&self, item: &Resident, contents: &ItemRef<'_>) -> bool;

    /// Returns whether memory holds an item, in the version that is on flash.
    fn holds(&self, item: &Resident, key: &[u8]) -> bool;

    /// Returns the items that only memory has at present.
    fn dirty(&self) -> Dirty;
}

/// Items without a copy on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Number of items.
    pub(crate) items: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
}

impl Dirty {
    /// Estimates how many segments of this size the items fill: items of their mean length take as many pages.
    fn segments(self, segment_bytes: u32) -> u32 {
        let summary = self.items * u64::from(SUMMARY_ENTRY_BYTES);
        let mean = self.bytes / self.items.max(1) + CHECKSUM_BYTES as u64;
        let in_a_page = u64::from(PAGE_BYTES) / mean;
        let pages = match in_a_page {
            0 => self.items * mean.div_ceil(u64::from(PAGE_BYTES)),
            some => self.items.div_ceil(some),
        };
        let bytes = pages * u64::from(PAGE_BYTES) + summary;
        bytes.div_ceil(u64::from(segment_bytes)) as u32
    }
}

/// The memory above the flash. Set once, after both have been put together.
#[derive(Default)]
pub(crate) struct MemoryAbove(OnceLock<Weak<dyn ReturnToMemory>>);

impl MemoryAbove {
    pub(crate) fn set(&self, memory: Weak<dyn ReturnToMemory>) {
        let _ = self.0.set(memory);
    }

    pub(super) fn get(&self) -> Option<Arc<dyn ReturnToMemory>> {
        self.0.get()?.upgrade()
    }
}

/// The number of free segments to keep. It follows from the settings, the load and the items that only memory has.
pub(crate) struct FreeSegments {
    store: Arc<SegmentStore>,
    pub(crate) memory: MemoryAbove,
    policy: ReclaimPolicy,
    reclaimers: u32,
    /// Segments that an orderly stop needs for dirty items; `None` if their number follows from the dirty items.
    for_stop: Option<u32>,
    regulator: Regulator,
    /// EWMA of the time to drop a segment.
    pub(super) drop_time: Ewma,
}

impl FreeSegments {
    pub(super) fn new(
        store: Arc<SegmentStore>,
        reclaim: &ReclaimSettings,
        for_stop: Option<u32>,
    ) -> Self {
        let first = stop_watermarks(for_stop.unwrap_or(0), store.table().segments());
        Self {
            store,
            memory: MemoryAbove::default(),
            policy: reclaim.policy,
            reclaimers: reclaim.reclaimers as u32,
            for_stop,
            regulator: Regulator::new(reclaim.reserve, first),
            drop_time: Ewma::default(),
        }
    }

    /// Returns the number of free segments that only copies may fill: stalled writes must not take the segments that
    /// copies need.
    pub(super) fn reserved(&self) -> u32 {
        match self.policy.under_pressure() {
            Some(_) => 0,
            None => stop_watermarks(0, self.store.table().segments()).low + TURNS as u32 - 1,
        }
    }

    /// Returns the watermarks for the statistics. Watermarks that depend on the items in memory are the ones found last,
    /// since the caller may hold a partition's lock.
    pub(super) fn known_watermarks(&self) -> Watermarks {
        if self.regulator.follows_load() {
            self.watermarks()
        } else {
            self.regulator.last()
        }
    }

    /// Returns the present watermarks.
    pub(super) fn watermarks(&self) -> Watermarks {
        let segments = self.store.table().segments();
        let dirty = || {
            let dirty = self.memory.get().map(|memory| memory.dirty());
            dirty.map_or(0, |dirty| {
                dirty.segments(self.store.table().segment_bytes())
            })
        };
        self.regulator.watermarks(&Load {
            for_stop: if self.regulator.follows_load() {
                Watermarks::default()
            } else {
                stop_watermarks(self.for_stop.unwrap_or_else(dirty), segments)
            },
            free: self.store.pool().counts().free,
            channels: self.store.pool().channels_in_use(),
            segments: self.store.pool().segments_in_use(),
            opened: self.store.counters().segments_opened_for_writes.get(),
            service: self.drop_time.get() + self.store.blocks().erase_time(),
            reclaimers: self.reclaimers,
            buffers: self.store.buffers().count() as u32,
            is_first_fill: self.store.pool().is_first_fill(),
        })
    }

    /// Returns the number of free segments to keep at present; during a stop, the number that the checkpoint will fill.
    pub(super) fn target(&self, is_stopping: bool) -> u32 {
        if !is_stopping {
            // Writes need one segment more than are reserved for copies.
            return self.watermarks().high.max(self.reserved() + 1);
        }
        let entries =
            self.store.appender().items_placed() + u64::from(self.store.table().segments());
        let segments =
            entries * CHECKPOINT_ENTRY_BYTES / u64::from(self.store.table().segment_bytes());
        segments as u32 + CHECKPOINT_SPARE_SEGMENTS
    }
}

/// Returns watermarks that keep enough segments free for an orderly stop to write `for_stop` segments and the
/// checkpoint, but at most a quarter of the flash.
fn stop_watermarks(for_stop: u32, segments: u32) -> Watermarks {
    let spare = (segments / 64).clamp(2, 16);
    Watermarks {
        low: (spare / 2).max(2),
        high: for_stop.min(segments / 4).max(1) + spare,
    }
}
