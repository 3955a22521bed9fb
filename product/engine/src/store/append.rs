//! Appending: items go into the buffer of a segment of their stream. The segment is sealed when the next item does not
//! fit.
//!
//! # Hashed segments
//!
//! An item goes to the oldest of several open segments that has room for it.
//!
//! The functions of a key give it a few positions in each segment (Flashield, NSDI 2019, section 3.4). Long before a
//! segment is full, a growing share of items finds all these positions taken. Flashield puts such items off until the
//! next segment is filled (section 4.1); here that segment is open already:
//!
//! ```text
//!   item ──▶ oldest open segment ──▶ next oldest ──▶ ... ──▶ newest ──▶ none has room: the oldest is sealed, and
//!              no room                no room        no room            another one opened
//! ```
//!
//! So no item is put off, and a segment is offered many times the items that fit. The streams that share the open
//! segments are adjacent in [`Streams::layouts`](super::Streams::layouts); each has one open segment. Fewer are open if
//! there are few buffers.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use device::AlignedBuf;

use super::blocks::Blocks;
use super::buffers::{Buffers, Content};
use super::counters::StoreCounters;
use super::cursor::Cursor;
use super::failure::WriteFailure;
use super::filling::Filling;
use super::layout::{AppendItem, SlotPages, Source, StreamLayout, Streams};
use super::parts::Parts;
use super::pool::SegmentPool;
use super::priority::Priority;
use super::queues::Worn;
use super::segment::SegmentRecord;
use super::table::SegmentTable;
use crate::counter::Count as _;
use crate::format::checkpoint::Coverage;
use crate::format::item::ItemRef;
use crate::format::location::Place;
use crate::format::segment::{Position, SegmentId, SummaryEntry};
use crate::key::KeyHash;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Fill of a buffer from which it is worth sealing short, as a fraction of the segment.
const WORTH_SEALING: (u32, u32) = (3, 4);

/// Largest part of the buffers that may be filled at once; [`FILLING_SHARE_OF_FLASH`] likewise for all segments.
pub(crate) const FILLING_SHARE: (u64, u64) = (3, 4);
pub(crate) const FILLING_SHARE_OF_FLASH: (u64, u64) = (1, 4);

/// Returns the number of segments that may be filled at once.
fn max_filling(buffers: usize, segments: usize) -> usize {
    let part = |of: usize, (some, all): (u64, u64)| of * some as usize / all as usize;
    let most = part(segments, FILLING_SHARE_OF_FLASH).max(1);
    part(buffers, FILLING_SHARE).clamp(1, most)
}

/// Opens segments, appends items to them and seals them.
///
/// While the `filling` lock is free, the index has been told of every appended item, and sequence numbers are given out
/// in rising order, each once.
pub struct Appender {
    /// The buffers being filled, and the next sequence number.
    filling: Mutex<Cursor>,
    streams: Arc<dyn Streams>,
    slot_pages: SlotPages,
    /// Number of segments that may be filled at once.
    max_filling: usize,
    table: Arc<SegmentTable>,
    blocks: Arc<Blocks>,
    buffers: Arc<Buffers>,
    pool: Arc<SegmentPool>,
    counters: Arc<StoreCounters>,
}

impl Appender {
    pub(super) fn new(
        streams: Arc<dyn Streams>,
        slot_pages: SlotPages,
        first_sequence: u64,
        parts: &Parts,
    ) -> Self {
        let cursor = Cursor::new(streams.layouts(), first_sequence);
        Self {
            filling: Mutex::new(cursor),
            streams,
            slot_pages,
            max_filling: max_filling(parts.buffers.count(), parts.table.segments() as usize),
            table: Arc::clone(&parts.table),
            blocks: Arc::clone(&parts.blocks),
            buffers: Arc::clone(&parts.buffers),
            pool: Arc::clone(&parts.pool),
            counters: Arc::clone(&parts.counters),
        }
    }

    /// Appends `items` in order, with nothing kept free behind them; see [`Appending::append`].
    pub(crate) fn append(
        &self,
        items: &[AppendItem<'_>],
        source: Source,
        placed: impl FnMut(usize, Place),
    ) -> usize {
        self.begin().append(items, source, 0, placed)
    }

    /// Locks the appender: what is appended until the end lies together.
    pub(crate) fn begin(&self) -> Appending<'_> {
        Appending {
            cursor: self.filling.lock(),
            appender: self,
        }
    }

