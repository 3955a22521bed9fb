//! [`Flusher`]: the items of a segment being filled go to flash before the segment is full.
//!
//! Items and their summary entries do not change once appended. They lie at opposite ends of the segment, and the space
//! between them takes later items and entries. A flush writes the pages that have grown since the last flush, then the
//! last page with a footer that counts the items so far:
//!
//! ```text
//!   │ items on flash │ new items │ ...free... │ new entries │ entries on flash │ footer │
//!                     1 ───────>               2 ─────────>                      3
//! ```
//!
//! Between 2 and 3 the device is synced, so a start always finds the items that the last footer counts. A footer goes
//! to a page that has been written before: a drive that tears one page of 4 KiB at a power cut loses the segment, and
//! its items are misses. If pages cannot be written twice, or a stream of the store is hashed, a segment is sealed
//! short instead: items of a hashed stream do not lie in the order of their appends.

use std::ops::Range;
use std::sync::Arc;

use device::{AlignedBuf, DeviceError};
use futures_util::future::join;
use runtime::sync::Semaphore;
use zerocopy::IntoBytes;

use super::blocks::Blocks;
use super::buffers::{Buffers, Content};
use super::counters::StoreCounters;
use super::doubt::Syncs;
use super::filling::{FLUSH_BYTES, Flushed};
use super::parts::Parts;
use super::segment::SegmentRecord;
use super::table::{SegmentPin, SegmentTable};
use crate::counter::Count as _;
use crate::format::segment::{FOOTER_BYTES, Footer, PAGE_BYTES, SegmentId, summary_offset};

/// The segments being filled that a flush writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unflushed {
    /// Segments with items that are not on flash.
    Items,
    /// Segments with copies made by reclaim that are not on flash.
    Copies,
}

/// One flush of a segment: its state on flash before (`done`) and after (`target`).
struct Flush {
    segment: SegmentId,
    done: Flushed,
    target: Flushed,
    footer: Footer,
}

/// Writes parts of segments: the new items of a segment being filled, and again the bytes of a segment in doubt.
///
/// One piece of a segment, of [`FLUSH_BYTES`], is in memory at a time, besides the buffers. A footer counts only items
/// that a sync has made durable.
pub(crate) struct Flusher {
    /// Held while a part of a segment being filled is written; the whole segment is written after that. Also held for
    /// each segment that [`sync_all`](Self::sync_all) writes again.
    flushing: Semaphore,
    /// Whether a stream of the store is hashed.
    pub(super) has_hashed: bool,
    syncs: Arc<Syncs>,
    table: Arc<SegmentTable>,
    blocks: Arc<Blocks>,
    buffers: Arc<Buffers>,
    counters: Arc<StoreCounters>,
}

impl Flusher {
    pub(super) fn new(has_hashed: bool, syncs: Arc<Syncs>, parts: &Parts) -> Self {
        Self {
            flushing: Semaphore::new(1),
            has_hashed,
            syncs,
            table: Arc::clone(&parts.table),
            blocks: Arc::clone(&parts.blocks),
            buffers: Arc::clone(&parts.buffers),
            counters: Arc::clone(&parts.counters),
        }
    }

    /// Writes the items of the segments being filled to flash, so that they survive a crash of the process. Must not be
    /// dropped before it ends: its last write could then come after the write of the whole segment.
    ///
    /// Does nothing if the store [cannot flush](Self::can_flush); [`flush`](super::append::Appender::flush) seals instead.
    /// `ahead` as for [`write_next`](super::write::Writer::write_next).
    ///
    /// The first error of the device. Segments that failed are written by the next call or when they are sealed.
    pub(crate) async fn flush_filling(
        &self,
        which: Unflushed,
        ahead: impl AsyncFn(),
    ) -> Result<(), DeviceError> {
        if !self.can_flush() {
            return Ok(());
        }
        let mut refused = Ok(());
        for buffer in 0..self.buffers.count() {
            let _turn = self.flushing.acquire().await;
            let Some(flush) = self.begin_flush(buffer, which) else {
                continue;
            };
            if let Err(error) = self.write_flush(buffer, &flush, ahead()).await {
                self.counters.write_errors.add(1);
                refused = refused.and(Err(error));
                continue;
            }
            let mut content = self.buffers.lock(buffer);
            let Some(flushed) = content.flushed() else {
                continue;
            };
            flushed.is_begun = true;
            if flushed.forgotten == flush.done.forgotten {
                *flushed = flush.target;
            }
        }
        refused
    }

