//! Layouts and streams: the place of an item in a segment, and its choice among several open segments.
//!
//! A store fills a segment for each *stream* in use. The placement chooses the stream of an item ([`Streams`]); the
//! [`StreamLayout`] of a stream gives the places of its items in a segment. In the slotted layout each slab class is a
//! stream.

use device::Geometry;

use super::priority::Priority;
use crate::format::item::ItemRef;
use crate::format::segment::{
    FOOTER_BYTES, PAGE_BYTES, Position, SUMMARY_ENTRY_BYTES, UNIT_BYTES, align, largest_item,
    summary_offset,
};
use crate::key::KeyHash;

/// Layout of the segments filled from now on. Segments already on flash record their own layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Items lie one after the other, in one segment at a time.
    #[default]
    Packed,
    /// Items lie in slots, of one length in each segment. One segment at a time is filled for each length in use.
    Slotted,
}

/// Layout of the items of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamLayout {
    /// Items lie one after the other.
    Packed,
    /// Each item lies at the start of a slot of this many bytes.
    Slotted(u32),
    /// An item lies at a position given by a function of its key ([`hashed`](crate::format::hashed)), if that is free.
    /// Adjacent streams with this layout act as one: an item of the first goes to the oldest of their open segments
    /// with room, and when none has room the oldest is sealed.
    Hashed,
}

impl StreamLayout {
    /// Returns the layout with slots of `bytes` bytes; 0 stands for packed items.
    pub(super) fn of_slots(bytes: u32) -> Self {
        match bytes {
            0 => Self::Packed,
            bytes => Self::Slotted(bytes),
        }
    }

    /// Returns the bytes of a slot; 0 if items are packed.
    pub(crate) fn slot_bytes(self) -> u32 {
        match self {
            Self::Packed | Self::Hashed => 0,
            Self::Slotted(bytes) => bytes,
        }
    }

    /// Returns the place of the next item, of `bytes` bytes, in a segment with `items` items in `data_bytes` bytes. Not
    /// used for hashed segments: [`Filling`](super::filling::Filling) asks its `HashedSpace`.
    pub(super) fn next(
        self,
        pages: SlotPages,
        data_bytes: u32,
        items: u32,
        bytes: u32,
    ) -> (u32, Position) {
        match self {
            Self::Packed | Self::Hashed => {
                let offset = align(data_bytes, bytes);
                (offset, Position::new(offset, bytes))
            }
            Self::Slotted(slot_bytes) => {
                let offset = pages.offset(items, slot_bytes);
                (offset, Position::of_slot(offset))
            }
        }
    }
}

/// The pages of flash whose ends no slot crosses, because two pages of a block take two reads, one after the other.
/// Slots do cross page ends if aligning them would lose more than one part in [`MOST_LOST`] of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotPages(Option<u32>);

impl SlotPages {
    /// Returns the pages of a device; none for a drive, where a read of two pages is one command.
    pub(super) fn of(geometry: &Geometry) -> Self {
        let page_bytes = geometry.page_bytes;
        Self((page_bytes > PAGE_BYTES).then_some(page_bytes))
    }

    /// Returns the bytes of a page and the number of slots in it; `None` if slots of this length cross page ends.
    fn kept(self, slot_bytes: u32) -> Option<(u32, u32)> {
        let page_bytes = self.0?;
        let slots = page_bytes / slot_bytes;
        let is_kept = slots > 0 && page_bytes % slot_bytes <= page_bytes / MOST_LOST;
        is_kept.then_some((page_bytes, slots))
    }

    /// Returns the offset of a slot in its segment, in bytes.
    fn offset(self, number: u32, slot_bytes: u32) -> u32 {
        match self.kept(slot_bytes) {
            Some((page_bytes, slots)) => number / slots * page_bytes + number % slots * slot_bytes,
            None => number * slot_bytes,
        }
    }

    /// Returns the number of slots of this length in a segment, one at least.
    pub(super) fn slots_of(self, segment_bytes: u32, slot_bytes: u32) -> u64 {
        let bytes = u64::from(segment_bytes.saturating_sub(FOOTER_BYTES));
        let (page_bytes, slots) = self.kept(slot_bytes).unwrap_or((slot_bytes, 1));
        let page_bytes = u64::from(page_bytes + slots * SUMMARY_ENTRY_BYTES);
        (bytes * u64::from(slots) / page_bytes).max(1)
    }
}

/// The origin of items to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A write by a client: it stalls while no more segments are free than are reserved for copies.
    Write,
    /// A segment being reclaimed: its copies may open reserved segments, too.
    Copy,
    /// A segment being reclaimed to level wear: as [`Copy`](Source::Copy), but its copies need not gain space.
    Leveling,
}

/// An item to append.
#[derive(Clone, Copy, Debug)]
pub struct AppendItem<'a> {
    /// Hash of the item's key.
    pub hash: KeyHash,
    /// The item to append, with its key and value.
    pub item: ItemRef<'a>,
    /// Priority that reads gave the item in its old segment; for copies alone.
    pub priority: Priority,
    /// Whether the segment's summary gets an entry for the item. A run header names the others.
    pub is_listed: bool,
}

