//! Appending: items go into the buffer of a segment of their stream. The segment is sealed when the next item does not
//! fit.

use std::sync::Arc;

use device::AlignedBuf;

use super::core::{Content, SegmentStore, UnwrittenCopies};
use super::filling::{Cursor, Filling};
use super::layout::{AppendItem, Source, StreamLayout};
use super::priority::Priority;
use super::queues::Worn;
use super::read::SegmentPin;
use super::segment::SegmentRecord;
use crate::counter::Count as _;
use crate::format::checkpoint::Coverage;
use crate::format::location::Place;
use crate::format::segment::{SummaryEntry, decode_tail};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;

/// Fill of a buffer from which it is worth sealing short, as a fraction of the segment.
const WORTH_SEALING: (u32, u32) = (3, 4);
/// Part of the buffers that copies leave to writes, as a fraction with this denominator.
const SHARE_FOR_WRITES: usize = 8;
/// Maximum ratio between the slots that an item is put into and the slots of its stream.
const MOST_WASTE: u32 = 4;

impl SegmentStore {
    /// Appends `items` in order. Calls `placed` with the place of each before any later append can seal its segment.
    /// Returns the number of items appended: fewer than all when there is no space, and then
    /// [`space`](SegmentStore::space) tells when to try again.
    ///
    /// An item longer than [`largest_item`](crate::format::segment::largest_item) never fits: the caller has checked
    /// that.
    pub(crate) fn append(
        &self,
        items: &[AppendItem<'_>],
        source: Source,
        mut placed: impl FnMut(usize, Place),
    ) -> usize {
        let mut cursor = self.filling.lock();
        if self.beyond_reserved(source).is_none() {
            return 0;
        }
        let mut done = 0;
        while done < items.len() {
            let wanted = self.streams.stream_of(&items[done], source);
            if self.layouts[wanted] == StreamLayout::Hashed {
                let append = &items[done];
                let placed = |place| placed(done, place);
                if !self.append_hashed(&mut cursor, wanted, append, source, placed) {
                    break;
                }
                done += 1;
                continue;
            }
            let Some((stream, buffer)) = self.buffer_for(&mut cursor, wanted, source) else {
                break;
            };
            let mut content = self.buffers[buffer].lock();
            let Content::Filling(filling) = &mut *content else {
                unreachable!("the cursor names a buffer that is being filled");
            };
            let (segment, generation) = (filling.segment, filling.sequence);
            let is_wanted = |item: &&AppendItem<'_>| self.streams.stream_of(item, source) == wanted;
            while let Some(append) = items.get(done).filter(is_wanted) {
                let Some(position) = filling.append(append, source) else {
                    self.seal(&mut content, buffer);
                    cursor.filling[stream] = None;
                    break;
                };
                // Before the index names the item, and so before `count_out` can be called for it.
                self.count_in(segment);
                placed(
                    done,
                    Place {
                        segment,
                        generation,
                        position,
                    },
                );
                done += 1;
            }
        }
        self.counters.items_appended.add(done as u64);
        done
    }

    /// Seals every segment being filled that holds items, so that it gets written.
    pub(crate) fn flush(&self) {
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

    /// Runs `cut` while no append can happen. Returns its result and the items appended to segments before it.
    pub(crate) fn appended_before<T>(&self, cut: impl FnOnce() -> T) -> (T, Coverage) {
        let mut cursor = self.filling.lock();
        // The items of a hashed segment do not lie in the order of their appends: a count does not say which came
        // first.
        while let Some(stream) = self.oldest_hashed(&cursor, 0..cursor.filling.len()) {
            self.seal_short(&mut cursor, stream);
        }
        let cut = cut();
        let mut covered = Coverage {
            below: cursor.next_sequence.load(Ordering::Acquire),
            partly: Vec::new(),
        };
        for buffer in cursor.filling.iter().flatten() {
            if let Content::Filling(filling) = &*self.buffers[*buffer].lock() {
                covered.partly.push((filling.segment, filling.items));
            }
        }
        (cut, covered)
    }

    /// Returns the records of the segments in memory, segments being filled included.
    pub(crate) fn in_memory(&self) -> Vec<SegmentRecord> {
        let segment = |buffer: &Mutex<Content>| match &*buffer.lock() {
            Content::Filling(filling) => Some((filling.segment, filling.items)),
            Content::Sealed { segment, .. } => Some((*segment, 0)),
            Content::Free(_) | Content::Lost => None,
        };
        let in_buffers = self.buffers.iter().filter_map(segment);
        let record = |(segment, items)| {
            let mut record = self.record(segment);
            record.items = record.items.max(items);
            record
        };
        in_buffers.map(record).collect()
    }

    /// Returns the number of items that the index names in segments that are not on flash: an estimate for segments of
    /// which a part is.
    pub fn unwritten_items(&self) -> u64 {
        let unwritten = |buffer: &Mutex<Content>| {
            let mut content = buffer.lock();
            let (segment, items) = match &*content {
                Content::Filling(filling) => (filling.segment, filling.items),
                Content::Sealed { segment, .. } => (*segment, self.record(*segment).items),
                Content::Free(_) | Content::Lost => return 0,
            };
            let flushed = content.flushed().map_or(0, |flushed| flushed.items);
            let live = self.segment(segment).live.load(Ordering::Relaxed);
            u64::from(live.min(items - flushed))
        };
        self.buffers.iter().map(unwritten).sum()
    }

    /// Returns the summary of a pinned segment in memory; `None` when it is not there any more.
    pub(crate) fn summary_in_memory(&self, pin: &SegmentPin<'_>) -> Option<Vec<SummaryEntry>> {
        match &*self.content_of(pin)? {
            Content::Filling(filling) => Some(filling.entries()),
            Content::Sealed { segment, bytes, .. } => {
                decode_tail(bytes, segment.0, pin.sequence, self.segment_bytes)
                    .ok()
                    .map(|(_, entries)| entries)
            }
            Content::Free(_) | Content::Lost => None,
        }
    }

    /// Stops opening segments, except for copies.
    pub(crate) fn close(&self) {
        self.filling.lock().is_closed = true;
    }

    /// Undoes [`close`](SegmentStore::close).
    pub(crate) fn reopen(&self) {
        self.filling.lock().is_closed = false;
        self.space.notify_all();
        self.work.notify_all();
    }

    /// Returns whether every appended item has been written.
    pub(crate) fn is_drained(&self) -> bool {
        let filling = self.filling.lock();
        filling.filling.iter().all(Option::is_none) && self.free_buffers() == self.buffers.len()
    }

    /// Returns the stream and the buffer that take the next item of `stream`: the buffer being filled for it, a newly
    /// opened one, or one with longer slots. `None` when there is no space.
    fn buffer_for(
        &self,
        cursor: &mut Cursor,
        stream: usize,
        source: Source,
    ) -> Option<(usize, usize)> {
        let leveling = self.layouts.len() + stream;
        let stream = match source {
            Source::Leveling if self.may_level_apart(cursor, leveling) => leveling,
            _ => stream,
        };
        if let Some(buffer) = cursor.filling[stream] {
            return Some((stream, buffer));
        }
        if source == Source::Write && cursor.filling[leveling].is_some() && self.worn_least() == 0 {
            // The round of leveling is over.
            cursor.filling.swap(stream, leveling);
            return Some((stream, cursor.filling[stream]?));
        }
        if !self.may_open(cursor, source) {
            return None;
        }
        if cursor.filling.iter().flatten().count() >= self.max_filling {
            let (fill, fullest) = self.fullest(cursor)?;
            // Longer slots waste less than a segment that is sealed half full.
            if fill < self.segment_bytes / WORTH_SEALING.1 * WORTH_SEALING.0
                && let Some(longer) = self.longer_slots(cursor, stream)
            {
                return Some(longer);
            }
            // Without a free buffer, one is being written or waits for that: sealing would not help.
            self.free_buffer_for(source)?;
            self.seal_short(cursor, fullest);
        }
        let buffer = self.open(cursor, stream, source)?;
        Some((stream, buffer))
    }

    /// Returns whether another segment may be opened for items of this source.
    pub(super) fn may_open(&self, cursor: &Cursor, source: Source) -> bool {
        let is_closed = cursor.is_closed && source == Source::Write;
        !is_closed && self.beyond_reserved(source) != Some(0)
    }

    /// Returns whether copies made to level wear have, or may have, a buffer of their own. Such items stay for long:
    /// they belong in blocks that have been erased often, and not among items that are soon overwritten.
    fn may_level_apart(&self, cursor: &Cursor, leveling: usize) -> bool {
        let filling = cursor.filling.iter().flatten().count();
        cursor.filling[leveling].is_some() || 2 * filling < self.max_filling
    }

    /// Returns the number of free segments beyond those reserved from items of this source; `None` when fewer are free
    /// than are reserved.
    fn beyond_reserved(&self, source: Source) -> Option<usize> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        if source != Source::Write || reserved == 0 {
            return Some(usize::MAX);
        }
        let queues = self.queues.lock();
        if queues.is_still() {
            // If there is nothing to reclaim, no copies will come that need reserved segments.
            return Some(usize::MAX);
        }
        queues.free.checked_sub(reserved)
    }

    /// Reserves free segments for copies made by reclaim.
    pub(crate) fn reserve_segments(&self, segments: u32) {
        self.reserved.store(segments as usize, Ordering::Relaxed);
        self.space.notify_all();
    }

    /// Returns the number of free buffers.
    pub(crate) fn free_buffers(&self) -> usize {
        self.free_buffers.load(Ordering::Acquire)
    }

    /// Returns the bytes of copies made by reclaim that are not on flash.
    pub(crate) fn unwritten_copies(&self) -> UnwrittenCopies {
        let mut sum = UnwrittenCopies::default();
        for buffer in &self.buffers {
            let of_buffer = buffer.lock().unwritten_copies();
            sum.filling += of_buffer.filling;
            sum.sealed += of_buffer.sealed;
        }
        sum
    }

    /// Returns whether copies that gain space find a free buffer.
    pub(crate) fn has_buffer_for_copies(&self) -> bool {
        self.free_buffers() > self.buffers_for_writes()
    }

    /// Returns a free buffer. Copies that gain space leave some to writes, which would otherwise stall until a buffer
    /// full of copies has been written to flash.
    pub(super) fn free_buffer_for(&self, source: Source) -> Option<usize> {
        let left_to_others = match source {
            Source::Write | Source::Leveling => 0,
            Source::Copy => self.buffers_for_writes(),
        };
        if self.free_buffers() <= left_to_others {
            return None;
        }
        let is_free =
            |buffer: &Mutex<Content>| matches!(&*buffer.lock(), Content::Free(_) | Content::Lost);
        let free = |(number, buffer)| is_free(buffer).then_some(number);
        let mut free = self.buffers.iter().enumerate().filter_map(free);
        free.nth(left_to_others)
    }

    /// Returns the number of buffers that copies leave to writes.
    pub(crate) fn buffers_for_writes(&self) -> usize {
        self.buffers.len() / SHARE_FOR_WRITES
    }

    /// Returns the stream and the buffer of the shortest slots being filled that are longer than those of `stream`, at
    /// most by the factor [`MOST_WASTE`].
    fn longer_slots(&self, cursor: &Cursor, stream: usize) -> Option<(usize, usize)> {
        let stream = stream % self.layouts.len();
        let most = self.layouts[stream].slot_bytes().saturating_mul(MOST_WASTE);
        (stream + 1..self.layouts.len())
            .take_while(|&longer| self.layouts[longer].slot_bytes() <= most)
            .find_map(|longer| Some((longer, cursor.filling[longer]?)))
    }

    pub(super) fn open(&self, cursor: &mut Cursor, stream: usize, source: Source) -> Option<usize> {
        if self.queues.lock().has_nothing_left() {
            let (_, fullest) = self.fullest(cursor)?;
            self.seal_short(cursor, fullest);
        }
        // Only the holder of the cursor fills a free buffer.
        let buffer = self.free_buffer_for(source)?;
        let mut content = self.buffers[buffer].lock();
        let which = match source {
            Source::Leveling => Worn::Most,
            Source::Write | Source::Copy => Worn::Least,
        };
        let segment = self.pop_free(which)?;
        let bytes = match std::mem::replace(&mut *content, Content::Lost) {
            Content::Free(bytes) => bytes,
            _ => AlignedBuf::new(self.segment_bytes as usize),
        };
        let sequence = cursor.take_sequence();
        let stream_of_items = stream % self.layouts.len();
        let layout = self.layouts[stream_of_items];
        if self.streams.priorities() > 1 {
            self.set_priority(segment, Priority(stream_of_items as u8));
        }
        let item_bytes = cursor.hashed_item_bytes;
        self.begin_generation(segment, sequence, layout.slot_bytes(), buffer);
        *content = Content::Filling(Filling::new(
            segment,
            sequence,
            bytes,
            layout,
            self.slot_pages,
            item_bytes,
        ));
        self.free_buffers.fetch_sub(1, Ordering::AcqRel);
        cursor.filling[stream] = Some(buffer);
        self.counters.segments_opened.add(1);
        if source == Source::Write {
            self.counters.segments_opened_for_writes.add(1);
        }
        self.work.notify_all();
        Some(buffer)
    }

    /// Returns the slab class to seal short, and the filled bytes of its buffer: the fullest class whose items can go
    /// into longer slots, because the others would soon need a buffer again. If there is no such class, the fullest of
    /// all.
    pub(super) fn fullest(&self, cursor: &Cursor) -> Option<(u32, usize)> {
        let fill =
            |(stream, buffer): (usize, &Option<usize>)| match &*self.buffers[(*buffer)?].lock() {
                Content::Filling(filling) => Some((
                    self.longer_slots(cursor, stream).is_some(),
                    filling.filled_bytes(),
                    stream,
                )),
                _ => None,
            };
        let (_, bytes, stream) = cursor.filling.iter().enumerate().filter_map(fill).max()?;
        Some((bytes, stream))
    }

    /// Seals the buffer of a slab class as it is, so that it becomes free once written.
    pub(super) fn seal_short(&self, cursor: &mut Cursor, stream: usize) {
        if let Some(buffer) = cursor.filling[stream].take() {
            self.seal(&mut self.buffers[buffer].lock(), buffer);
        }
    }

    fn seal(&self, content: &mut Content, buffer: usize) {
        let Content::Filling(filling) = std::mem::replace(content, Content::Lost) else {
            unreachable!("only what is being filled is sealed");
        };
        let (segment, for_copies) = (filling.segment, filling.bytes_for_copies());
        let taken_bytes = filling.taken_bytes.into();
        *content = self.finish(filling);
        self.queues.lock().push_sealed(segment, buffer);
        self.counters.segments_sealed.add(1);
        self.counters.bytes_sealed.add(taken_bytes);
        self.counters.bytes_for_copies.add(for_copies);
        self.work.notify_all();
    }

    /// Returns the sealed content of a filled buffer, and notes it in the segment table.
    pub(super) fn finish(&self, filling: Filling) -> Content {
        let layout = filling.layout();
        let Filling {
            segment,
            items,
            taken_bytes,
            flushed,
            copied_bytes,
            ..
        } = filling;
        let bytes = Arc::new(filling.finish(self.image));
        let state = self.segment(segment);
        state.item_bytes.store(taken_bytes, Ordering::Relaxed);
        let now = runtime::unix_seconds();
        state.sealed_at.store(now, Ordering::Relaxed);
        state.items.store(items, Ordering::Release);
        Content::Sealed {
            segment,
            bytes,
            layout,
            flushed,
            copied_bytes,
        }
    }
}
