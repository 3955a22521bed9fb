//! [`Buffers`]: the segments in memory.

use std::collections::HashMap;
use std::sync::Arc;

use device::AlignedBuf;

use super::failure::WriteFailure;
use super::filling::{Filling, Flushed};
use super::layout::{Source, StreamLayout};
use super::segment::SegmentRecord;
use super::table::{SegmentPin, SegmentTable};
use crate::format::segment::{SegmentId, SummaryEntry, decode_tail};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Part of the buffers that copies leave to writes, as a fraction with this denominator.
const SHARE_FOR_WRITES: usize = 8;

/// The content of a buffer.
pub(super) enum Content {
    Free(AlignedBuf),
    Filling(Filling),
    Sealed {
        segment: SegmentId,
        bytes: Arc<AlignedBuf>,
        layout: StreamLayout,
        flushed: Flushed,
        /// Bytes taken by copies made by reclaim.
        copied_bytes: u32,
    },
    /// No bytes: none have been allocated yet, or the device still holds them. The next use allocates new ones.
    Lost,
}

impl Content {
    /// Returns the bytes of a sealed segment.
    fn sealed(&self) -> Option<Arc<AlignedBuf>> {
        match self {
            Self::Sealed { bytes, .. } => Some(Arc::clone(bytes)),
            _ => None,
        }
    }

    /// Returns the part of the segment that is on flash, if the buffer holds one.
    pub(super) fn flushed(&mut self) -> Option<&mut Flushed> {
        match self {
            Self::Filling(filling) => Some(&mut filling.flushed),
            Self::Sealed { flushed, .. } => Some(flushed),
            Self::Free(_) | Self::Lost => None,
        }
    }

    /// Returns the bytes of copies made by reclaim that are not on flash.
    pub(super) fn unwritten_copies(&self) -> UnwrittenBytes {
        let mut unwritten = UnwrittenBytes::default();
        match self {
            Self::Filling(filling) => {
                let flushed = filling.flushed.copied_bytes;
                unwritten.filling = u64::from(filling.copied_bytes - flushed);
            }
            Self::Sealed {
                flushed,
                copied_bytes,
                ..
            } => unwritten.sealed = u64::from(copied_bytes - flushed.copied_bytes),
            Self::Free(_) | Self::Lost => {}
        }
        unwritten
    }
}

/// Bytes of copies made by reclaim that are not on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnwrittenBytes {
    /// In segments that are being filled.
    pub(crate) filling: u64,
    /// In sealed segments, segments being written included.
    pub(crate) sealed: u64,
}

/// Use of the segments by items that are not dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Number of items in segments, dead ones left out.
    pub items: u64,
    /// Bytes of these items, their slots and their summary entries.
    pub bytes: u64,
    /// Unix second in which the oldest segment with such items was sealed, among the segments sealed in this run.
    pub oldest: Option<u32>,
}

/// The buffers of a store, each with the bytes of one segment behind a lock of its own.
///
/// A buffer counted as free is free, or will be when its lock is released; only the holder of the `filling` lock takes
/// one. A segment whose table entry names a buffer lies in that buffer, or left it under the buffer's lock.
pub struct Buffers {
    contents: Box<[Mutex<Content>]>,
    /// Number of free buffers.
    free: AtomicUsize,
    table: Arc<SegmentTable>,
}

impl Buffers {
    pub(super) fn new(buffers: usize, table: Arc<SegmentTable>) -> Self {
        Self {
            contents: (0..buffers).map(|_| Mutex::new(Content::Lost)).collect(),
            free: AtomicUsize::new(buffers),
            table,
        }
    }

    /// Returns the number of segments that may be in memory at once.
    pub(crate) fn count(&self) -> usize {
        self.contents.len()
    }

