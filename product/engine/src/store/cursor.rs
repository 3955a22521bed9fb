//! [`Cursor`]: the list of buffers being filled, and the choice among them.

use std::ops::Range;
use std::sync::Arc;

use super::buffers::{Buffers, Content};
use super::layout::StreamLayout;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Maximum ratio between the slots that an item is put into and the slots of its stream.
const MOST_WASTE: u32 = 4;

/// Mean bytes of an item before any hashed segment has been sealed: the mean of Flashield's trace (section 3.4) with a
/// header.
const FIRST_HASHED_ITEM_BYTES: u32 = 288;

/// The buffers being filled, and the next sequence number. Behind the `filling` lock.
///
/// Each buffer named here is being filled, and no other buffer is.
pub(super) struct Cursor {
    /// The layout of each stream.
    pub(super) layouts: Box<[StreamLayout]>,
    /// The buffer of each stream, followed by the buffer of each stream for copies made to level wear.
    pub(super) filling: Box<[Option<usize>]>,
    /// Shared with the journal, which reads it.
    pub(super) next_sequence: Arc<AtomicU64>,
    /// Whether no segment is opened for writes any more.
    pub(super) is_closed: bool,
    /// Mean bytes of an item in the hashed segment sealed last: the estimate for the next hashed segments.
    pub(super) hashed_item_bytes: u32,
}

impl Cursor {
    pub(super) fn new(layouts: Box<[StreamLayout]>, first_sequence: u64) -> Self {
        Self {
            filling: vec![None; 2 * layouts.len()].into(),
            layouts,
            next_sequence: Arc::new(AtomicU64::new(first_sequence)),
            is_closed: false,
            hashed_item_bytes: FIRST_HASHED_ITEM_BYTES,
        }
    }

    pub(super) fn take_sequence(&mut self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::AcqRel)
    }

    /// Returns the number of buffers being filled.
    pub(super) fn count(&self) -> usize {
        self.filling.iter().flatten().count()
    }

    /// Returns the stream and the buffer of the shortest slots being filled that are longer than those of `stream`, at
    /// most by the factor [`MOST_WASTE`].
    pub(super) fn longer_slots(&self, stream: usize) -> Option<(usize, usize)> {
        let stream = stream % self.layouts.len();
        let most = self.layouts[stream].slot_bytes().saturating_mul(MOST_WASTE);
        (stream + 1..self.layouts.len())
            .take_while(|&longer| self.layouts[longer].slot_bytes() <= most)
            .find_map(|longer| Some((longer, self.filling[longer]?)))
    }

    /// Returns the slab class to seal short, and the filled bytes of its buffer: the fullest class whose items can go
    /// into longer slots, because the others would soon need a buffer again. If there is no such class, the fullest of
    /// all.
    pub(super) fn fullest(&self, buffers: &Buffers) -> Option<(u32, usize)> {
        let fill = |(stream, buffer): (usize, &Option<usize>)| match &*buffers.lock((*buffer)?) {
            Content::Filling(filling) => Some((
                self.longer_slots(stream).is_some(),
                filling.filled_bytes(),
                stream,
            )),
            _ => None,
        };
        let (_, bytes, stream) = self.filling.iter().enumerate().filter_map(fill).max()?;
        Some((bytes, stream))
    }

    /// Returns `stream` and the hashed streams that follow it: they share their open segments.
    pub(super) fn hashed_streams(&self, stream: usize) -> Range<usize> {
        let layouts = self.layouts[stream..].iter();
        let others = layouts.take_while(|&&layout| layout == StreamLayout::Hashed);
        stream..stream + others.count()
    }

    /// Returns the oldest open segment of these streams whose sequence number is at least `from`, and its buffer.
    pub(super) fn next_hashed(
        &self,
        buffers: &Buffers,
        streams: Range<usize>,
        from: u64,
    ) -> Option<(u64, usize)> {
        let open = self.filling[streams].iter().flatten();
        open.filter_map(|&buffer| match &*buffers.lock(buffer) {
            Content::Filling(filling) if filling.sequence >= from => {
                Some((filling.sequence, buffer))
            }
            _ => None,
        })
        .min()
    }

    /// Returns the stream with the oldest open hashed segment among `streams`.
    pub(super) fn oldest_hashed(&self, buffers: &Buffers, streams: Range<usize>) -> Option<usize> {
        let sequence = |stream: usize| match &*buffers.lock(self.filling[stream]?) {
            Content::Filling(filling) if filling.layout() == StreamLayout::Hashed => {
                Some((filling.sequence, stream))
            }
            _ => None,
        };
        streams.filter_map(sequence).min().map(|(_, stream)| stream)
    }
}
