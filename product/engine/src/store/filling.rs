//! [`Filling`]: a segment being filled, and the part of it that is on flash.

use std::ops::Range;

use device::AlignedBuf;
use runtime::work::{self, Work};
use zerocopy::{FromBytes, IntoBytes};

use super::layout::{AppendItem, SlotPages, Source, StreamLayout};
use crate::format::hashed::{HashedSpace, expected_items};
use crate::format::item::end_page;
use crate::format::segment::{
    FOOTER_BYTES, Footer, PAGE_BYTES, Position, SUMMARY_ENTRY_BYTES, SegmentId, SegmentKind,
    SummaryEntry, UNIT_BYTES, summary_offset,
};

/// Bytes of one write by a flush.
pub(super) const FLUSH_BYTES: u32 = 64 << 10;

/// The part of a segment that is on flash before all of it is: its first items, with a footer that counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flushed {
    pub(super) items: u32,
    /// Items that the summary does not list.
    pub(super) unlisted: u32,
    pub(super) data_bytes: u32,
    /// Bytes of the items on flash that reclaim has copied.
    pub(super) copied_bytes: u32,
    /// Whether the segment has been erased, and may hold some of its items.
    pub(super) is_begun: bool,
    /// Whether it has been sealed, and all of it is on flash.
    pub(super) is_whole: bool,
    /// Number of syncs that have failed since: a write under way at a failed sync counts for nothing.
    pub(super) forgotten: u32,
}

impl Flushed {
    /// Marks all of the segment to be written again after a failed sync.
    pub(super) fn forget(&mut self) {
        *self = Self {
            is_begun: self.is_begun,
            forgotten: self.forgotten + 1,
            ..Self::default()
        };
    }
}

/// A segment being filled.
pub(super) struct Filling {
    pub(super) segment: SegmentId,
    pub(super) sequence: u64,
    pub(super) bytes: AlignedBuf,
    layout: StreamLayout,
    pages: SlotPages,
    /// The space of a hashed segment; `None` in other layouts.
    hashed: Option<HashedSpace>,
    pub(super) data_bytes: u32,
    /// Items that the summary lists.
    pub(super) items: u32,
    /// Items that the summary leaves out: a run header names them.
    pub(super) unlisted: u32,
    pub(super) flushed: Flushed,
    /// Bytes taken by items, their slots and their summary entries.
    pub(super) taken_bytes: u32,
    /// Bytes taken by copies made by reclaim.
    pub(super) copied_bytes: u32,
    /// Bytes taken by copies made to gain space.
    gaining_bytes: u32,
}

impl Filling {
    /// Returns an empty segment. `item_bytes` is the expected mean length of its items; only the hashed layout uses it.
    pub(super) fn new(
        segment: SegmentId,
        sequence: u64,
        bytes: AlignedBuf,
        layout: StreamLayout,
        pages: SlotPages,
        item_bytes: u32,
    ) -> Self {
        let hashed = (layout == StreamLayout::Hashed).then(|| {
            let segment_bytes = bytes.len() as u32;
            let reserved = expected_items(segment_bytes, item_bytes);
            HashedSpace::new(segment_bytes, sequence, reserved)
        });
        Self {
            segment,
            sequence,
            bytes,
            layout,
            pages,
            hashed,
            data_bytes: 0,
            items: 0,
            unlisted: 0,
            flushed: Flushed::default(),
            taken_bytes: 0,
            copied_bytes: 0,
            gaining_bytes: 0,
        }
    }