    /// Returns whether a segment being filled can be flushed: pages can be written twice, and items lie in the order in
    /// which they were appended.
    pub(crate) fn can_flush(&self) -> bool {
        self.blocks.flash().can_overwrite() && !self.has_hashed
    }

    /// Waits until no flush is under way.
    pub(super) async fn end_of_flush(&self) {
        drop(self.flushing.acquire().await);
    }

    /// Makes all data on flash durable: writes the segments in doubt again, and syncs. Segments in buffers are not
    /// covered. Segments that a concurrent sync loses stay in doubt, and [`failed_syncs`](Syncs::failed_syncs) changes.
    ///
    /// Calls `lose` for each segment that cannot be read back or does not verify: no index may name it any more.
    ///
    /// The first error of the device. All segments except those that failed are durable, unless the sync failed.
    pub(crate) async fn sync_all(
        &self,
        lose: &(dyn Fn(&SegmentRecord) + Sync),
    ) -> Result<(), DeviceError> {
        let failed = self.syncs.failed_syncs();
        let mut written = Vec::new();
        let mut refused = Ok(());
        for segment in self.table.doubtful() {
            // One permit: a single piece of a segment is in memory at a time.
            let _turn = self.flushing.acquire().await;
            let sequence = self.table.sequence(segment);
            let pin = self.table.pin(segment, sequence).filter(|_| sequence != 0);
            let Some(pin) = pin.filter(|_| self.table.is_on_flash(segment)) else {
                continue;
            };
            match self.write_again(&pin).await {
                Ok(is_whole) => {
                    if !is_whole {
                        lose(&self.table.record(segment));
                    }
                    written.push((segment, sequence));
                }
                Err(error) => refused = refused.and(Err(error)),
            }
        }
        self.syncs.sync().await?;
        if self.syncs.failed_syncs() == failed {
            for (segment, sequence) in written {
                if self.table.sequence(segment) == sequence {
                    self.table.set_doubtful(segment, false);
                }
            }
        }
        refused
    }

    fn begin_flush(&self, buffer: usize, which: Unflushed) -> Option<Flush> {
        let content = self.buffers.lock(buffer);
        let Content::Filling(filling) = &*content else {
            return None;
        };
        let target = Flushed {
            items: filling.items,
            unlisted: filling.unlisted,
            data_bytes: filling.data_bytes,
            copied_bytes: filling.copied_bytes,
            is_begun: true,
            ..filling.flushed
        };
        let done = &filling.flushed;
        let is_due = match which {
            Unflushed::Items => target.data_bytes != done.data_bytes,
            Unflushed::Copies => target.copied_bytes != done.copied_bytes,
        };
        is_due.then(|| Flush {
            segment: filling.segment,
            done: filling.flushed,
            target,
            footer: filling.footer(self.table.image),
        })
    }

