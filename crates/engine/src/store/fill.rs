//! Filling: items go into a segment's buffer, which is sealed when the next does not fit. There is one
//! for each slab class in use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::AlignedBuf;
use parking_lot::Mutex;
use runtime::work::{self, Work};
use zerocopy::{FromBytes, IntoBytes};

use super::write::summary_of;
use super::{Content, SegmentId, SegmentPin, SegmentRecord, SegmentStore};
use crate::format::item::ItemRef;
use crate::format::segment::{
    FOOTER_BYTES, Footer, Position, SUMMARY_ENTRY_BYTES, SegmentKind, SummaryEntry, align,
    summary_offset,
};
use crate::key::KeyHash;

/// What share of its segment, as a fraction, a buffer has that is worth sealing short.
const WORTH_SEALING: (u32, u32) = (3, 4);
/// How many times as long as its own slots those may be that an item goes into.
const MOST_WASTE: u32 = 4;

/// Which buffers are being filled, and the next sequence number. Behind the `filling` lock.
pub(super) struct Cursor {
    /// The buffer of each slab class.
    filling: Box<[Option<usize>]>,
    next_sequence: u64,
    /// Nothing is opened any more.
    is_closed: bool,
}

impl Cursor {
    pub(super) fn new(first_sequence: u64, classes: usize) -> Self {
        Self {
            filling: vec![None; classes].into(),
            next_sequence: first_sequence,
            is_closed: false,
        }
    }

    pub(super) fn peek_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub(super) fn take_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }
}

/// A segment being filled.
pub(super) struct Filling {
    pub(super) segment: SegmentId,
    pub(super) sequence: u64,
    pub(super) bytes: AlignedBuf,
    slot_bytes: u32,
    data_bytes: u32,
    items: u32,
    /// Bytes that items have taken of it, and those of them that copies have.
    taken_bytes: u32,
    copied_bytes: u32,
}

/// Where items to append come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A write: it waits while no more segments are free than are kept back.
    Write,
    /// A segment being reclaimed: it may use those too.
    Copy,
}

/// An item to append.
#[derive(Clone, Copy, Debug)]
pub struct AppendItem<'a> {
    /// Hash of its key.
    pub hash: KeyHash,
    /// The item.
    pub item: ItemRef<'a>,
}

/// Where an appended item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The segment.
    pub segment: SegmentId,
    /// Where in it.
    pub position: Position,
}

impl Filling {
    pub(super) fn new(
        segment: SegmentId,
        sequence: u64,
        bytes: AlignedBuf,
        slot_bytes: u32,
    ) -> Self {
        Self {
            segment,
            sequence,
            bytes,
            slot_bytes,
            data_bytes: 0,
            items: 0,
            taken_bytes: 0,
            copied_bytes: 0,
        }
    }

