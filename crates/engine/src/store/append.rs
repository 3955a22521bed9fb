//! Appending: items go into the buffer of a segment of their stream, which is sealed when the next does not fit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::AlignedBuf;
use parking_lot::Mutex;

use super::core::{Content, SegmentStore};
use super::filling::{Cursor, Filling};
use super::incoming::{AppendItem, Source};
use super::read::SegmentPin;
use super::segment::SegmentRecord;
use super::write::summary_of;
use crate::format::location::Place;
use crate::format::segment::{SUMMARY_ENTRY_BYTES, SummaryEntry};

/// What share of its segment, as a fraction, a buffer has that is worth sealing short.
const WORTH_SEALING: (u32, u32) = (3, 4);
/// How many times as long as its own slots those may be that an item goes into.
const MOST_WASTE: u32 = 4;

impl SegmentStore {
    /// Appends `items` in order, telling `placed` where each came to lie before any later append
    /// can seal its segment. Returns how many were appended: fewer than all when there is no space,
    /// and then [`space`](SegmentStore::space) tells when to try again.
    ///
    /// An item longer than [`largest_item`](crate::format::segment::largest_item) never fits: the
    /// caller has checked.
    pub fn append(
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
            let stream = self.streams.stream_of(&items[done], source);
            let Some((stream, buffer)) = self.buffer_for(&mut cursor, stream, source) else {
                break;
            };
            let mut content = self.buffers[buffer].lock();
            let Content::Filling(filling) = &mut *content else {
                unreachable!("the cursor names a buffer that is being filled");
            };
            let (segment, generation) = (filling.segment, filling.sequence);
            let wanted = self.streams.stream_of(&items[done], source);
            while let Some(append) = items
                .get(done)
                .filter(|item| self.streams.stream_of(item, source) == wanted)
            {
                let Some(position) = filling.append(append, source) else {
                    self.seal(&mut content, buffer);
                    cursor.filling[stream] = None;
                    break;
                };
                // Before the index can name it, and so before it can be counted out.
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
        self.space.notify_all();
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
    /// longer slots, and the stream that it is of. `None` when there is no space.
    fn buffer_for(
        &self,
        cursor: &mut Cursor,
        stream: usize,
        source: Source,
    ) -> Option<(usize, usize)> {
        if let Some(buffer) = cursor.filling[stream] {
            return Some((stream, buffer));
        }
        let is_closed = cursor.is_closed && source == Source::Write;
        if is_closed || self.beyond_reserved(source) == Some(0) {
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
            self.free_buffer_number()?;
            self.seal_short(cursor, fullest);
        }
        let buffer = self.open(cursor, stream, source)?;
        Some((stream, buffer))
    }

    /// Free segments beyond those that are kept back from items of that source; `None` when there are fewer
    /// than those.
    fn beyond_reserved(&self, source: Source) -> Option<usize> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        if source == Source::Copy || reserved == 0 {
            return Some(usize::MAX);
        }
        let queues = self.queues.lock();
        if queues.is_still() {
            // What is kept back comes back only where there is something to reclaim.
            return Some(usize::MAX);
        }
        queues.free().checked_sub(reserved)
    }

    /// Keeps so many free segments for what reclaim copies.
    pub fn reserve_segments(&self, segments: u32) {
        self.reserved.store(segments as usize, Ordering::Relaxed);
        self.space.notify_all();
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

    /// The shortest slots being filled that are longer than those of `stream`, but not by far.
    fn longer_slots(&self, cursor: &Cursor, stream: usize) -> Option<(usize, usize)> {
        let most = self.layouts[stream].slot_bytes().saturating_mul(MOST_WASTE);
        (stream + 1..self.layouts.len())
            .take_while(|&longer| self.layouts[longer].slot_bytes() <= most)
            .find_map(|longer| Some((longer, cursor.filling[longer]?)))
    }

    fn open(&self, cursor: &mut Cursor, stream: usize, source: Source) -> Option<usize> {
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
        let layout = self.layouts[stream];
        self.begin_generation(segment, sequence, layout.slot_bytes(), buffer);
        *content = Content::Filling(Filling::new(segment, sequence, bytes, layout));
        cursor.filling[stream] = Some(buffer);
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
            |(stream, buffer): (usize, &Option<usize>)| match &*self.buffers[(*buffer)?].lock() {
                Content::Filling(filling) => Some((
                    self.longer_slots(cursor, stream).is_some(),
                    filling.data_bytes + filling.items * SUMMARY_ENTRY_BYTES,
                    stream,
                )),
                _ => None,
            };
        let (_, bytes, stream) = cursor.filling.iter().enumerate().filter_map(fill).max()?;
        Some((bytes, stream))
    }

    /// Seals the buffer of a slab class as it is, so that it becomes free.
    fn seal_short(&self, cursor: &mut Cursor, stream: usize) {
        if let Some(buffer) = cursor.filling[stream].take() {
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