    /// Locks a buffer.
    pub(super) fn lock(&self, buffer: usize) -> MutexGuard<'_, Content> {
        self.contents[buffer].lock()
    }

    /// Returns the bytes of a segment that could not be written.
    pub(crate) fn bytes_of(&self, failure: &WriteFailure) -> Option<Arc<AlignedBuf>> {
        self.lock(failure.buffer).sealed()
    }

    /// Returns the number of free buffers.
    pub(crate) fn free_buffers(&self) -> usize {
        self.free.load(Ordering::Acquire)
    }

    /// Returns whether copies that gain space find a free buffer.
    pub(crate) fn has_buffer_for_copies(&self) -> bool {
        self.free_buffers() > self.buffers_for_writes()
    }

    /// Returns the number of buffers that copies leave to writes.
    pub(crate) fn buffers_for_writes(&self) -> usize {
        self.contents.len() / SHARE_FOR_WRITES
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
        let mut free = self.contents.iter().enumerate().filter_map(free);
        free.nth(left_to_others)
    }

    /// Counts a free buffer as taken.
    pub(super) fn count_taken(&self) {
        self.free.fetch_sub(1, Ordering::AcqRel);
    }

    /// Frees the buffer of a sealed segment.
    pub(super) fn free_buffer(&self, segment: SegmentId, buffer: usize) {
        let mut content = self.contents[buffer].lock();
        self.table.leave_buffer(segment);
        let Content::Sealed { bytes, .. } = std::mem::replace(&mut *content, Content::Lost) else {
            unreachable!("a sealed segment stays in its buffer until it is freed");
        };
        // The device may still hold a reference for a moment; the next use then makes a new buffer.
        if let Ok(bytes) = Arc::try_unwrap(bytes) {
            *content = Content::Free(bytes);
        }
        self.free.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the buffer of the pinned segment; `None` when the segment has no buffer any more.
    fn content_of(&self, pin: &SegmentPin<'_>) -> Option<MutexGuard<'_, Content>> {
        let content = self.contents[self.table.buffer_of(pin.segment)?].lock();
        let segment = match &*content {
            Content::Filling(filling) => Some(filling.segment),
            Content::Sealed { segment, .. } => Some(*segment),
            Content::Free(_) | Content::Lost => None,
        };
        // Otherwise the segment has been written since, and the buffer belongs to another one.
        (segment == Some(pin.segment)).then_some(content)
    }

    /// Returns whether the pinned segment is in a buffer.
    pub(crate) fn is_in_memory(&self, pin: &SegmentPin<'_>) -> bool {
        self.content_of(pin).is_some()
    }

    /// Copies whole pages of the pinned segment; `None` when they are not in memory any more.
    pub(super) fn buffered(
        &self,
        pin: &SegmentPin<'_>,
        offset: u32,
        len: usize,
    ) -> Option<AlignedBuf> {
        let content = self.content_of(pin)?;
        let bytes: &[u8] = match &*content {
            Content::Filling(filling) => &filling.bytes,
            Content::Sealed { bytes, .. } => bytes,
            Content::Free(_) | Content::Lost => return None,
        };
        let mut copy = AlignedBuf::new(len);
        let whole = copy.len();
        copy.copy_from_slice(&bytes[offset as usize..][..whole]);
        Some(copy)
    }

    /// Returns the summary of a pinned segment in memory; `None` when it is not there any more.
    pub(crate) fn summary_in_memory(&self, pin: &SegmentPin<'_>) -> Option<Vec<SummaryEntry>> {
        match &*self.content_of(pin)? {
            Content::Filling(filling) => Some(filling.entries()),
            Content::Sealed { segment, bytes, .. } => {
                decode_tail(bytes, segment.0, pin.sequence, self.table.segment_bytes())
                    .ok()
                    .map(|(_, entries)| entries)
            }
            Content::Free(_) | Content::Lost => None,
        }
    }

    /// Returns the records of the segments in memory, segments being filled included.
    pub(crate) fn in_memory(&self) -> Vec<SegmentRecord> {
        let segment = |buffer: &Mutex<Content>| match &*buffer.lock() {
            Content::Filling(filling) => Some((filling.segment, filling.items)),
            Content::Sealed { segment, .. } => Some((*segment, 0)),
            Content::Free(_) | Content::Lost => None,
        };
        let in_buffers = self.contents.iter().filter_map(segment);
        let record = |(segment, items)| {
            let mut record = self.table.record(segment);
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
                Content::Filling(filling) => (filling.segment, filling.items + filling.unlisted),
                Content::Sealed { segment, .. } => {
                    let listed = self.table.record(*segment).items;
                    (*segment, listed + self.table.unlisted.of(*segment))
                }
                Content::Free(_) | Content::Lost => return 0,
            };
            let flushed = content.flushed();
            let flushed = flushed.map_or(0, |flushed| flushed.items + flushed.unlisted);
            let live = self.table.valid_items(segment);
            u64::from(live.min(items - flushed))
        };
        self.contents.iter().map(unwritten).sum()
    }

    /// Returns the bytes of copies made by reclaim that are not on flash.
    pub(crate) fn unwritten_copies(&self) -> UnwrittenBytes {
        let mut sum = UnwrittenBytes::default();
        for buffer in &self.contents {
            let of_buffer = buffer.lock().unwritten_copies();
            sum.filling += of_buffer.filling;
            sum.sealed += of_buffer.sealed;
        }
        sum
    }

    /// Estimates the items in segments that the index names and no flush of the cache has made dead. The bytes follow
    /// from the average item of each segment.
    pub fn in_use(&self) -> StoreUse {
        let mut filling = HashMap::new();
        for buffer in &self.contents {
            if let Content::Filling(open) = &*buffer.lock() {
                let items = open.items + open.unlisted;
                filling.insert(open.segment, (items, open.taken_bytes));
            }
        }
        let mut sum = StoreUse::default();
        for segment in (0..self.table.segments()).map(SegmentId) {
            let Some(held) = self.table.use_of(segment) else {
                continue;
            };
            let live = u64::from(held.live);
            let (items, bytes) = match (held.items, held.item_bytes) {
                (0, _) => filling.remove(&segment).unwrap_or_default(),
                sealed => sealed,
            };
            sum.oldest = self
                .table
                .sealed_at(segment)
                .into_iter()
                .chain(sum.oldest)
                .min();
            sum.items += live;
            sum.bytes += live * u64::from(bytes) / u64::from(items.max(1));
        }
        sum
    }

    /// Returns whether sealed segments that were opened before this sequence number wait to be written.
    pub(crate) fn has_sealed_before(&self, sequence: u64) -> bool {
        self.contents.iter().any(|buffer| {
            matches!(&*buffer.lock(), Content::Sealed { segment, .. } if self.table.sequence(*segment) < sequence)
        })
    }

    /// Returns whether a segment being filled was opened before this sequence number.
    pub(super) fn is_filling_before(&self, sequence: u64) -> bool {
        self.contents.iter().any(|buffer| {
            matches!(&*buffer.lock(), Content::Filling(filling) if filling.sequence < sequence)
        })
    }

    /// Returns the sealed segments with copies made by reclaim that are not on flash, oldest first, and their buffers.
    pub(super) fn sealed_with_copies(&self) -> Vec<(SegmentId, usize)> {
        let with_copies = |(number, buffer): (usize, &Mutex<Content>)| match &*buffer.lock() {
            content @ Content::Sealed { segment, .. } if content.unwritten_copies().sealed > 0 => {
                Some((self.table.sequence(*segment), *segment, number))
            }
            _ => None,
        };
        let buffers = self.contents.iter().enumerate();
        let mut sealed: Vec<_> = buffers.filter_map(with_copies).collect();
        sealed.sort_unstable();
        let sealed = sealed.into_iter();
        sealed
            .map(|(_, segment, buffer)| (segment, buffer))
            .collect()
    }

    /// Notes that a whole sealed segment has been written. `forgotten` is the count of failed syncs when the write
    /// began.
    pub(super) fn note_whole(&self, segment: SegmentId, buffer: usize, forgotten: u32) {
        let (items, unlisted) = (
            self.table.record(segment).items,
            self.table.unlisted.of(segment),
        );
        if let Content::Sealed {
            bytes,
            flushed,
            copied_bytes,
            ..
        } = &mut *self.contents[buffer].lock()
        {
            flushed.is_begun = true;
            // Otherwise a sync has failed since, and may have lost a part of it.
            if flushed.forgotten == forgotten {
                *flushed = Flushed {
                    items,
                    unlisted,
                    data_bytes: bytes.len() as u32,
                    copied_bytes: *copied_bytes,
                    is_begun: true,
                    is_whole: true,
                    forgotten,
                };
            }
        }
    }

    /// Marks the flushed part of every segment to be written again, after a failed sync.
    pub(super) fn forget_flushed(&self) {
        for buffer in &self.contents {
            if let Some(flushed) = buffer.lock().flushed() {
                flushed.forget();
            }
        }
    }
}
