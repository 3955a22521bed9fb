//! Appending to hashed segments: an item goes to the oldest of several open segments that has room for it.
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

use std::ops::Range;

use super::core::{Content, SegmentStore};
use super::filling::Cursor;
use super::layout::{AppendItem, Source, StreamLayout};
use crate::format::location::Place;

impl SegmentStore {
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
        let streams = self.hashed_streams(stream);
        let mut newer_than = 0;
        while let Some((sequence, buffer)) = self.next_hashed(cursor, streams.clone(), newer_than) {
            if self.append_to(buffer, append, source, &mut placed) {
                return true;
            }
            newer_than = sequence + 1;
        }
        let vacant = self.vacate_hashed(cursor, streams, source);
        let opened = vacant.and_then(|vacant| self.open(cursor, vacant, source));
        opened.is_some_and(|buffer| self.append_to(buffer, append, source, &mut placed))
    }

    /// Returns `stream` and the hashed streams that follow it: they share their open segments.
    fn hashed_streams(&self, stream: usize) -> Range<usize> {
        let layouts = self.layouts[stream..].iter();
        let others = layouts.take_while(|&&layout| layout == StreamLayout::Hashed);
        stream..stream + others.count()
    }

    /// Returns the oldest open segment of these streams whose sequence number is at least `from`, and its buffer.
    fn next_hashed(
        &self,
        cursor: &Cursor,
        streams: Range<usize>,
        from: u64,
    ) -> Option<(u64, usize)> {
        let open = cursor.filling[streams].iter().flatten();
        open.filter_map(|&buffer| match &*self.buffers[buffer].lock() {
            Content::Filling(filling) if filling.sequence >= from => {
                Some((filling.sequence, buffer))
            }
            _ => None,
        })
        .min()
    }

    /// Returns the stream with the oldest open hashed segment among `streams`.
    pub(super) fn oldest_hashed(&self, cursor: &Cursor, streams: Range<usize>) -> Option<usize> {
        let sequence = |stream: usize| match &*self.buffers[cursor.filling[stream]?].lock() {
            Content::Filling(filling) if filling.layout() == StreamLayout::Hashed => {
                Some((filling.sequence, stream))
            }
            _ => None,
        };
        streams.filter_map(sequence).min().map(|(_, stream)| stream)
    }

    fn append_to(
        &self,
        buffer: usize,
        append: &AppendItem<'_>,
        source: Source,
        placed: &mut impl FnMut(Place),
    ) -> bool {
        let mut content = self.buffers[buffer].lock();
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
        self.count_in(place.segment);
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
        let open = cursor.filling.iter().flatten().count();
        if vacant.is_some() && open < self.max_filling {
            return vacant;
        }
        // Without a free buffer, one is being written or waits for that: sealing would not help.
        self.free_buffer_for(source)?;
        let sealed = match self.oldest_hashed(cursor, streams) {
            Some(oldest) => oldest,
            None => self.fullest(cursor)?.1,
        };
        if let Content::Filling(filling) = &*self.buffers[cursor.filling[sealed]?].lock()
            && filling.layout() == StreamLayout::Hashed
        {
            cursor.hashed_item_bytes = filling.mean_item_bytes();
        }
        self.seal_short(cursor, sealed);
        Some(vacant.unwrap_or(sealed))
    }
}
