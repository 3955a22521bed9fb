//! [`Writer`]: sealed segments go to flash in chunks of [`StoreConfig::write_bytes`](super::StoreConfig).
//!
//! A segment whose block fails during the write goes from its buffer to another block: no accepted item is lost with a
//! block (`DIDACache`, TOS 2018, section 4.2, bad block management).

use std::sync::Arc;

use device::{AlignedBuf, DeviceError, SharedBuf};
use futures_util::future::join;

use super::blocks::Blocks;
use super::buffers::{Buffers, Content};
use super::counters::StoreCounters;
use super::doubt::Syncs;
use super::failure::WriteFailure;
use super::filling::Flushed;
use super::flush::Flusher;
use super::parts::Parts;
use super::pool::SegmentPool;
use super::table::SegmentTable;
use crate::counter::Count as _;
use crate::format::segment::{PAGE_BYTES, SegmentId, decode_tail};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Failed writes of a segment in a row after which it is not used again. While a device refuses all writes, only the first of
/// each segment counts.
const MAX_FAILURES: u8 = 3;

/// Writes sealed segments.
///
/// The last page of a segment, with its footer, is written after all its other pages and after its records are durable.
/// A segment taken to be written ends in the written queue, in the sealed queue or as a [`WriteFailure`].
pub(crate) struct Writer {
    write_bytes: usize,
    flusher: Arc<Flusher>,
    syncs: Arc<Syncs>,
    table: Arc<SegmentTable>,
    blocks: Arc<Blocks>,
    buffers: Arc<Buffers>,
    pool: Arc<SegmentPool>,
    counters: Arc<StoreCounters>,
    /// Whether the last write of a segment has failed.
    has_failed: AtomicBool,
    /// Number of runs of failed writes.
    outages: AtomicU32,
}

impl Writer {
    /// Returns a writer whose programs have `write_bytes` bytes, in whole pages.
    pub(super) fn new(
        write_bytes: usize,
        flusher: Arc<Flusher>,
        syncs: Arc<Syncs>,
        parts: &Parts,
    ) -> Self {
        Self {
            write_bytes,
            flusher,
            syncs,
            table: Arc::clone(&parts.table),
            blocks: Arc::clone(&parts.blocks),
            buffers: Arc::clone(&parts.buffers),
            pool: Arc::clone(&parts.pool),
            counters: Arc::clone(&parts.counters),
            has_failed: AtomicBool::new(false),
            outages: AtomicU32::new(0),
        }
    }

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
        let (segment, buffer) = self.pool.pop_sealed()?;
        let written = self.write_whole(segment, buffer, ahead).await;
        Some(written.map(|()| {
            // In this order: a search for live segments finds it in the buffer or among the written segments.
            self.pool.push_written(segment);
            self.buffers.free_buffer(segment, buffer);
            self.pool.space().notify_all();
            self.pool.work().notify_all();
            segment
        }))
    }

    /// Writes the oldest sealed segment with copies made by reclaim that are not on flash. The segment stays in its
    /// buffer and is read from there until the buffer is needed. `None` if no such segment waits to be written. `ahead`
    /// as for [`write_next`](Self::write_next).
    pub(crate) async fn write_copies(
        &self,
        ahead: impl AsyncFnOnce(),
    ) -> Option<Result<SegmentId, WriteFailure>> {
        let (segment, buffer) = self.pool.take_sealed(self.buffers.sealed_with_copies())?;
        let written = self.write_whole(segment, buffer, ahead).await;
        Some(written.map(|()| {
            self.pool.put_back_sealed(segment, buffer);
            self.pool.work().notify_all();
            segment
        }))
    }

    /// Writes the part of a sealed segment that is not on flash. The segment has been taken from its queue.
    async fn write_whole(
        &self,
        segment: SegmentId,
        buffer: usize,
        ahead: impl AsyncFnOnce(),
    ) -> Result<(), WriteFailure> {
        if self.blocks.flash().can_overwrite() {
            // A flush of the segment may still be under way, with a footer that counts fewer items.
            self.flusher.end_of_flush().await;
        }
        let (bytes, flushed) = match &*self.buffers.lock(buffer) {
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
                self.has_failed.store(false, Ordering::Relaxed);
                self.table.forget_failures(segment);
                self.counters.segments_written.add(1);
                self.buffers.note_whole(segment, buffer, flushed.forgotten);
                Ok(())
            }
            Err(error) => {
                self.counters.write_errors.add(1);
                let outage = self.outage();
                let record = self.table.record(segment);
                let (_, entries) = decode_tail(
                    &bytes,
                    segment.0,
                    record.sequence,
                    self.table.segment_bytes(),
                )
                .expect("the summary was sealed in this buffer");
                Err(WriteFailure {
                    record,
                    entries,
                    outage: (!error.is_full()).then_some(outage),
                    error,
                    buffer,
                })
            }
        }
    }

    /// Returns whether the device has refused the last segment.
    pub(crate) fn is_refused(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Notes that a write has failed. Returns the number of the run of failed writes that it belongs to.
    fn outage(&self) -> u32 {
        let is_new = !self.has_failed.swap(true, Ordering::Relaxed);
        let before = self.outages.fetch_add(is_new.into(), Ordering::Relaxed);
        before + u32::from(is_new)
    }

    async fn program(
        &self,
        segment: SegmentId,
        bytes: &Arc<AlignedBuf>,
        ahead: impl Future<Output = ()>,
    ) -> Result<(), DeviceError> {
        self.blocks.erase(segment).await?;
        let page_bytes = self.blocks.flash().geometry().page_bytes as usize;
        let program = |start: usize| {
            let end = (start + self.write_bytes).min(bytes.len());
            let data = SharedBuf::new(Arc::clone(bytes), start..end);
            self.blocks
                .program_at(segment, (start / page_bytes) as u32, data)
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

    /// Writes a sealed segment from the end of its flushed items on. The last page comes last.
    async fn program_rest(
        &self,
        segment: SegmentId,
        bytes: &Arc<AlignedBuf>,
        flushed: Flushed,
        ahead: impl Future<Output = ()>,
    ) -> Result<(), DeviceError> {
        let start = (flushed.data_bytes / PAGE_BYTES * PAGE_BYTES) as usize;
        let last_page = bytes.len() - PAGE_BYTES as usize;
        for start in (start..last_page).step_by(self.write_bytes) {
            let end = (start + self.write_bytes).min(last_page);
            let data = SharedBuf::new(Arc::clone(bytes), start..end);
            self.blocks
                .overwrite_at(segment, start as u32, data)
                .await?;
        }
        // If the sync fails, the segment is marked doubtful, and is written again.
        let _ = join(self.syncs.sync(), ahead).await;
        let data = SharedBuf::new(Arc::clone(bytes), last_page..bytes.len());
        self.blocks
            .overwrite_at(segment, last_page as u32, data)
            .await
    }

    /// Gives up a segment whose write failed and that no index names any more. Frees its buffer, unless the items were
    /// moved. Retires the segment if its block is bad or [`MAX_FAILURES`] of its writes in a row have failed and
    /// count; otherwise it becomes free. Returns whether the segment was retired.
    pub(crate) async fn abandon(&self, failure: WriteFailure, is_moved: bool) -> bool {
        let segment = failure.record.segment;
        if !is_moved {
            self.buffers.free_buffer(segment, failure.buffer);
        }
        let failures = self.table.count_failure(segment, failure.outage);
        let is_retired = self.blocks.is_bad(segment) || failures >= MAX_FAILURES;
        self.table.end_generation(segment).await;
        self.pool.end_failed_write(segment, is_retired);
        is_retired
    }
}