    /// Seals every segment being filled that holds items, so that it gets written.
    pub(crate) fn flush(&self) {
        let mut cursor = self.filling.lock();
        for filling in &mut cursor.filling {
            let Some(buffer) = *filling else { continue };
            let mut content = self.buffers.lock(buffer);
            if matches!(&*content, Content::Filling(filling) if filling.data_bytes > 0) {
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
        while let Some(stream) = cursor.oldest_hashed(&self.buffers, 0..cursor.filling.len()) {
            self.seal_short(&mut cursor, stream);
        }
        let cut = cut();
        let mut covered = Coverage {
            below: cursor.next_sequence.load(Ordering::Acquire),
            partly: Vec::new(),
        };
        for buffer in cursor.filling.iter().flatten() {
            if let Content::Filling(filling) = &*self.buffers.lock(*buffer) {
                covered.partly.push((filling.segment, filling.items));
            }
        }
        (cut, covered)
    }

    /// Returns the generations of segments that are being filled. No item is appended to any other generation any more,
    /// and the index has been told of all items in it. Takes the store's locks: must not be called with a lock of an
    /// index held.
    pub fn being_filled(&self) -> Vec<(SegmentId, u64)> {
        // A move of a segment tells the index while it holds this lock.
        let cursor = self.filling.lock();
        let generation = |&buffer: &usize| match &*self.buffers.lock(buffer) {
            Content::Filling(filling) => Some((filling.segment, filling.sequence)),
            _ => None,
        };
        let buffers = cursor.filling.iter().flatten();
        buffers.filter_map(generation).collect()
    }

    /// Stops opening segments, except for copies.
    pub(crate) fn close(&self) {
        self.filling.lock().is_closed = true;
    }

    /// Undoes [`close`](Self::close).
    pub(crate) fn reopen(&self) {
        self.filling.lock().is_closed = false;
        self.pool.space().notify_all();
        self.pool.work().notify_all();
    }

    /// Returns whether every appended item has been written.
    pub(crate) fn is_drained(&self) -> bool {
        let filling = self.filling.lock();
        filling.filling.iter().all(Option::is_none)
            && self.buffers.free_buffers() == self.buffers.count()
    }

    /// Returns the live segments, by rising number, and the sequence number of the next segment to be opened.
    pub(crate) fn live_segments(&self) -> (Vec<SegmentRecord>, u64) {
        // In this order: a segment whose write ends in between is in at least one of the two lists.
        let next_sequence = self.filling.lock().next_sequence.load(Ordering::Acquire);
        let mut live = self.buffers.in_memory();
        live.extend(self.pool.written());
        live.sort_unstable_by_key(|record| record.segment);
        live.dedup_by_key(|record| record.segment);
        live.retain(|record| record.sequence != 0 && record.sequence < next_sequence);
        (live, next_sequence)
    }

    /// Returns the number of items in live segments, dead ones included.
    pub(crate) fn items_placed(&self) -> u64 {
        let (live, _) = self.live_segments();
        live.iter().map(|record| u64::from(record.items)).sum()
    }

    /// Returns the sequence number of the next segment, to be read without a lock.
    pub(crate) fn next_sequence(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.filling.lock().next_sequence)
    }

    /// Takes the next sequence number.
    pub(super) fn take_sequence(&self) -> u64 {
        self.filling.lock().take_sequence()
    }

    /// Returns the stream and the buffer that take the next item of `stream`: the buffer being filled for it, a newly
    /// opened one, or one with longer slots. `None` when there is no space.
    fn buffer_for(
        &self,
        cursor: &mut Cursor,
        stream: usize,
        source: Source,
    ) -> Option<(usize, usize)> {
        let leveling = cursor.layouts.len() + stream;
        let stream = match source {
            Source::Leveling if self.may_level_apart(cursor, leveling) => leveling,
            _ => stream,
        };
        if let Some(buffer) = cursor.filling[stream] {
            return Some((stream, buffer));
        }
        if source == Source::Write
            && cursor.filling[leveling].is_some()
            && self.pool.worn_least() == 0
        {
            // The round of leveling is over.
            cursor.filling.swap(stream, leveling);
            return Some((stream, cursor.filling[stream]?));
        }
        if !self.may_open(cursor, source) {
            return None;
        }
        if cursor.count() >= self.max_filling {
            let (fill, fullest) = cursor.fullest(&self.buffers)?;
            // Longer slots waste less than a segment that is sealed half full.
            if fill < self.table.segment_bytes() / WORTH_SEALING.1 * WORTH_SEALING.0
                && let Some(longer) = cursor.longer_slots(stream)
            {
                return Some(longer);
            }
            // Without a free buffer, one is being written or waits for that: sealing would not help.
            self.buffers.free_buffer_for(source)?;
            self.seal_short(cursor, fullest);
        }
        let buffer = self.open(cursor, stream, source)?;
        Some((stream, buffer))
    }

    /// Returns whether a segment can be opened behind the one being filled. A checkpoint may still take the last one.
    fn has_another(&self, cursor: &Cursor, source: Source) -> bool {
        self.may_open(cursor, source)
            && !self.pool.has_nothing_left()
            && self.buffers.free_buffer_for(source).is_some()
    }

    /// Returns whether another segment may be opened for items of this source.
    fn may_open(&self, cursor: &Cursor, source: Source) -> bool {
        let is_closed = cursor.is_closed && source == Source::Write;
        !is_closed && self.pool.beyond_reserved(source) != Some(0)
    }

    /// Returns whether copies made to level wear have, or may have, a buffer of their own. Such items stay for long:
    /// they belong in blocks that have been erased often, and not among items that are soon overwritten.
    fn may_level_apart(&self, cursor: &Cursor, leveling: usize) -> bool {
        let filling = cursor.count();
        cursor.filling[leveling].is_some() || 2 * filling < self.max_filling
    }

    /// Appends an item of a hashed stream. Calls `placed` with its place before any later append can seal its segment.
    /// Returns `false` when there is no space. Every item has room in an empty segment.
    pub(super) fn append_hashed(
        &self,
        cursor: &mut Cursor,
        stream: usize,
        append: &AppendItem<'_>,
        source: Source,
        mut placed: impl FnMut(Place),
    ) -> bool {
        let streams = cursor.hashed_streams(stream);
        let mut newer_than = 0;
        while let Some((sequence, buffer)) =
            cursor.next_hashed(&self.buffers, streams.clone(), newer_than)
        {
            if self.append_to(buffer, append, source, &mut placed) {
                return true;
            }
            newer_than = sequence + 1;
        }
        let vacant = self.vacate_hashed(cursor, streams, source);
        let opened = vacant.and_then(|vacant| self.open(cursor, vacant, source));
        opened.is_some_and(|buffer| self.append_to(buffer, append, source, &mut placed))
    }

    fn append_to(
        &self,
        buffer: usize,
        append: &AppendItem<'_>,
        source: Source,
        placed: &mut impl FnMut(Place),
    ) -> bool {
        let mut content = self.buffers.lock(buffer);
        let Content::Filling(filling) = &mut *content else {
            unreachable!("the cursor names a buffer that is being filled");
        };
        let Some(position) = filling.append(append, source) else {
            return false;
        };
        let place = Place {
            segment: filling.segment,
            generation: filling.sequence,
            position,
        };
        // Before the index names the item, and so before `count_out` can be called for it.
        self.table.count_in(place.segment);
        placed(place);
        true
    }

    /// Returns one of these streams without an open segment. If all have one, or too many segments are open, the oldest
    /// is sealed. `None` if no segment may be opened.
    fn vacate_hashed(
        &self,
        cursor: &mut Cursor,
        streams: Range<usize>,
        source: Source,
    ) -> Option<usize> {
        if !self.may_open(cursor, source) {
            return None;
        }
        let vacant = streams
            .clone()
            .find(|&stream| cursor.filling[stream].is_none());
        let open = cursor.count();
        if vacant.is_some() && open < self.max_filling {
            return vacant;
        }
        // Without a free buffer, one is being written or waits for that: sealing would not help.
        self.buffers.free_buffer_for(source)?;
        let sealed = match cursor.oldest_hashed(&self.buffers, streams) {
            Some(oldest) => oldest,
            None => cursor.fullest(&self.buffers)?.1,
        };
        if let Content::Filling(filling) = &*self.buffers.lock(cursor.filling[sealed]?)
            && filling.layout() == StreamLayout::Hashed
        {
            cursor.hashed_item_bytes = filling.mean_item_bytes();
        }
        self.seal_short(cursor, sealed);
        Some(vacant.unwrap_or(sealed))
    }

    fn open(&self, cursor: &mut Cursor, stream: usize, source: Source) -> Option<usize> {
        if self.pool.has_nothing_left() {
            let (_, fullest) = cursor.fullest(&self.buffers)?;
            self.seal_short(cursor, fullest);
        }
        // Only the holder of the cursor fills a free buffer.
        let buffer = self.buffers.free_buffer_for(source)?;
        let mut content = self.buffers.lock(buffer);
        let which = match source {
            Source::Leveling => Worn::Most,
            Source::Write | Source::Copy => Worn::Least,
        };
        let segment = self.pool.pop_free(which)?;
        let bytes = match std::mem::replace(&mut *content, Content::Lost) {
            Content::Free(bytes) => bytes,
            _ => AlignedBuf::new(self.table.segment_bytes() as usize),
        };
        let sequence = cursor.take_sequence();
        let stream_of_items = stream % cursor.layouts.len();
        let layout = cursor.layouts[stream_of_items];
        if self.streams.priorities() > 1 {
            self.table
                .set_priority(segment, Priority(stream_of_items as u8));
        }
        let item_bytes = cursor.hashed_item_bytes;
        self.table
            .begin_generation(segment, sequence, layout.slot_bytes(), buffer);
        *content = Content::Filling(Filling::new(
            segment,
            sequence,
            bytes,
            layout,
            self.slot_pages,
            item_bytes,
        ));
        self.buffers.count_taken();
        cursor.filling[stream] = Some(buffer);
        self.counters.segments_opened.add(1);
        if source == Source::Write {
            self.counters.segments_opened_for_writes.add(1);
        }
        self.pool.work().notify_all();
        Some(buffer)
    }

    /// Seals the buffer of a slab class as it is, so that it becomes free once written.
    fn seal_short(&self, cursor: &mut Cursor, stream: usize) {
        if let Some(buffer) = cursor.filling[stream].take() {
            self.seal(&mut self.buffers.lock(buffer), buffer);
        }
    }

    fn seal(&self, content: &mut Content, buffer: usize) {
        let Content::Filling(filling) = std::mem::replace(content, Content::Lost) else {
            unreachable!("only what is being filled is sealed");
        };
        let (segment, for_copies) = (filling.segment, filling.bytes_for_copies());
        let taken_bytes = filling.taken_bytes.into();
        *content = self.finish(filling);
        self.pool.push_sealed(segment, buffer);
        self.counters.segments_sealed.add(1);
        self.counters.bytes_sealed.add(taken_bytes);
        self.counters.bytes_for_copies.add(for_copies);
        self.pool.work().notify_all();
    }

    /// Returns the sealed content of a filled buffer, and notes it in the segment table.
    fn finish(&self, filling: Filling) -> Content {
        let layout = filling.layout();
        let Filling {
            segment,
            items,
            unlisted,
            taken_bytes,
            flushed,
            copied_bytes,
            ..
        } = filling;
        let bytes = Arc::new(filling.finish(self.table.image));
        self.table.seal(segment, items, unlisted, taken_bytes);
        Content::Sealed {
            segment,
            bytes,
            layout,
            flushed,
            copied_bytes,
        }
    }

    /// Moves the items of a segment whose block has gone bad to a free segment, in the same buffer, and queues that to
    /// be written. Moves only entries that `is_current` accepts; calls `moved` with each entry and its new place. In a
    /// hashed segment some items may find no room, and are lost. Returns `false`, with all items lost, if the block is
    /// not bad or no segment is free.
    ///
    /// A reader that had found the old place may miss; it finds the new place when it asks the index again.
    pub(crate) fn move_elsewhere(
        &self,
        failure: &WriteFailure,
        is_current: impl Fn(&SummaryEntry) -> bool,
        mut moved: impl FnMut(&SummaryEntry, Place),
    ) -> bool {
        let lost = &failure.record;
        if !self.blocks.is_bad(lost.segment) {
            return false;
        }
        // Held until the buffer names the new segment: `live_segments` waits for this lock.
        let mut cursor = self.filling.lock();
        let Some(segment) = self.pool.pop_free(Worn::Least) else {
            return false;
        };
        let sequence = cursor.take_sequence();
        let mut content = self.buffers.lock(failure.buffer);
        let (old, layout) = match &*content {
            Content::Sealed { bytes, layout, .. } => (Arc::clone(bytes), *layout),
            _ => unreachable!("a sealed segment stays in its buffer until it is freed"),
        };
        let bytes = AlignedBuf::new(old.len());
        let item_bytes = cursor.hashed_item_bytes;
        let mut filling = Filling::new(
            segment,
            sequence,
            bytes,
            layout,
            self.slot_pages,
            item_bytes,
        );
        let mut placed = Vec::with_capacity(failure.entries.len());
        let current = failure.entries.iter().filter(|entry| is_current(entry));
        let mut items: Vec<_> = current
            .filter_map(|entry| {
                let offset = Position::from_bits(entry.position.get()).offset();
                let item = ItemRef::decode(&old[offset as usize..], lost.sequence, offset);
                Some((entry, item.ok()?))
            })
            .collect();
        if layout == StreamLayout::Hashed {
            // Longest first: shorter items find room more easily.
            items.sort_by_key(|(_, item)| Reverse(item.flash_bytes()));
        }
        for (entry, item) in items {
            let hash = KeyHash(entry.hash.get());
            let append = AppendItem {
                hash,
                item,
                priority: Priority::LOWEST,
                is_listed: true,
            };
            if let Some(position) = filling.append(&append, Source::Copy) {
                placed.push((entry, position));
            }
        }
        self.table
            .set_priority(segment, self.table.priority(lost.segment));
        self.table
            .begin_generation(segment, sequence, lost.slot_bytes, failure.buffer);
        *content = self.finish(filling);
        self.table.leave_buffer(lost.segment);
        // A reader that goes to the bad block from here on finds that the index names the new place.
        for (entry, position) in placed {
            self.table.count_in(segment);
            let place = Place {
                segment,
                generation: sequence,
                position,
            };
            moved(entry, place);
        }
        // Not earlier: while this lock is free, the index knows every appended item.
        drop(cursor);
        drop(content);
        self.pool.push_sealed(segment, failure.buffer);
        self.counters.segments_moved.add(1);
        self.pool.work().notify_all();
        true
    }
}

/// An [`Appender`] to which no other thread appends meanwhile.
pub(crate) struct Appending<'a> {
    appender: &'a Appender,
    cursor: MutexGuard<'a, Cursor>,
}