    /// Appends an item, or says that it does not fit any more.
    pub(super) fn append(&mut self, append: &AppendItem<'_>, source: Source) -> Option<Position> {
        let bytes = u32::try_from(append.item.flash_bytes()).ok()?;
        let (offset, position) = if self.slot_bytes == 0 {
            let offset = align(self.data_bytes, bytes);
            (offset, Position::new(offset, bytes))
        } else {
            let offset = self.items * self.slot_bytes;
            (offset, Position::of_slot(offset))
        };
        let summary = summary_offset(self.bytes.len() as u32, self.items + 1)?;
        if offset.checked_add(bytes.max(self.slot_bytes))? > summary {
            return None;
        }
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, u64::from(bytes));
        append
            .item
            .encode(&mut self.bytes[offset as usize..], self.sequence, offset);
        let entry = SummaryEntry {
            hash: append.hash.0.into(),
            version: append.item.header.version,
            expiry: append.item.header.expiry,
            position: position.bits().into(),
        };
        let at = summary as usize;
        self.bytes[at..at + SUMMARY_ENTRY_BYTES as usize].copy_from_slice(entry.as_bytes());
        self.data_bytes = offset + bytes;
        self.items += 1;
        let taken = bytes.max(self.slot_bytes) + SUMMARY_ENTRY_BYTES;
        self.taken_bytes += taken;
        if source == Source::Copy {
            self.copied_bytes += taken;
        }
        Some(position)
    }

    /// Bytes of the segment that copies cost, were it sealed now.
    fn bytes_for_copies(&self) -> u64 {
        let share = u64::from(self.copied_bytes) * self.bytes.len() as u64;
        share / u64::from(self.taken_bytes.max(1))
    }

    /// What the summary tells so far, in the order the items lie.
    fn entries(&self) -> Vec<SummaryEntry> {
        let segment_bytes = self.bytes.len() as u32;
        let start = summary_offset(segment_bytes, self.items).expect("append kept room");
        let end = segment_bytes - FOOTER_BYTES;
        <[SummaryEntry]>::ref_from_bytes(&self.bytes[start as usize..end as usize])
            .expect("whole entries of any alignment")
            .iter()
            .rev()
            .copied()
            .collect()
    }

    /// Writes the footer, and zeros over what an earlier life left in the gap.
    pub(super) fn finish(mut self, image: u64) -> (SegmentId, u32, AlignedBuf) {
        let segment_bytes = self.bytes.len() as u32;
        let summary = summary_offset(segment_bytes, self.items).expect("append kept room") as usize;
        self.bytes[self.data_bytes as usize..summary].fill(0);
        let footer_at = (segment_bytes - FOOTER_BYTES) as usize;
        let checksum = crc32c::crc32c(&self.bytes[summary..footer_at]);
        let footer = Footer::new(
            SegmentKind::Items,
            self.segment.0,
            self.sequence,
            self.items,
            self.data_bytes,
            checksum,
        )
        .of_image(image)
        .with_slots(self.slot_bytes);
        self.bytes[footer_at..].copy_from_slice(footer.as_bytes());
        (self.segment, self.items, self.bytes)
    }
}

impl SegmentStore {
    /// Appends `items` in order, telling `placed` where each came to lie before any later append
    /// can seal its segment. Returns how many were appended: fewer than all when there is no room,
    /// and then [`room`](SegmentStore::room) tells when to try again.
    ///
    /// An item longer than [`largest_item`](crate::format::segment::largest_item) never fits: the
    /// caller has checked.
    pub fn append(
        &self,
        items: &[AppendItem<'_>],
        source: Source,
        mut placed: impl FnMut(usize, Filled),
    ) -> usize {
        let mut cursor = self.filling.lock();
        if self.beyond_kept_back(source).is_none() {
            return 0;
        }
        let mut done = 0;
        while done < items.len() {
            let class = self.class_of(&items[done]);
            let Some((class, buffer)) = self.buffer_for(&mut cursor, class, source) else {
                break;
            };
            let mut content = self.buffers[buffer].lock();
            let Content::Filling(filling) = &mut *content else {
                unreachable!("the cursor names a buffer that is being filled");
            };
            let segment = filling.segment;
            let wanted = self.class_of(&items[done]);
            while let Some(append) = items.get(done).filter(|item| self.class_of(item) == wanted) {
                let Some(position) = filling.append(append, source) else {
                    self.seal(&mut content, buffer);
                    cursor.filling[class] = None;
                    break;
                };
                placed(done, Filled { segment, position });
                done += 1;
            }
        }
        done
    }

    /// Seals what is being filled, if it holds anything, so that it gets written.
    pub fn flush(&self) {
        let mut cursor = self.filling.lock();
        for filling in &mut cursor.filling {
            let Some(buffer) = *filling else { continue };
            let mut content = self.buffers[buffer].lock();
            if matches!(&*content, Content::Filling(filling) if filling.items > 0) {
                self.seal(&mut content, buffer);
                *filling = None;
            }
        }
    }

    fn class_of(&self, append: &AppendItem<'_>) -> usize {
        let bytes = u32::try_from(append.item.flash_bytes()).unwrap_or(u32::MAX);
        self.classes.of_item(bytes)
    }

    /// The segments in memory and what is in them, the one being filled included.
    #[must_use]
    pub fn in_memory(&self) -> Vec<SegmentRecord> {
        let segment = |buffer: &Mutex<Content>| match &*buffer.lock() {
            Content::Filling(filling) => Some((filling.segment, filling.items)),
            Content::Sealed { segment, .. } => Some((*segment, 0)),
            Content::Free(_) | Content::Lost => None,
        };
        self.buffers
            .iter()
            .filter_map(segment)
            .map(|(segment, items)| {
                let record = self.record(segment);
                SegmentRecord {
                    items: record.items.max(items),
                    ..record
                }
            })
            .collect()
    }

    /// The summary of a pinned segment that is in memory; `None` when it is not any more.
    #[must_use]
    pub fn summary_in_memory(&self, pin: &SegmentPin<'_>) -> Option<Vec<SummaryEntry>> {
        let number = self.segment(pin.segment()).buffer.load(Ordering::Acquire);
        let buffer = usize::from(number).checked_sub(1)?;
        match &*self.buffers[buffer].lock() {
            Content::Filling(filling) if filling.segment == pin.segment() => {
                Some(filling.entries())
            }
            Content::Sealed { segment, bytes } if *segment == pin.segment() => {
                summary_of(bytes, *segment, pin.sequence()).ok()
            }
            _ => None,
        }
    }

    /// From now on nothing is opened but for what is being copied: what is in flash stays as it is.
    pub fn close(&self) {
        self.filling.lock().is_closed = true;
    }

    /// Takes a [`close`](SegmentStore::close) back.
    pub fn reopen(&self) {
        self.filling.lock().is_closed = false;
        self.room.notify_all();
        self.work.notify_all();
    }

    /// Whether every appended item has been written.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.filling.lock().filling.iter().all(Option::is_none)
            && self.buffers.iter().all(|buffer| {
                !matches!(
                    &*buffer.lock(),
                    Content::Sealed { .. } | Content::Filling(_)
                )
            })
    }

