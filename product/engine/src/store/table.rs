//! [`SegmentTable`]: the state of every segment, and the pins of its readers.

use std::sync::atomic::AtomicU64 as Counter;

use runtime::sync::Notify;

use super::layout::SlotPages;
use super::priority::Priority;
use super::segment::SegmentRecord;
use super::unlisted::Unlisted;
use crate::counter::{Count as _, Striped};
use crate::format::segment::{PAGE_BYTES, Position, SegmentId};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Entry of a segment in the segment table: [`SEGMENT_TABLE_BYTES`].
#[derive(Default)]
struct Segment {
    /// Sequence number of its present generation, 0 when free.
    sequence: AtomicU64,
    /// Number of items in the summary, once sealed.
    items: AtomicU32,
    /// Number of items that the index names and no flush of the cache has made dead.
    live: AtomicU32,
    /// Bytes of its items, slots and summary entries, once sealed; 0 if an earlier run wrote the segment.
    item_bytes: AtomicU32,
    /// Bytes of each item's slot; 0 if items are packed.
    slot_bytes: AtomicU32,
    /// Bytes up to the end of the last item if an earlier run wrote the segment: later appends of that run are lost.
    /// Else all bytes of the segment.
    data_bytes: AtomicU32,
    /// Unix second in which it was sealed; 0 if an earlier run sealed it.
    sealed_at: AtomicU32,
    /// Reads of its items since it was opened, if reads are counted.
    reads: AtomicU32,
    /// Time of the last read of one of its items in milliseconds of the runtime's clock, if reads are counted.
    last_read_ms: AtomicU32,
    /// Number of readers, and the bit [`DRAINING`].
    pins: AtomicU32,
    /// Number of the buffer that holds its bytes, plus 1; 0 when they are on flash.
    buffer: AtomicU8,
    /// Its [`Priority`], if there are several.
    priority: AtomicU8,
    /// Number of writes that failed in a row and count, in two bits, and the lowest bits of the number of the last one's
    /// outage.
    failures: AtomicU8,
    /// Whether a failed sync may have lost a part of it.
    is_doubtful: AtomicBool,
}

/// Bytes of memory for each segment of the flash.
pub(crate) const SEGMENT_TABLE_BYTES: u64 = 48;

const _: () = assert!(size_of::<Segment>() as u64 == SEGMENT_TABLE_BYTES);

/// Bit of [`Segment::pins`] that is set while a release waits for the readers.
const DRAINING: u32 = 1 << 31;

/// The state of every segment of the flash.
///
/// A segment that is not free has a generation, named by a sequence number that no other generation has. A pin counts
/// only if the generation had not ended when it was set, and [`end_generation`](Self::end_generation) resolves only
/// once no pin is left.
pub struct SegmentTable {
    segments: Box<[Segment]>,
    pub(crate) unlisted: Unlisted,
    segment_bytes: u32,
    /// Id of the image that the segments belong to.
    pub(super) image: u64,
    slot_pages: SlotPages,
    counts_reads: bool,
    /// Reads of segments, if they are counted. `reads_ended` counts the reads of generations that have ended.
    reads_counted: Striped,
    reads_ended: Counter,
    drained: Notify,
}

/// Use of a segment by live items.
pub(super) struct SegmentUse {
    /// Items that the index names and no flush of the cache has made dead.
    pub(super) live: u32,
    /// Number of all items; 0 while the segment is being filled.
    pub(super) items: u32,
    /// Bytes of all items, slots and summary entries; 0 if an earlier run wrote the segment, or while it is being
    /// filled.
    pub(super) item_bytes: u32,
}

/// Keeps a segment from being written again while it is read.
pub struct SegmentPin<'a> {
    table: &'a SegmentTable,
    pub(super) segment: SegmentId,
    pub(super) sequence: u64,
}

impl Drop for SegmentPin<'_> {
    fn drop(&mut self) {
        let pins = &self.table.segment(self.segment).pins;
        if pins.fetch_sub(1, Ordering::AcqRel) == DRAINING | 1 {
            self.table.drained.notify_all();
        }
    }
}

impl SegmentTable {
    pub(super) fn new(
        segments: u32,
        segment_bytes: u32,
        slot_pages: SlotPages,
        image: u64,
        counts_reads: bool,
    ) -> Self {
        Self {
            segments: (0..segments).map(|_| Segment::default()).collect(),
            unlisted: Unlisted::new(segments),
            segment_bytes,
            image,
            slot_pages,
            counts_reads,
            reads_counted: Striped::default(),
            reads_ended: Counter::default(),
            drained: Notify::new(),
        }
    }