    /// Appends an item; `None` if it does not fit. In the hashed layout another item may still fit then.
    pub(super) fn append(&mut self, append: &AppendItem<'_>, source: Source) -> Option<Position> {
        let bytes = u32::try_from(append.item.flash_bytes()).ok()?;
        let (offset, position) = match &mut self.hashed {
            Some(space) => {
                let offset = space.take(append.hash.0, bytes)?.offset;
                (offset, Position::new(offset, bytes))
            }
            None => self
                .layout
                .next(self.pages, self.data_bytes, self.items, bytes),
        };
        let slot_bytes = self.layout.slot_bytes();
        let entries = u32::from(append.is_listed);
        let summary = summary_offset(self.bytes.len() as u32, self.items + entries)?;
        if offset.checked_add(bytes.max(slot_bytes))? > summary {
            return None;
        }
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, u64::from(bytes));
        self.end_page_before(offset);
        append
            .item
            .encode(&mut self.bytes[offset as usize..], self.sequence, offset);
        if append.is_listed {
            let entry = SummaryEntry {
                hash: append.hash.0.into(),
                version: append.item.header.version,
                expiry: append.item.header.expiry,
                position: position.bits().into(),
            };
            let at = summary as usize;
            self.bytes[at..at + SUMMARY_ENTRY_BYTES as usize].copy_from_slice(entry.as_bytes());
        }
        self.data_bytes = self.data_bytes.max(offset + bytes);
        self.items += entries;
        self.unlisted += 1 - entries;
        let taken = bytes.max(slot_bytes) + entries * SUMMARY_ENTRY_BYTES;
        self.taken_bytes += taken;
        match source {
            Source::Write => {}
            Source::Copy => {
                self.copied_bytes += taken;
                self.gaining_bytes += taken;
            }
            Source::Leveling => self.copied_bytes += taken,
        }
        Some(position)
    }

    /// Returns whether items fit and leave about this many bytes.
    pub(super) fn has_room_for(&self, items: &[AppendItem<'_>], behind: u32) -> bool {
        let bytes = |item: &AppendItem<'_>| {
            item.item.flash_bytes() as u64 + u64::from(SUMMARY_ENTRY_BYTES + UNIT_BYTES)
        };
        let wanted = items.iter().map(bytes).sum::<u64>() + u64::from(behind + FOOTER_BYTES);
        u64::from(self.filled_bytes()) + wanted <= self.bytes.len() as u64
    }

    /// Marks the end of the page of the last item if the next one begins behind that page.
    fn end_page_before(&mut self, offset: u32) {
        let from = self.data_bytes.next_multiple_of(UNIT_BYTES);
        let end = from.next_multiple_of(PAGE_BYTES);
        if self.layout == StreamLayout::Packed && from < end && end <= offset {
            let rest = &mut self.bytes[from as usize..end as usize];
            end_page(rest, self.sequence, from);
        }
    }

    /// Returns the share of the segment's bytes, were it sealed now, that is due to copies made to gain space.
    pub(super) fn bytes_for_copies(&self) -> u64 {
        let share = u64::from(self.gaining_bytes) * self.bytes.len() as u64;
        share / u64::from(self.taken_bytes.max(1))
    }

    /// Returns the bytes of the segment that are no longer free for items.
    pub(super) fn filled_bytes(&self) -> u32 {
        match self.hashed {
            Some(_) => self.taken_bytes,
            None => self.data_bytes + self.items * SUMMARY_ENTRY_BYTES,
        }
    }

    /// Returns the layout of its items.
    pub(super) fn layout(&self) -> StreamLayout {
        self.layout
    }

    /// Returns the mean bytes of its items.
    pub(super) fn mean_item_bytes(&self) -> u32 {
        let of_entries = self.items * SUMMARY_ENTRY_BYTES;
        (self.taken_bytes - of_entries) / self.items.max(1)
    }

    /// Returns the summary so far, in the order in which the items lie.
    pub(super) fn entries(&self) -> Vec<SummaryEntry> {
        let summary = &self.bytes[self.summary()];
        let mut entries: Vec<SummaryEntry> = <[SummaryEntry]>::ref_from_bytes(summary)
            .expect("whole entries of any alignment")
            .iter()
            .rev()
            .copied()
            .collect();
        if self.hashed.is_some() {
            entries
                .sort_unstable_by_key(|entry| Position::from_bits(entry.position.get()).offset());
        }
        entries
    }

    /// Returns the byte range of the summary.
    fn summary(&self) -> Range<usize> {
        let segment_bytes = self.bytes.len() as u32;
        let start = summary_offset(segment_bytes, self.items).expect("append kept space");
        start as usize..(segment_bytes - FOOTER_BYTES) as usize
    }

    /// Writes the footer, and zeros over bytes that an earlier generation left in the gap.
    pub(super) fn finish(mut self, image: u64) -> AlignedBuf {
        let summary = self.summary();
        if self.hashed.is_some() {
            let mut entries = self.entries();
            entries.reverse();
            self.bytes[summary.clone()].copy_from_slice(entries.as_bytes());
        }
        self.bytes[self.data_bytes as usize..summary.start].fill(0);
        let footer = self.footer(image);
        self.bytes[summary.end..].copy_from_slice(footer.as_bytes());
        self.bytes
    }

    /// Returns the footer for the items so far.
    pub(super) fn footer(&self, image: u64) -> Footer {
        let checksum = crc32c::crc32c(&self.bytes[self.summary()]);
        Footer::new(
            SegmentKind::Items,
            self.segment.0,
            self.sequence,
            self.items,
            self.data_bytes,
            checksum,
        )
        .of_image(image, self.layout.slot_bytes())
    }
}