impl Appending<'_> {
    /// Appends `items` in order, as long as `behind` bytes of further items find space as well. Calls `placed` with the place of
    /// each before any later append can seal its segment. Returns the number of items appended: fewer than all when there is no
    /// space, and then [`space`](SegmentPool::space) tells when to try again.
    ///
    /// An item longer than [`largest_item`](crate::format::segment::largest_item) never fits: the caller has checked
    /// that.
    pub(crate) fn append(
        &mut self,
        items: &[AppendItem<'_>],
        source: Source,
        behind: u32,
        mut placed: impl FnMut(usize, Place),
    ) -> usize {
        let (appender, cursor) = (self.appender, &mut *self.cursor);
        if appender.pool.beyond_reserved(source).is_none() {
            return 0;
        }
        let (mut done, mut is_full) = (0, false);
        while done < items.len() && !is_full {
            let wanted = appender.streams.stream_of(&items[done], source);
            if cursor.layouts[wanted] == StreamLayout::Hashed {
                let append = &items[done];
                let placed = |place| placed(done, place);
                if !appender.append_hashed(cursor, wanted, append, source, placed) {
                    break;
                }
                done += 1;
                continue;
            }
            let Some((stream, buffer)) = appender.buffer_for(cursor, wanted, source) else {
                break;
            };
            let kept_free = match behind > 0 && !appender.has_another(cursor, source) {
                true => behind,
                false => 0,
            };
            let (buffers, filled) = (&appender.buffers, cursor.count());
            let are_written = buffers.count() > buffers.free_buffers() + filled;
            let mut content = buffers.lock(buffer);
            let Content::Filling(filling) = &mut *content else {
                unreachable!("the cursor names a buffer that is being filled");
            };
            if kept_free > 0 && done == 0 && are_written && !filling.has_room_for(items, kept_free)
            {
                // A part of the items would make a run of its own. A buffer becomes free before long.
                break;
            }
            let (segment, generation) = (filling.segment, filling.sequence);
            let is_wanted =
                |item: &&AppendItem<'_>| appender.streams.stream_of(item, source) == wanted;
            while let Some(append) = items.get(done).filter(is_wanted) {
                if kept_free > 0 && !filling.has_room_for(&[*append], kept_free) {
                    is_full = true;
                    break;
                }
                let Some(position) = filling.append(append, source) else {
                    appender.seal(&mut content, buffer);
                    cursor.filling[stream] = None;
                    break;
                };
                // Before the index names the item, and so before `count_out` can be called for it.
                appender.table.count_in(segment);
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
        appender.counters.items_appended.add(done as u64);
        done
    }
}
