//! [`SegmentStore`]: its parts, its segment table, victims and releases.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use device::{AlignedBuf, BlockHealth, BlockId, Flash, Geometry};
use runtime::budget::Budget;
use runtime::sync::{Notify, Semaphore};

use super::filling::{Cursor, FLUSH_BYTES, Filling, Flushed};
use super::layout::{SlotPages, StreamLayout, Streams};
use super::outage::Outages;
use super::priority::Priority;
use super::queues::{Queues, Worn};
use super::segment::{DRAINING, Segment, SegmentRecord};
use crate::counter::{Count as _, Ewma, Striped};
use crate::format::location::LocationCodec;
use crate::format::segment::SegmentId;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Milliseconds by which one time may be ahead of another and count as the same.
const SAME_TIME_MS: u32 = 60_000;

/// Largest part of the buffers that may be filled at once; [`FILLING_SHARE_OF_FLASH`] likewise for all segments.
pub(crate) const FILLING_SHARE: (u64, u64) = (3, 4);
pub(crate) const FILLING_SHARE_OF_FLASH: (u64, u64) = (1, 4);

/// Returns the number of segments that may be filled at once.
fn max_filling(buffers: usize, segments: usize) -> usize {
    let part = |of: usize, (some, all): (u64, u64)| of * some as usize / all as usize;
    let most = part(segments, FILLING_SHARE_OF_FLASH).max(1);
    part(buffers, FILLING_SHARE).clamp(1, most)
}

/// Largest number of consecutive bytes in one command to a drive. Work is counted in these commands: flash written page
/// by page then costs the processor no more than a drive does.
const COMMAND_BYTES: u64 = 256 << 10;

/// Returns the number of commands that have begun once `bytes` of a segment are written.
pub(super) fn commands(bytes: u64) -> u64 {
    bytes.div_ceil(COMMAND_BYTES)
}

/// Returns the erase block of a segment.
pub(super) fn block(segment: SegmentId) -> BlockId {
    BlockId(segment.0)
}

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
    /// Returns the part of the segment that is on flash, if the buffer holds one.
    pub(super) fn flushed(&mut self) -> Option<&mut Flushed> {
        match self {
            Self::Filling(filling) => Some(&mut filling.flushed),
            Self::Sealed { flushed, .. } => Some(flushed),
            Self::Free(_) | Self::Lost => None,
        }
    }

    /// Returns the bytes of copies made by reclaim that are not on flash.
    pub(super) fn unwritten_copies(&self) -> UnwrittenCopies {
        let mut unwritten = UnwrittenCopies::default();
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
pub(crate) struct UnwrittenCopies {
    /// In segments that are being filled.
    pub(crate) filling: u64,
    /// In sealed segments, segments being written included.
    pub(crate) sealed: u64,
}

/// Rule that chooses the next written segment to reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The oldest segment.
    #[default]
    Oldest,
    /// The segment with the fewest valid bytes; among equals, the oldest.
    FewestValid,
    /// The segment whose last read is the longest ago.
    LeastRecentlyRead,
    /// The oldest segment of the lowest priority that has any.
    LowestPriority,
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

/// Counters of a segment store; may be read at any time.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Items appended to segments.
    pub items_appended: AtomicU64,
    /// Segments opened.
    pub segments_opened: AtomicU64,
    /// Segments sealed.
    pub segments_sealed: AtomicU64,
    /// Bytes of items, slots and summary entries in sealed segments.
    pub bytes_sealed: AtomicU64,
    /// Bytes of sealed segments that are due to copies made to gain space: of each segment the share of its content
    /// that was copied.
    pub bytes_for_copies: AtomicU64,
    /// Segments written.
    pub segments_written: AtomicU64,
    /// Segments opened for writes by clients, not for copies.
    pub segments_opened_for_writes: AtomicU64,
    /// Erases issued to the flash.
    pub erases: AtomicU64,
    /// Erases of blocks that had been erased before, if the device counts erases. The first erase of a block is no wear
    /// of use.
    pub erases_of_use: AtomicU64,
    /// Segments whose write failed and whose items were moved to another segment.
    pub segments_moved: AtomicU64,
    /// Bytes written to the flash.
    pub bytes_written: AtomicU64,
    /// Reads issued to the flash.
    pub reads: Striped,
    /// Bytes read from the flash.
    pub bytes_read: Striped,
    /// Reads that failed at the device.
    pub read_errors: AtomicU64,
    /// Items that did not verify.
    pub corrupt_items: AtomicU64,
    /// Segments whose write failed.
    pub write_errors: AtomicU64,
    /// Segments on bad blocks, and segments given up after repeated failures.
    pub segments_retired: AtomicU64,
}