    /// Returns the bytes of a segment.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Returns the number of segments on the device.
    pub fn segments(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Returns the bytes of memory that the table takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.segments.len() * size_of::<Segment>()
    }

    /// Returns the entry of a segment.
    fn segment(&self, segment: SegmentId) -> &Segment {
        &self.segments[segment.0 as usize]
    }

    /// Returns the record of a segment's present generation.
    pub(super) fn record(&self, segment: SegmentId) -> SegmentRecord {
        let state = self.segment(segment);
        SegmentRecord {
            segment,
            sequence: state.sequence.load(Ordering::Acquire),
            items: state.items.load(Ordering::Acquire),
            slot_bytes: state.slot_bytes.load(Ordering::Acquire),
            data_bytes: state.data_bytes.load(Ordering::Acquire),
        }
    }

    /// Returns the sequence number of a segment's present generation, 0 when it is free.
    pub fn sequence(&self, segment: SegmentId) -> u64 {
        self.segment(segment).sequence.load(Ordering::Acquire)
    }

    /// Pins `segment` if it is still in `generation`.
    ///
    /// A release ends the generation before it looks for pins, and a reader sets its pin before it checks the
    /// generation: one of the two sees the other.
    #[must_use]
    pub fn pin(&self, segment: SegmentId, generation: u64) -> Option<SegmentPin<'_>> {
        let state = self.segment(segment);
        state.pins.fetch_add(1, Ordering::SeqCst);
        let pin = SegmentPin {
            table: self,
            segment,
            sequence: generation,
        };
        (state.sequence.load(Ordering::SeqCst) == generation).then_some(pin)
    }

    /// Returns whether the segment has no buffer, as after its write.
    pub(crate) fn is_on_flash(&self, segment: SegmentId) -> bool {
        self.segment(segment).buffer.load(Ordering::Acquire) == 0
    }

    /// Returns the buffer that holds a segment; `None` when it is on flash.
    pub(super) fn buffer_of(&self, segment: SegmentId) -> Option<usize> {
        let number = self.segment(segment).buffer.load(Ordering::Acquire);
        usize::from(number).checked_sub(1)
    }

    /// Notes that a segment is in no buffer any more.
    pub(super) fn leave_buffer(&self, segment: SegmentId) {
        self.segment(segment).buffer.store(0, Ordering::Release);
    }

    /// Returns the bytes of a segment up to the end of its last item, as in [`SegmentRecord::data_bytes`].
    pub(super) fn data_bytes(&self, segment: SegmentId) -> u32 {
        self.segment(segment).data_bytes.load(Ordering::Acquire)
    }

    /// Returns the present priority of a segment.
    pub(crate) fn priority(&self, segment: SegmentId) -> Priority {
        Priority(self.segment(segment).priority.load(Ordering::Relaxed))
    }

    /// Sets the priority of a segment.
    pub(super) fn set_priority(&self, segment: SegmentId, priority: Priority) {
        let state = self.segment(segment);
        state.priority.store(priority.0, Ordering::Relaxed);
    }

    /// Returns the Unix second in which a segment was sealed, if this run sealed it.
    pub(crate) fn sealed_at(&self, segment: SegmentId) -> Option<u32> {
        let sealed_at = self.segment(segment).sealed_at.load(Ordering::Relaxed);
        (sealed_at != 0).then_some(sealed_at)
    }

    /// Estimates the number of items of a segment that the index names and no flush of the cache has made dead.
    pub(crate) fn valid_items(&self, segment: SegmentId) -> u32 {
        self.segment(segment).live.load(Ordering::Relaxed)
    }

    /// Returns the bytes of a sealed segment that are due to valid items, slots and summary included: the whole segment
    /// if no slot is free and all items are valid. Their copies take as many bytes.
    pub(crate) fn valid_bytes(&self, segment: SegmentId) -> u64 {
        let state = self.segment(segment);
        let live = u64::from(state.live.load(Ordering::Relaxed));
        match state.slot_bytes.load(Ordering::Relaxed) {
            0 => {
                let items = state.items.load(Ordering::Relaxed) + self.unlisted.of(segment);
                live * u64::from(self.segment_bytes) / u64::from(items.max(1))
            }
            slot_bytes => {
                let slots = self.slot_pages.slots_of(self.segment_bytes, slot_bytes);
                live * u64::from(self.segment_bytes) / slots
            }
        }
    }

    /// Counts one more item of a segment that the index names, or is about to name.
    pub(crate) fn count_in(&self, segment: SegmentId) {
        self.count_all_in(segment, 1);
    }

    /// Counts `items` more items of a segment that the index names.
    pub(crate) fn count_all_in(&self, segment: SegmentId, items: u32) {
        self.segment(segment)
            .live
            .fetch_add(items, Ordering::Relaxed);
    }

    /// Counts one item less of a generation of a segment that the index names; does nothing if the generation has
    /// ended.
    pub(crate) fn count_out(&self, segment: SegmentId, generation: u64) {
        let state = self.segment(segment);
        if state.sequence.load(Ordering::Acquire) == generation {
            // If the generation ends at this very moment, the count is off by one; it is an estimate, and never
            // negative.
            let less = |live: u32| live.checked_sub(1);
            let _ = state
                .live
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Sets the count of live items of every segment to 0: a flush of the cache has made them dead. Items appended at
    /// this very moment may go uncounted.
    pub(crate) fn count_all_out(&self) {
        for state in &self.segments {
            state.live.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the use of a segment by live items; `None` if it has none.
    pub(super) fn use_of(&self, segment: SegmentId) -> Option<SegmentUse> {
        let state = self.segment(segment);
        let live = state.live.load(Ordering::Relaxed);
        if live == 0 || state.sequence.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(SegmentUse {
            live,
            items: state.items.load(Ordering::Acquire) + self.unlisted.of(segment),
            item_bytes: state.item_bytes.load(Ordering::Relaxed),
        })
    }

    /// Returns the number of bytes to read for the item at `position`.
    pub(super) fn read_bytes(&self, segment: SegmentId, position: Position) -> usize {
        let page = position.offset() / PAGE_BYTES * PAGE_BYTES;
        let slot_bytes = self.segment(segment).slot_bytes.load(Ordering::Relaxed);
        let left = self.segment_bytes.saturating_sub(page);
        position.read_bytes(slot_bytes).min(left) as usize
    }

    /// Begins a generation of an empty segment whose bytes are in a buffer.
    pub(super) fn begin_generation(
        &self,
        segment: SegmentId,
        sequence: u64,
        slot_bytes: u32,
        buffer: usize,
    ) {
        let state = self.segment(segment);
        state.sequence.store(sequence, Ordering::Release);
        state.items.store(0, Ordering::Release);
        self.unlisted.set(segment, 0);
        state.live.store(0, Ordering::Release);
        state.item_bytes.store(0, Ordering::Relaxed);
        state.sealed_at.store(0, Ordering::Relaxed);
        state.is_doubtful.store(false, Ordering::Relaxed);
        state.slot_bytes.store(slot_bytes, Ordering::Release);
        state
            .data_bytes
            .store(self.segment_bytes, Ordering::Release);
        self.end_reads(state);
        state.last_read_ms.store(now_ms(), Ordering::Relaxed);
        state.buffer.store(buffer as u8 + 1, Ordering::Release);
    }

    /// Notes that a segment has been sealed with `items` items in its summary and `unlisted` others, which take `item_bytes`
    /// bytes.
    pub(super) fn seal(&self, segment: SegmentId, items: u32, unlisted: u32, item_bytes: u32) {
        let state = self.segment(segment);
        self.unlisted.set(segment, unlisted);
        state.item_bytes.store(item_bytes, Ordering::Relaxed);
        let now = runtime::unix_seconds();
        state.sealed_at.store(now, Ordering::Relaxed);
        state.items.store(items, Ordering::Release);
    }

    /// Takes over a generation of an earlier run.
    pub(super) fn adopt(&self, record: &SegmentRecord) {
        let state = self.segment(record.segment);
        state.sequence.store(record.sequence, Ordering::Release);
        state.items.store(record.items, Ordering::Release);
        state.slot_bytes.store(record.slot_bytes, Ordering::Release);
        state.data_bytes.store(record.data_bytes, Ordering::Release);
        state.item_bytes.store(record.data_bytes, Ordering::Relaxed);
    }

    /// Counts a failed write of a segment, unless one in the same outage has counted before or it is nobody's fault. Returns
    /// the number that have failed in a row and count, 3 at most.
    pub(super) fn count_failure(&self, segment: SegmentId, outage: Option<u32>) -> u8 {
        let failures = &self.segment(segment).failures;
        let before = failures.load(Ordering::Relaxed);
        let count = before & 0b11;
        let Some(outage) = outage else {
            return count;
        };
        let outage = (outage << 2) as u8;
        if count > 0 && before & !0b11 == outage {
            return count;
        }
        let count = (count + 1).min(0b11);
        failures.store(outage | count, Ordering::Relaxed);
        count
    }

    /// Notes that a write of a segment has succeeded.
    pub(super) fn forget_failures(&self, segment: SegmentId) {
        self.segment(segment).failures.store(0, Ordering::Relaxed);
    }

    /// Ends the generation of a segment that no index names any more. Resolves once its last reader has left.
    pub(super) async fn end_generation(&self, segment: SegmentId) {
        let state = self.segment(segment);
        state.sequence.store(0, Ordering::SeqCst);
        self.end_reads(state);
        state.pins.fetch_or(DRAINING, Ordering::SeqCst);
        loop {
            let drained = self.drained.listener();
            if state.pins.load(Ordering::Acquire) == DRAINING {
                break;
            }
            drained.await;
        }
        state.pins.fetch_and(!DRAINING, Ordering::AcqRel);
    }

    /// Notes that an item of a segment is being read.
    pub(super) fn count_read(&self, segment: SegmentId) {
        if self.counts_reads {
            let state = self.segment(segment);
            state.reads.fetch_add(1, Ordering::Relaxed);
            self.reads_counted.add(1);
            state.last_read_ms.store(now_ms(), Ordering::Relaxed);
        }
    }

    /// Returns the reads of a segment's present generation.
    pub(super) fn reads(&self, segment: SegmentId) -> u64 {
        u64::from(self.segment(segment).reads.load(Ordering::Relaxed))
    }

    /// Returns the reads of all generations of this run; 0 if reads are not counted.
    pub(super) fn reads_counted(&self) -> u64 {
        self.reads_counted.sum()
    }

    /// Returns the reads of all generations that have ended; `None` if reads are not counted.
    pub(super) fn reads_ended(&self) -> Option<u64> {
        self.counts_reads.then(|| self.reads_ended.get())
    }

    /// Returns the milliseconds from the last read of a segment to `now`.
    pub(super) fn idle_ms(&self, segment: SegmentId, now: u32) -> u32 {
        let last_read = self.segment(segment).last_read_ms.load(Ordering::Relaxed);
        age_ms(now, last_read)
    }

    /// Removes the reads of a generation that ends from the sum.
    fn end_reads(&self, state: &Segment) {
        let reads = state.reads.swap(0, Ordering::Relaxed);
        self.reads_ended.add(u64::from(reads));
    }

    /// Sets whether a part of a segment may be lost because a sync has failed since it was written.
    pub(super) fn set_doubtful(&self, segment: SegmentId, is_doubtful: bool) {
        let mark = &self.segment(segment).is_doubtful;
        mark.store(is_doubtful, Ordering::Release);
    }

    /// Returns whether a part of a segment may be lost because a sync has failed since it was written.
    pub(crate) fn is_doubtful(&self, segment: SegmentId) -> bool {
        self.segment(segment).is_doubtful.load(Ordering::Acquire)
    }

    /// Returns the segments in doubt.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = SegmentId> + '_ {
        (0..self.segments())
            .map(SegmentId)
            .filter(|&segment| self.is_doubtful(segment))
    }

    /// Returns whether any segment is in doubt.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful().next().is_some()
    }
}

/// Returns the milliseconds of the runtime's clock; they wrap around.
pub(super) fn now_ms() -> u32 {
    (runtime::now().as_nanos() / 1_000_000) as u32
}

/// Milliseconds by which one time may be ahead of another and count as the same.
const SAME_TIME_MS: u32 = 60_000;

/// Returns the milliseconds from `then` to `now`; 0 if another thread noted `then` after `now` was read.
fn age_ms(now: u32, then: u32) -> u32 {
    let age = now.wrapping_sub(then);
    if age > u32::MAX - SAME_TIME_MS {
        0
    } else {
        age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_notes_a_moment_later_is_of_now() {
        assert_eq!(age_ms(1000, 0), 1000);
        assert_eq!(age_ms(1000, 1001), 0);
        assert_eq!(age_ms(3, u32::MAX - 2), 6);
    }
}
