//! Writing: sealed segments go to flash in chunks of [`StoreConfig::write_bytes`](super::StoreConfig).
//!
//! A segment whose block fails during the write goes from its buffer to another block: no accepted item is lost with a
//! block (`DIDACache`, TOS 2018, section 4.2, bad block management).

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, BlockHealth, DeviceError, SharedBuf};
use futures_util::future::join;
use futures_util::stream::{self, StreamExt};
use runtime::work::{self, Work};

use super::core::{Content, SegmentStore, block, commands};
use super::filling::{Filling, Flushed};
use super::layout::{AppendItem, Source, StreamLayout};
use super::priority::Priority;
use super::queues::Queues;
use super::queues::Worn;
use super::segment::{MAX_FAILURES, SegmentRecord};
use crate::counter::Count as _;
use crate::format::item::ItemRef;
use crate::format::location::Place;
use crate::format::segment::{
    Footer, PAGE_BYTES, Position, SegmentId, SegmentKind, SummaryEntry, decode_tail,
};
use crate::key::KeyHash;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Footers read concurrently when an image is opened.
const SCAN_DEPTH: usize = 64;

/// The segments found from the last pages of all segments.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Segments that hold items, in a generation not below the floor, oldest first.
    pub found: Vec<SegmentRecord>,
    /// Segments whose last page cannot be read.
    pub unreadable: Vec<SegmentId>,
}

/// A segment that could not be written, and never will be. Its items are lost unless they are moved: the caller removes
/// them from the index, then calls [`SegmentStore::abandon`].
#[derive(Debug)]
pub(crate) struct WriteFailure {
    /// The segment and its lost generation.
    pub record: SegmentRecord,
    /// The summary entries of its items.
    pub entries: Vec<SummaryEntry>,
    pub error: DeviceError,
    pub(super) buffer: usize,
}

impl SegmentStore {
    /// Writes a sealed segment, the oldest of the least loaded channel, and returns its id. `None` when none waits.
    ///
    /// The last write, which carries the footer, waits for `ahead`. Records that must be durable before the items of
    /// the segment are must be so when `ahead` resolves.
    ///
    /// Segments become reclaimable in the order in which their writes end.
    pub(crate) async fn write_next(
        &self,
        ahead: impl AsyncFnOnce(),
    ) -> Option<Result<SegmentId, WriteFailure>> {
        let (segment, buffer) = self.queues.lock().pop_sealed()?;
        let written = self.write_whole(segment, buffer, ahead).await;
        Some(written.map(|()| {
            // In this order: a search for live segments finds it in the buffer or among the written segments.
            let mut queues = self.queues.lock();
            queues.push_written(segment);
            let moved = |moved, to| self.set_priority(moved, to);
            let priority = self.priority(segment);
            queues.priorities.enter(segment, priority, moved);
            drop(queues);
            self.free_buffer(segment, buffer);
            self.space.notify_all();
            self.work.notify_all();
            segment
        }))
    }

    /// Writes the oldest sealed segment with copies made by reclaim that are not on flash. The segment stays in its
    /// buffer and is read from there until the buffer is needed. `None` if no such segment waits to be written. `ahead`
    /// as for [`write_next`](SegmentStore::write_next).
    pub(crate) async fn write_copies(
        &self,
        ahead: impl AsyncFnOnce(),
    ) -> Option<Result<SegmentId, WriteFailure>> {
        let (segment, buffer) = self.take_sealed_with_copies()?;
        let written = self.write_whole(segment, buffer, ahead).await;
        Some(written.map(|()| {
            self.queues.lock().put_back_sealed(segment, buffer);
            self.work.notify_all();
            segment
        }))
    }

    fn take_sealed_with_copies(&self) -> Option<(SegmentId, usize)> {
        let with_copies = |(number, buffer): (usize, &Mutex<Content>)| match &*buffer.lock() {
            content @ Content::Sealed { segment, .. } if content.unwritten_copies().sealed > 0 => {
                Some((self.sequence(*segment), *segment, number))
            }
            _ => None,
        };
        let buffers = self.buffers.iter().enumerate();
        let mut sealed: Vec<_> = buffers.filter_map(with_copies).collect();
        sealed.sort_unstable();
        let mut queues = self.queues.lock();
        let mut sealed = sealed.into_iter();
        let (_, segment, buffer) = sealed.find(|&(_, segment, _)| queues.take_sealed(segment))?;
        Some((segment, buffer))
    }