    /// The buffer that is being filled for a slab class, or else one opened for it, or one with
    /// longer slots, and the class that it is of. `None` when there is no room.
    fn buffer_for(
        &self,
        cursor: &mut Cursor,
        class: usize,
        source: Source,
    ) -> Option<(usize, usize)> {
        if let Some(buffer) = cursor.filling[class] {
            return Some((class, buffer));
        }
        let is_closed = cursor.is_closed && source == Source::Write;
        if is_closed || self.beyond_kept_back(source) == Some(0) {
            return None;
        }
        if cursor.filling.iter().flatten().count() >= self.max_filling {
            let (fill, fullest) = self.fullest(cursor)?;
            // Longer slots waste less than a segment that is sealed half full.
            if fill < self.segment_bytes / WORTH_SEALING.1 * WORTH_SEALING.0
                && let Some(longer) = self.longer_slots(cursor, class)
            {
                return Some(longer);
            }
            // Without a free buffer, one is being written or waits for that: sealing would not help.
            self.free_buffer_number()?;
            self.seal_short(cursor, fullest);
        }
        let buffer = self.open(cursor, class, source)?;
        Some((class, buffer))
    }

    /// Free segments beyond those that are kept back from items of that source; `None` when there are fewer
    /// than those.
    fn beyond_kept_back(&self, source: Source) -> Option<usize> {
        let kept_back = self.kept_back.load(Ordering::Relaxed);
        if source == Source::Copy || kept_back == 0 {
            return Some(usize::MAX);
        }
        let queues = self.queues.lock();
        if queues.is_still() {
            // What is kept back comes back only where there is something to reclaim.
            return Some(usize::MAX);
        }
        queues.free().checked_sub(kept_back)
    }

    /// Keeps so many free segments for what reclaim copies.
    pub fn keep_back(&self, segments: u32) {
        self.kept_back.store(segments as usize, Ordering::Relaxed);
        self.room.notify_all();
    }