/// The streams that a placement fills. Called with the store's locks held: implementations take no locks and do not
/// wait.
pub trait Streams: Send + Sync {
    /// Returns the layout of each stream, one at least. Slotted streams come in order of rising slot length.
    fn layouts(&self) -> Box<[StreamLayout]>;

    /// Returns the number of the stream for an item; the item fits it.
    fn stream_of(&self, item: &AppendItem<'_>, source: Source) -> usize;

    /// Returns the number of priorities that segments have. If it exceeds one, each priority has the stream with its
    /// number.
    fn priorities(&self) -> u8 {
        1
    }
}

/// Length of the shortest slots, in bytes.
const SHORTEST: u32 = 64;
/// Each slab class has slots longer than the class before by a fraction with this denominator: the factor 1.25 of
/// memcached and Fatcache.
const GROWTH: u32 = 4;
/// Largest part of a page that may be lost so that no slot crosses its end, as a fraction with this denominator.
const MOST_LOST: u32 = 32;

/// One stream of packed items, or one for each slab class.
#[derive(Debug)]
pub struct SlabClasses(Box<[u32]>);

impl Streams for SlabClasses {
    fn layouts(&self) -> Box<[StreamLayout]> {
        let slots = self.0.iter();
        slots.map(|&slot| StreamLayout::of_slots(slot)).collect()
    }

    fn stream_of(&self, item: &AppendItem<'_>, _source: Source) -> usize {
        match &*self.0 {
            [_] => 0,
            _ => self.of_item(u32::try_from(item.item.flash_bytes()).unwrap_or(u32::MAX)),
        }
    }
}

impl SlabClasses {
    /// Returns the classes of a layout.
    pub fn new(layout: Layout, segment_bytes: u32) -> Self {
        if layout == Layout::Packed {
            return Self(Box::new([0]));
        }
        // The longest slot has a segment to itself; two of the next shorter ones share a segment.
        let longest = largest_item(segment_bytes);
        let half = summary_offset(segment_bytes, 2).unwrap_or(0) / 2 / UNIT_BYTES * UNIT_BYTES;
        let mut slots = Vec::new();
        let mut slot = SHORTEST;
        while slot < half {
            slots.push(slot);
            slot = (slot + slot / GROWTH).next_multiple_of(UNIT_BYTES);
        }
        slots.push(half);
        slots.push(longest);
        Self(slots.into())
    }

    /// Returns the class of an item of `bytes` bytes: the shortest slots that it fits. The item fits a segment.
    fn of_item(&self, bytes: u32) -> usize {
        self.0
            .partition_point(|&slot| slot < bytes)
            .min(self.0.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_grow_by_a_quarter_and_hold_every_item() {
        for segment_bytes in [64 << 10, 1 << 20, 8 << 20, 12 << 20] {
            let classes = SlabClasses::new(Layout::Slotted, segment_bytes);
            let slots = &classes.0;
            assert!(slots.is_sorted_by(|a, b| a < b), "{slots:?}");
            for pair in slots.windows(2) {
                let is_last = pair[1] == slots[slots.len() - 1];
                let most = pair[0] + pair[0] / 4 + UNIT_BYTES;
                assert!(pair[1] <= most || is_last, "{pair:?}");
            }
            let halves = slots[slots.len() - 2];
            assert!(2 * halves <= summary_offset(segment_bytes, 2).unwrap());
            for bytes in (40..=largest_item(segment_bytes)).step_by(97) {
                let class = classes.of_item(bytes);
                assert!(slots[class] >= bytes);
                assert!(class == 0 || slots[class - 1] < bytes);
            }
        }
        let packed = SlabClasses::new(Layout::Packed, 1 << 20);
        assert_eq!(packed.layouts()[..], [StreamLayout::Packed]);
    }

    #[test]
    fn slots_cross_no_page_of_flash_unless_that_saves_much() {
        const SEGMENT: u32 = 256 << 10;
        let page = 16 << 10;
        let pages = SlotPages(Some(page));
        for slot in (UNIT_BYTES..page).step_by(UNIT_BYTES as usize) {
            let crosses = |number| {
                let offset = pages.offset(number, slot);
                offset / page != (offset + slot - 1) / page
            };
            let slots = pages.slots_of(SEGMENT, slot) as u32;
            let all = SlotPages(None).slots_of(SEGMENT, slot) as u32;
            assert_eq!((0..slots).any(crosses), page % slot > page / MOST_LOST);
            assert!(slots <= all && slots >= all - all / MOST_LOST - 1, "{slot}");
            let end = pages.offset(slots - 1, slot) + slot;
            assert!(
                end <= summary_offset(SEGMENT, slots).unwrap() + page,
                "{slot}"
            );
            let apart =
                |number| pages.offset(number + 1, slot) >= pages.offset(number, slot) + slot;
            assert!((0..slots).all(apart), "{slot}");
        }
    }
}