/// Settings of a [`SegmentStore`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreConfig {
    /// Number of segments that may be in memory at once, being filled, waiting to be written or being written.
    pub buffers: usize,
    /// Id of the image that the segments belong to.
    pub image: u64,
    /// First sequence number to use.
    pub first_sequence: u64,
    /// Bytes that large items read from flash may hold at once.
    pub large_read_bytes: u64,
    /// Bytes that items read from flash one page at a time may hold at once.
    pub small_read_bytes: u64,
    /// Bytes of one program.
    pub write_bytes: u32,
    /// Whether the reads of each segment are counted.
    pub counts_reads: bool,
}

/// The segments of one flash device. Shared by all threads.
pub struct SegmentStore {
    /// Packs segment and position into as few bits as the flash needs.
    pub(crate) codec: LocationCodec,
    pub(super) flash: Arc<dyn Flash>,
    pub(super) image: u64,
    pub(super) segment_bytes: u32,
    pub(super) write_bytes: usize,
    pub(super) streams: Arc<dyn Streams>,
    pub(super) layouts: Box<[StreamLayout]>,
    pub(super) slot_pages: SlotPages,
    /// Number of segments that may be filled at once.
    pub(super) max_filling: usize,
    pub(super) segments: Box<[Segment]>,
    pub(super) buffers: Box<[Mutex<Content>]>,
    /// Number of free buffers. A counted buffer is free, or will be when its lock is released. Only the holder of
    /// `filling` takes one.
    pub(super) free_buffers: AtomicUsize,
    /// The buffers being filled, and the next sequence number.
    pub(super) filling: Mutex<Cursor>,
    pub(super) queues: Mutex<Queues>,
    pub(super) counts_reads: bool,
    /// First sequence number of this run.
    pub(super) first_sequence: u64,
    /// Reads of segments, if they are counted. `reads_ended` counts the reads of generations that have ended.
    pub(super) reads_counted: Striped,
    pub(super) reads_ended: AtomicU64,
    pub(super) erase_time: Ewma,
    /// Free segments that only copies may open.
    pub(super) reserved: AtomicUsize,
    /// Checkpoints that wait for a free segment.
    pub(super) waiting_checkpoints: AtomicUsize,
    pub(super) large_reads: Arc<Budget>,
    /// Held while a part of a segment being filled is written; the whole segment is written after that. Also held for
    /// each segment that [`sync_all`](SegmentStore::sync_all) writes again.
    pub(super) flushing: Semaphore,
    /// Held while the flash is synced.
    pub(super) syncing: Semaphore,
    /// See [`failed_syncs`](SegmentStore::failed_syncs).
    pub(super) failed_syncs: AtomicU64,
    /// Sequence number below which all segments are durable, except those in doubt.
    pub(super) durable_before: AtomicU64,
    pub(super) small_reads: Arc<Budget>,
    /// Reads that the device has failed.
    pub(super) outages: Outages,
    pub(super) space: Notify,
    pub(super) work: Notify,
    pub(super) drained: Notify,
    pub(super) counters: StoreCounters,
}