    async fn write_flush(
        &self,
        buffer: usize,
        flush: &Flush,
        ahead: impl Future<Output = ()>,
    ) -> Result<(), DeviceError> {
        if !flush.done.is_begun {
            self.blocks.erase(flush.segment).await?;
        }
        let summary = |items: u32| summary_offset(self.table.segment_bytes(), items);
        let first_page = |offset: u32| offset / PAGE_BYTES * PAGE_BYTES;
        let last_page = self.table.segment_bytes() - PAGE_BYTES;
        let entries_from = summary(flush.target.items).unwrap_or(last_page);
        let entries_to = summary(flush.done.items).unwrap_or(last_page);
        let data_end = flush.target.data_bytes.next_multiple_of(PAGE_BYTES);
        let data = first_page(flush.done.data_bytes)..data_end.min(last_page);
        let entries = first_page(entries_from).max(data.end)
            ..entries_to.next_multiple_of(PAGE_BYTES).min(last_page);
        for range in [data, entries] {
            self.write_pages(buffer, flush, range).await?;
        }
        // Without this sync a drive may keep the footer and lose items that it counts; the segment, durable items
        // included, would not verify.
        let (synced, ()) = join(self.syncs.sync(), ahead).await;
        synced?;
        let forgotten = self.buffers.lock(buffer).flushed().map(|it| it.forgotten);
        if forgotten != Some(flush.done.forgotten) {
            // Another sync has failed since, and may have lost items that the footer would count.
            return Ok(());
        }
        let footer = last_page..self.table.segment_bytes();
        self.write_pages(buffer, flush, footer).await
    }

    async fn write_pages(
        &self,
        buffer: usize,
        flush: &Flush,
        pages: Range<u32>,
    ) -> Result<(), DeviceError> {
        for start in pages.clone().step_by(FLUSH_BYTES as usize) {
            let piece = start..pages.end.min(start + FLUSH_BYTES);
            let bytes = self.copy_of(buffer, flush, piece.clone());
            self.blocks
                .overwrite_at(flush.segment, piece.start, bytes.into())
                .await?;
        }
        Ok(())
    }

    /// Copies whole pages of a buffer. The last page gets the footer of `flush`.
    fn copy_of(&self, buffer: usize, flush: &Flush, pages: Range<u32>) -> AlignedBuf {
        let mut copy = AlignedBuf::new(pages.len());
        let range = pages.start as usize..pages.end as usize;
        match &*self.buffers.lock(buffer) {
            Content::Filling(filling) => copy.copy_from_slice(&filling.bytes[range]),
            Content::Sealed { bytes, .. } => copy.copy_from_slice(&bytes[range]),
            Content::Free(_) | Content::Lost => {
                unreachable!("a segment is written after its flush has ended")
            }
        }
        if pages.end == self.table.segment_bytes() {
            let at = copy.len() - FOOTER_BYTES as usize;
            copy[at..].copy_from_slice(flush.footer.as_bytes());
        }
        copy
    }

    /// Writes the bytes of a segment to the place where they lie; a power cut during the write changes nothing. Returns
    /// `false` if the bytes are lost, or if the footer or the summary does not verify. Items are not checked: each is
    /// verified when it is read.
    async fn write_again(&self, pin: &SegmentPin<'_>) -> Result<bool, DeviceError> {
        let record = self.table.record(pin.segment);
        let footer_at = self.table.segment_bytes() - FOOTER_BYTES;
        let summary = summary_offset(self.table.segment_bytes(), record.items).unwrap_or(footer_at);
        let (mut checksum, mut is_whole) = (0, false);
        for start in (0..self.table.segment_bytes()).step_by(FLUSH_BYTES as usize) {
            let end = self.table.segment_bytes().min(start + FLUSH_BYTES);
            let len = (end - start) as usize;
            let read = self.blocks.read_range(pin.segment, start, len).await;
            let Some(bytes) = self.blocks.outages.unless_lost(&record, start, read)? else {
                return Ok(false);
            };
            let entries = summary.max(start)..footer_at.min(end);
            if !entries.is_empty() {
                let entries = (entries.start - start) as usize..(entries.end - start) as usize;
                checksum = crc32c::crc32c_append(checksum, &bytes[entries]);
            }
            if end == self.table.segment_bytes() {
                let page = &bytes[len - PAGE_BYTES as usize..];
                let footer = Footer::read(page, pin.segment.0, self.table.segment_bytes());
                is_whole = footer.is_ok_and(|footer| {
                    footer.sequence.get() == pin.sequence
                        && footer.content_checksum.get() == checksum
                });
            }
            self.blocks
                .overwrite_at(pin.segment, start, bytes.into())
                .await?;
        }
        Ok(is_whole)
    }
}