    /// Writes the part of a sealed segment that is not on flash. The segment has been taken from its queue.
    async fn write_whole(
        &self,
        segment: SegmentId,
        buffer: usize,
        ahead: impl AsyncFnOnce(),
    ) -> Result<(), WriteFailure> {
        if self.flash.can_overwrite() {
            // A flush of the segment may still be under way, with a footer that counts fewer items.
            drop(self.flushing.acquire().await);
        }
        let (bytes, flushed) = match &*self.buffers[buffer].lock() {
            Content::Sealed { bytes, flushed, .. } => (Arc::clone(bytes), *flushed),
            _ => unreachable!("a sealed segment stays in its buffer until it is written"),
        };
        if flushed.is_whole {
            return Ok(());
        }
        let written = if flushed.is_begun {
            self.program_rest(segment, &bytes, flushed, ahead()).await
        } else {
            self.program(segment, &bytes, ahead()).await
        };
        match written {
            Ok(()) => {
                self.segment(segment).failures.store(0, Ordering::Relaxed);
                self.counters.segments_written.add(1);
                self.note_whole(segment, buffer, flushed.forgotten);
                Ok(())
            }
            Err(error) => {
                self.counters.write_errors.add(1);
                let record = self.record(segment);
                let (_, entries) =
                    decode_tail(&bytes, segment.0, record.sequence, self.segment_bytes)
                        .expect("the summary was sealed in this buffer");
                Err(WriteFailure {
                    record,
                    entries,
                    error,
                    buffer,
                })
            }
        }
    }

    /// Notes that a whole sealed segment has been written. `forgotten` is the count of failed syncs when the write
    /// began.
    fn note_whole(&self, segment: SegmentId, buffer: usize, forgotten: u32) {
        let items = self.record(segment).items;
        if let Content::Sealed {
            bytes,
            flushed,
            copied_bytes,
            ..
        } = &mut *self.buffers[buffer].lock()
        {
            flushed.is_begun = true;
            // Otherwise a sync has failed since, and may have lost a part of it.
            if flushed.forgotten == forgotten {
                *flushed = Flushed {
                    items,
                    data_bytes: bytes.len() as u32,
                    copied_bytes: *copied_bytes,
                    is_begun: true,
                    is_whole: true,
                    forgotten,
                };
            }
        }
    }

    async fn program(
        &self,
        segment: SegmentId,
        bytes: &Arc<AlignedBuf>,
        ahead: impl Future<Output = ()>,
    ) -> Result<(), DeviceError> {
        self.erase(segment).await?;
        let page_bytes = self.flash.geometry().page_bytes as usize;
        let program = |start: usize| {
            let end = (start + self.write_bytes).min(bytes.len());
            let data = SharedBuf::new(Arc::clone(bytes), start..end);
            self.program_at(segment, (start / page_bytes) as u32, data)
        };
        let last = (bytes.len() - 1) / self.write_bytes * self.write_bytes;
        let others = async {
            for start in (0..last).step_by(self.write_bytes) {
                program(start).await?;
            }
            Ok(())
        };
        let (written, ()) = join(others, ahead).await;
        written?;
        program(last).await
    }

    pub(super) async fn erase(&self, segment: SegmentId) -> Result<(), DeviceError> {
        work::count(Work::DeviceCommand, 1);
        let begun = runtime::now();
        self.flash.erase(block(segment)).await?;
        self.counters.erases.add(1);
        let is_first = self.erase_count(segment) <= 1;
        self.counters.erases_of_use.add(u64::from(!is_first));
        self.erase_time.add(runtime::now().since(begun));
        Ok(())
    }

    /// Returns the EWMA of the time of an erase.
    pub(crate) fn erase_time(&self) -> Duration {
        self.erase_time.get()
    }