    /// Buffers that hold nothing.
    #[must_use]
    pub fn free_buffers(&self) -> usize {
        let is_free =
            |buffer: &Mutex<Content>| matches!(&*buffer.lock(), Content::Free(_) | Content::Lost);
        self.buffers.iter().filter(|buffer| is_free(buffer)).count()
    }

    fn free_buffer_number(&self) -> Option<usize> {
        self.buffers
            .iter()
            .position(|buffer| matches!(&*buffer.lock(), Content::Free(_) | Content::Lost))
    }

    /// The shortest slots being filled that are longer than those of `class`, but not by far.
    fn longer_slots(&self, cursor: &Cursor, class: usize) -> Option<(usize, usize)> {
        let most = self.classes.slot_bytes(class).saturating_mul(MOST_WASTE);
        (class + 1..self.classes.len())
            .take_while(|&longer| self.classes.slot_bytes(longer) <= most)
            .find_map(|longer| Some((longer, cursor.filling[longer]?)))
    }

    fn open(&self, cursor: &mut Cursor, class: usize, source: Source) -> Option<usize> {
        if self.queues.lock().has_nothing_left() {
            let (_, fullest) = self.fullest(cursor)?;
            self.seal_short(cursor, fullest);
        }
        // Only who holds the cursor fills a free buffer.
        let buffer = self.free_buffer_number()?;
        let mut content = self.buffers[buffer].lock();
        let segment = self.pop_free()?;
        let bytes = match std::mem::replace(&mut *content, Content::Lost) {
            Content::Free(bytes) => bytes,
            _ => AlignedBuf::new(self.segment_bytes as usize),
        };
        let sequence = cursor.take_sequence();
        let slot_bytes = self.classes.slot_bytes(class);
        self.begin_life(segment, sequence, slot_bytes, buffer);
        *content = Content::Filling(Filling::new(segment, sequence, bytes, slot_bytes));
        cursor.filling[class] = Some(buffer);
        self.counters
            .segments_opened
            .fetch_add(1, Ordering::Relaxed);
        if source == Source::Write {
            self.counters
                .segments_opened_for_writes
                .fetch_add(1, Ordering::Relaxed);
        }
        self.work.notify_all();
        Some(buffer)
    }

    /// The slab class to seal short, with the bytes in its buffer: the fullest of those whose items can
    /// go into longer slots, or else they would soon have another one sealed; if there is none, the
    /// fullest of all.
    fn fullest(&self, cursor: &Cursor) -> Option<(u32, usize)> {
        let fill =
            |(class, buffer): (usize, &Option<usize>)| match &*self.buffers[(*buffer)?].lock() {
                Content::Filling(filling) => Some((
                    self.longer_slots(cursor, class).is_some(),
                    filling.data_bytes + filling.items * SUMMARY_ENTRY_BYTES,
                    class,
                )),
                _ => None,
            };
        let (_, bytes, class) = cursor.filling.iter().enumerate().filter_map(fill).max()?;
        Some((bytes, class))
    }

    /// Seals the buffer of a slab class as it is, so that it becomes free.
    fn seal_short(&self, cursor: &mut Cursor, class: usize) {
        if let Some(buffer) = cursor.filling[class].take() {
            self.seal(&mut self.buffers[buffer].lock(), buffer);
        }
    }

    fn seal(&self, content: &mut Content, buffer: usize) {
        let Content::Filling(filling) = std::mem::replace(content, Content::Lost) else {
            unreachable!("only what is being filled is sealed");
        };
        let for_copies = filling.bytes_for_copies();
        let (segment, items, bytes) = filling.finish(self.image);
        self.segment(segment).items.store(items, Ordering::Release);
        *content = Content::Sealed {
            segment,
            bytes: Arc::new(bytes),
        };
        self.queues.lock().push_sealed(segment, buffer);
        self.counters
            .segments_sealed
            .fetch_add(1, Ordering::Relaxed);
        self.counters
            .bytes_for_copies
            .fetch_add(for_copies, Ordering::Relaxed);
        self.work.notify_all();
    }
}