impl SegmentStore {
    /// Returns the store of `flash`, with one segment in each block. All are free, except those on bad blocks.
    ///
    /// When there are fewer than 2 or more than 254 buffers: the configuration checks that.
    pub(crate) fn new(
        flash: Arc<dyn Flash>,
        streams: Arc<dyn Streams>,
        config: &StoreConfig,
    ) -> Self {
        assert!((2..=254).contains(&config.buffers), "2 to 254 buffers");
        let geometry = flash.geometry();
        let segment_bytes =
            u32::try_from(geometry.block_bytes()).expect("blocks are smaller than 4 GiB");
        let segments: Box<[Segment]> = (0..geometry.blocks()).map(|_| Segment::default()).collect();
        let (retired, free): (Vec<_>, Vec<_>) = (0..geometry.blocks())
            .map(SegmentId)
            .partition(|&segment| flash.health(block(segment)) == BlockHealth::Bad);
        let free = round_robin(free, &geometry);
        let layouts = streams.layouts();
        let filling = Cursor::new(config.first_sequence, 2 * layouts.len());
        let counters = StoreCounters::default();
        counters.segments_retired.add(retired.len() as u64);
        let mut queues = Queues::new(&geometry, streams.priorities());
        queues.retired = retired;
        for segment in free {
            queues.push_free(segment, flash.erase_count(block(segment)));
        }
        Self {
            codec: LocationCodec::new(geometry.blocks(), segment_bytes),
            image: config.image,
            segment_bytes,
            write_bytes: config.write_bytes.next_multiple_of(geometry.page_bytes) as usize,
            streams,
            layouts,
            slot_pages: SlotPages::of(&geometry),
            max_filling: max_filling(config.buffers, segments.len()),
            segments,
            buffers: (0..config.buffers)
                .map(|_| Mutex::new(Content::Lost))
                .collect(),
            free_buffers: AtomicUsize::new(config.buffers),
            filling: Mutex::new(filling),
            queues: Mutex::new(queues),
            counts_reads: config.counts_reads,
            first_sequence: config.first_sequence,
            reads_counted: Striped::default(),
            reads_ended: AtomicU64::default(),
            erase_time: Ewma::default(),
            reserved: AtomicUsize::new(0),
            waiting_checkpoints: AtomicUsize::new(0),
            large_reads: Arc::new(Budget::new(config.large_read_bytes)),
            flushing: Semaphore::new(1),
            syncing: Semaphore::new(1),
            failed_syncs: AtomicU64::default(),
            // A run begins with a sync.
            durable_before: AtomicU64::new(config.first_sequence),
            small_reads: Arc::new(Budget::new(config.small_read_bytes)),
            outages: Outages::default(),
            space: Notify::new(),
            work: Notify::new(),
            drained: Notify::new(),
            counters,
            flash,
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

    /// Returns the number of sealed segments that are being written.
    pub(crate) fn segments_being_written(&self) -> usize {
        self.queues.lock().writing
    }

    /// Returns the number of segments that can be opened.
    pub fn free_segments(&self) -> u32 {
        self.queues.lock().free as u32
    }

    /// Returns the number of segments that are free or will be when the reclaims under way have ended.
    pub(crate) fn free_or_reclaiming(&self) -> u32 {
        let queues = self.queues.lock();
        (queues.free + queues.reclaiming) as u32
    }

    /// Returns whether the cache was empty when this run began and nothing has been reclaimed since.
    pub fn is_first_fill(&self) -> bool {
        self.queues.lock().is_first_fill
    }

    /// Returns the number of segments that may be in memory at once.
    pub(crate) fn max_buffers(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// Returns the number of segments being reclaimed. Their copies may not be on flash yet.
    pub fn reclaiming_segments(&self) -> u32 {
        self.queues.lock().reclaiming as u32
    }

    /// Returns the number of channels that have a segment to fill or to reclaim, one at least.
    pub(crate) fn channels_in_use(&self) -> u32 {
        self.queues.lock().channels_in_use().max(1) as u32
    }

    /// Returns the number of segments that are not retired.
    pub fn segments_in_use(&self) -> u32 {
        let retired = self.counters.segments_retired.get() as u32;
        self.segments().saturating_sub(retired)
    }

    /// Returns the number of written segments that are not being reclaimed.
    pub fn written_segments(&self) -> u32 {
        self.queues.lock().written as u32
    }

    /// Returns the number of sealed segments that wait to be written.
    pub fn sealed_segments(&self) -> u32 {
        self.queues.lock().sealed.len() as u32
    }

    /// Returns the counters.
    pub fn counters(&self) -> &StoreCounters {
        &self.counters
    }

    /// Returns the signal that is given whenever an append that found no space may find some.
    pub fn space(&self) -> &Notify {
        &self.space
    }

    /// Returns the signal that is given whenever there is a segment to write, or fewer segments are free than before.
    pub fn work(&self) -> &Notify {
        &self.work
    }

    /// Returns the bytes of memory in use: buffers, a piece of a segment being flushed, and the segment table.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffers.len() * self.segment_bytes as usize
            + FLUSH_BYTES as usize
            + self.segments.len() * size_of::<Segment>()
    }

    /// Takes a written segment with at most `max_valid` valid bytes out of its queue, to reclaim it. By fewest valid
    /// bytes and by last read, only one channel is searched: the one with the fewest free segments.
    pub(crate) fn take_victim(&self, victim: Victim, max_valid: u64) -> Option<SegmentRecord> {
        let now = self.now_ms();
        let may = |segment| self.is_on_flash(segment) && self.valid_bytes(segment) <= max_valid;
        let mut queues = self.queues.lock();
        let segment = match victim {
            Victim::Oldest => {
                queues.take_least(1, |segment| may(segment).then(|| self.sequence(segment)))
            }
            Victim::FewestValid => {
                queues.take_from_channel(|segment| may(segment).then(|| self.valid_bytes(segment)))
            }
            Victim::LeastRecentlyRead => queues.take_from_channel(|segment| {
                let last_read = self.segment(segment).last_read_ms.load(Ordering::Relaxed);
                may(segment).then(|| Reverse(age_ms(now, last_read)))
            }),
            Victim::LowestPriority => queues.take_lowest(may),
        }?;
        Some(self.record(segment))
    }

    /// Takes the written segment with the lowest sequence number, unless a segment in memory has a lower one. Seals the
    /// segments being filled if one of them is older than all written ones.
    pub(crate) fn take_in_order(&self) -> Option<SegmentRecord> {
        let unwritten = self.in_memory();
        let oldest = unwritten.iter().map(|record| record.sequence).min();
        let taken = self.queues.lock().take_least(usize::MAX, |segment| {
            let sequence = self.sequence(segment);
            let is_next = oldest.is_none_or(|oldest| sequence < oldest);
            (is_next && self.is_on_flash(segment)).then_some(sequence)
        });
        if taken.is_none() && self.written_segments() > 0 && self.is_filling_older() {
            self.flush();
        }
        taken.map(|segment| self.record(segment))
    }

    /// Returns whether a segment being filled was opened before the oldest written one.
    fn is_filling_older(&self) -> bool {
        let written = self.written();
        let oldest = written.first().map_or(0, |record| record.sequence);
        self.buffers.iter().any(|buffer| {
            matches!(&*buffer.lock(), Content::Filling(filling) if filling.sequence < oldest)
        })
    }

    /// Returns whether the segment has no buffer, as after its write.
    pub(super) fn is_on_flash(&self, segment: SegmentId) -> bool {
        self.segment(segment).buffer.load(Ordering::Acquire) == 0
    }

    /// Returns the milliseconds of the runtime's clock; they wrap around.
    pub(super) fn now_ms(&self) -> u32 {
        (runtime::now().as_nanos() / 1_000_000) as u32
    }

    /// Returns the average of the valid bytes of the written segments.
    pub(crate) fn average_valid_bytes(&self) -> u64 {
        let queues = self.queues.lock();
        let valid = queues
            .each_written()
            .map(|segment| self.valid_bytes(segment));
        valid.sum::<u64>() / (queues.written as u64).max(1)
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
                let items = u64::from(state.items.load(Ordering::Relaxed).max(1));
                live * u64::from(self.segment_bytes) / items
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

    /// Estimates the items in segments that the index names and no flush of the cache has made dead. The bytes follow
    /// from the average item of each segment.
    pub fn in_use(&self) -> StoreUse {
        let mut filling = HashMap::new();
        for buffer in &self.buffers {
            if let Content::Filling(open) = &*buffer.lock() {
                filling.insert(open.segment, (open.items, open.taken_bytes));
            }
        }
        let mut sum = StoreUse::default();
        for (number, state) in (0..).zip(&self.segments) {
            let live = u64::from(state.live.load(Ordering::Relaxed));
            if live == 0 || state.sequence.load(Ordering::Acquire) == 0 {
                continue;
            }
            let sealed = (
                state.items.load(Ordering::Acquire),
                state.item_bytes.load(Ordering::Relaxed),
            );
            let (items, bytes) = match sealed {
                (0, _) => filling.remove(&SegmentId(number)).unwrap_or_default(),
                (items, 0) => (items, self.segment_bytes),
                sealed => sealed,
            };
            sum.oldest = self
                .sealed_at(SegmentId(number))
                .into_iter()
                .chain(sum.oldest)
                .min();
            sum.items += live;
            sum.bytes += live * u64::from(bytes) / u64::from(items.max(1));
        }
        sum
    }

    /// Returns the Unix second in which a segment was sealed, if this run sealed it.
    pub(crate) fn sealed_at(&self, segment: SegmentId) -> Option<u32> {
        let sealed_at = self.segment(segment).sealed_at.load(Ordering::Relaxed);
        (sealed_at != 0).then_some(sealed_at)
    }

    /// Returns every written segment, oldest first.
    pub fn written(&self) -> Vec<SegmentRecord> {
        let queues = self.queues.lock();
        let record = |segment| self.record(segment);
        let mut records: Vec<SegmentRecord> = queues.each_written().map(record).collect();
        drop(queues);
        records.sort_by_key(|record| record.sequence);
        records
    }

    /// Returns the number of items in live segments, dead ones included.
    pub(crate) fn items_placed(&self) -> u64 {
        let (live, _) = self.live_segments();
        live.iter().map(|record| u64::from(record.items)).sum()
    }

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

    /// Returns the present priority of a segment.
    pub(crate) fn priority(&self, segment: SegmentId) -> Priority {
        Priority(self.segment(segment).priority.load(Ordering::Relaxed))
    }

    /// Sets the priority of a segment.
    pub(super) fn set_priority(&self, segment: SegmentId, priority: Priority) {
        let state = self.segment(segment);
        state.priority.store(priority.0, Ordering::Relaxed);
    }

    /// Returns the sequence number of a segment's present generation, 0 when it is free.
    pub fn sequence(&self, segment: SegmentId) -> u64 {
        self.segment(segment).sequence.load(Ordering::Acquire)
    }

    pub(super) fn segment(&self, segment: SegmentId) -> &Segment {
        &self.segments[segment.0 as usize]
    }

    /// Frees a segment taken by [`take_victim`](SegmentStore::take_victim) that no index names any more, once its last
    /// reader has left.
    pub(crate) async fn release(&self, segment: SegmentId) {
        self.end_generation(segment).await;
        let mut queues = self.queues.lock();
        queues.end_reclaim(segment);
        self.push_free(&mut queues, segment);
        drop(queues);
        self.space.notify_all();
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

    /// Takes a free segment to open.
    pub(super) fn pop_free(&self, which: Worn) -> Option<SegmentId> {
        let load = |channel: u32| self.flash.channel_load(channel);
        self.queues.lock().pop_free(which, load)
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
        state.live.store(0, Ordering::Release);
        state.item_bytes.store(0, Ordering::Relaxed);
        state.sealed_at.store(0, Ordering::Relaxed);
        state.is_doubtful.store(false, Ordering::Relaxed);
        state.slot_bytes.store(slot_bytes, Ordering::Release);
        state
            .data_bytes
            .store(self.segment_bytes, Ordering::Release);
        self.end_reads(state);
        state.last_read_ms.store(self.now_ms(), Ordering::Relaxed);
        state.buffer.store(buffer as u8 + 1, Ordering::Release);
    }

    /// Adds a segment that can be opened.
    pub(super) fn push_free(&self, queues: &mut Queues, segment: SegmentId) {
        queues.push_free(segment, self.erase_count(segment));
    }
}

/// Sorts segments so that neighbours lie on different channels, then on different LUNs.
fn round_robin(mut free: Vec<SegmentId>, geometry: &Geometry) -> Vec<SegmentId> {
    free.sort_by_key(|segment| {
        let lun = segment.0 / geometry.blocks_per_lun;
        let block = segment.0 % geometry.blocks_per_lun;
        let (channel, lun) = (
            lun / geometry.luns_per_channel,
            lun % geometry.luns_per_channel,
        );
        (block, lun, channel)
    });
    free
}

/// Returns the milliseconds from `then` to `now`; 0 if another thread noted `then` after `now` was read.
pub(super) fn age_ms(now: u32, then: u32) -> u32 {
    let age = now.wrapping_sub(then);
    if age > u32::MAX - SAME_TIME_MS {
        0
    } else {
        age
    }
}