    /// Programs the next pages of a segment.
    pub(super) async fn program_at(
        &self,
        segment: SegmentId,
        first_page: u32,
        data: SharedBuf,
    ) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        let before = u64::from(first_page) * u64::from(self.flash.geometry().page_bytes);
        let begun = commands(before + bytes) - commands(before);
        work::count(Work::DeviceCommand, begun);
        self.flash.program(block(segment), first_page, data).await?;
        self.counters.bytes_written.add(bytes);
        Ok(())
    }

    fn free_buffer(&self, segment: SegmentId, buffer: usize) {
        let mut content = self.buffers[buffer].lock();
        self.segment(segment).buffer.store(0, Ordering::Release);
        let Content::Sealed { bytes, .. } = std::mem::replace(&mut *content, Content::Lost) else {
            unreachable!("a sealed segment stays in its buffer until it is freed");
        };
        // The device may still hold a reference for a moment; the next use then makes a new buffer.
        if let Ok(bytes) = Arc::try_unwrap(bytes) {
            *content = Content::Free(bytes);
        }
        self.free_buffers.fetch_add(1, Ordering::AcqRel);
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
        if !self.is_bad(lost.segment) {
            return false;
        }
        // Held until the buffer names the new segment: `live_segments` waits for this lock.
        let mut cursor = self.filling.lock();
        let Some(segment) = self.pop_free(Worn::Least) else {
            return false;
        };
        let sequence = cursor.take_sequence();
        let mut content = self.buffers[failure.buffer].lock();
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
            };
            if let Some(position) = filling.append(&append, Source::Copy) {
                placed.push((entry, position));
            }
        }
        self.set_priority(segment, self.priority(lost.segment));
        self.begin_generation(segment, sequence, lost.slot_bytes, failure.buffer);
        *content = self.finish(filling);
        let lost = self.segment(lost.segment);
        lost.buffer.store(0, Ordering::Release);
        // A reader that goes to the bad block from here on finds that the index names the new place.
        for (entry, position) in placed {
            self.count_in(segment);
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
        self.queues.lock().push_sealed(segment, failure.buffer);
        self.counters.segments_moved.add(1);
        self.work.notify_all();
        true
    }

    /// Gives up a segment whose write failed and that no index names any more. Frees its buffer, unless the items were
    /// moved. Retires the segment if its block is bad or [`MAX_FAILURES`] writes in a row have failed; otherwise it
    /// becomes free. A full device does not count as a failure of the segment. Returns whether the segment was retired.
    pub(crate) async fn abandon(&self, failure: WriteFailure, is_moved: bool) -> bool {
        let segment = failure.record.segment;
        if !is_moved {
            self.free_buffer(segment, failure.buffer);
        }
        let counted = u8::from(!failure.error.is_full());
        let failures = &self.segment(segment).failures;
        let failures = failures.fetch_add(counted, Ordering::Relaxed) + counted;
        let is_retired = self.is_bad(segment) || failures >= MAX_FAILURES;
        self.end_generation(segment).await;
        let mut queues = self.queues.lock();
        queues.end_write(segment);
        if is_retired {
            self.retire(&mut queues, segment);
        } else {
            self.push_free(&mut queues, segment);
        }
        drop(queues);
        self.space.notify_all();
        is_retired
    }

    /// Returns whether the block of a segment has gone bad.
    pub(super) fn is_bad(&self, segment: SegmentId) -> bool {
        self.flash.health(block(segment)) == BlockHealth::Bad
    }

    /// Adds a segment to those that are not used again.
    fn retire(&self, queues: &mut Queues, segment: SegmentId) {
        queues.retired.push(segment);
        self.counters.segments_retired.add(1);
    }

    /// Returns whether every segment is retired or belongs to a checkpoint: there is no space, and will be none.
    pub fn is_exhausted(&self) -> bool {
        self.queues.lock().channels_in_use() == 0
    }

    /// Takes over the segments of an earlier run: the live ones, oldest first, those of its checkpoint, and the retired
    /// ones.
    pub(crate) fn adopt(
        &self,
        living: &[SegmentRecord],
        checkpoint: &[SegmentId],
        retired: impl Iterator<Item = SegmentId>,
    ) {
        let mut taken: HashSet<SegmentId> = checkpoint.iter().copied().collect();
        let mut queues = self.queues.lock();
        taken.extend(&queues.retired);
        for segment in retired {
            if segment.0 < self.segments() && taken.insert(segment) {
                self.retire(&mut queues, segment);
            }
        }
        for record in living {
            if taken.insert(record.segment) {
                let state = self.segment(record.segment);
                state.sequence.store(record.sequence, Ordering::Release);
                state.items.store(record.items, Ordering::Release);
                state.slot_bytes.store(record.slot_bytes, Ordering::Release);
                state.data_bytes.store(record.data_bytes, Ordering::Release);
                queues.adopt_written(record.segment);
                queues.is_first_fill = false;
                queues
                    .priorities
                    .enter(record.segment, Priority::LOWEST, |_, _| ());
            }
        }
        queues.retain_free(|segment| !taken.contains(&segment));
    }

    /// Returns the live segments, by rising number, and the sequence number of the next segment to be opened.
    pub(crate) fn live_segments(&self) -> (Vec<SegmentRecord>, u64) {
        // In this order: a segment whose write ends in between is in at least one of the two lists.
        let next_sequence = self.filling.lock().next_sequence.load(Ordering::Acquire);
        let mut live = self.in_memory();
        live.extend(self.written());
        live.sort_unstable_by_key(|record| record.segment);
        live.dedup_by_key(|record| record.segment);
        live.retain(|record| record.sequence != 0 && record.sequence < next_sequence);
        (live, next_sequence)
    }

    /// Returns the sequence number of the next segment, to be read without a lock.
    pub(crate) fn next_sequence(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.filling.lock().next_sequence)
    }

    /// Returns the retired segments.
    pub fn retired(&self) -> Vec<SegmentId> {
        self.queues.lock().retired.clone()
    }

    /// Frees the segments of a superseded checkpoint; those on bad blocks are retired instead. Returns whether there
    /// were any on bad blocks.
    pub(crate) fn free_checkpoint(&self, segments: &[SegmentId]) -> bool {
        let mut has_bad = false;
        let mut queues = self.queues.lock();
        for &segment in segments {
            if self.is_bad(segment) {
                self.retire(&mut queues, segment);
                has_bad = true;
            } else {
                self.push_free(&mut queues, segment);
            }
        }
        drop(queues);
        self.space.notify_all();
        self.work.notify_all();
        has_bad
    }

    /// Reads the last page of every segment. Calls `progress` for each.
    pub(crate) async fn scan(&self, floor: u64, progress: &mut dyn FnMut(SegmentId)) -> Scan {
        let look = |number: u32| async move {
            let segment = SegmentId(number);
            let offset = self.segment_bytes - PAGE_BYTES;
            let page = self.read_patiently(segment, offset, PAGE_BYTES as usize);
            (segment, page.await)
        };
        let mut pages = stream::iter(0..self.segments())
            .map(look)
            .buffer_unordered(SCAN_DEPTH);
        let mut scan = Scan::default();
        while let Some((segment, page)) = pages.next().await {
            progress(segment);
            let page = match page {
                Ok(page) => page,
                // Its erase or programs had not ended: it holds no items, and is erased before it is used.
                Err(DeviceError::Unreadable { .. }) => continue,
                Err(_) => {
                    scan.unreadable.push(segment);
                    continue;
                }
            };
            let footer = Footer::read(&page, segment.0, self.segment_bytes);
            if let Ok(footer) = footer
                && footer.is_of(SegmentKind::Items)
                && footer.image.get() == self.image
                && footer.sequence.get() >= floor
            {
                scan.found.push(SegmentRecord {
                    segment,
                    sequence: footer.sequence.get(),
                    items: footer.items.get(),
                    slot_bytes: footer.slot_bytes.get(),
                    data_bytes: footer.data_bytes.get(),
                });
            }
        }
        scan.found.sort_unstable_by_key(|record| record.sequence);
        scan
    }
}
