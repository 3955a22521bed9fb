//! Flushing: the items of a segment being filled go to flash before the segment is full.
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

use device::{AlignedBuf, DeviceError, SharedBuf};
use futures_util::future::join;
use runtime::work::{self, Work};
use zerocopy::IntoBytes;

use super::core::{Content, SegmentStore, block, commands};
use super::filling::{FLUSH_BYTES, Flushed};
use super::layout::StreamLayout;
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

impl SegmentStore {
    /// Writes the items of the segments being filled to flash, so that they survive a crash of the process. Must not be
    /// dropped before it ends: its last write could then come after the write of the whole segment.
    ///
    /// Does nothing if the store [cannot flush](SegmentStore::can_flush); [`flush`](SegmentStore::flush) seals instead.
    /// `ahead` as for [`write_next`](SegmentStore::write_next).
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
        for buffer in 0..self.buffers.len() {
            let _turn = self.flushing.acquire().await;
            let Some(flush) = self.begin_flush(buffer, which) else {
                continue;
            };
            if let Err(error) = self.write_flush(buffer, &flush, ahead()).await {
                self.counters.write_errors.add(1);
                refused = refused.and(Err(error));
                continue;
            }
            let mut content = self.buffers[buffer].lock();
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
        self.flash.can_overwrite() && !self.layouts.contains(&StreamLayout::Hashed)
    }

    /// Returns whether sealed segments that were opened before this sequence number wait to be written.
    pub(crate) fn has_sealed_before(&self, sequence: u64) -> bool {
        self.buffers.iter().any(|buffer| {
            matches!(&*buffer.lock(), Content::Sealed { segment, .. } if self.sequence(*segment) < sequence)
        })
    }

    fn begin_flush(&self, buffer: usize, which: Unflushed) -> Option<Flush> {
        let content = self.buffers[buffer].lock();
        let Content::Filling(filling) = &*content else {
            return None;
        };
        let target = Flushed {
            items: filling.items,
            data_bytes: filling.data_bytes,
            copied_bytes: filling.copied_bytes,
            is_begun: true,
            ..filling.flushed
        };
        let done = &filling.flushed;
        let is_due = match which {
            Unflushed::Items => target.items != done.items,
            Unflushed::Copies => target.copied_bytes != done.copied_bytes,
        };
        is_due.then(|| Flush {
            segment: filling.segment,
            done: filling.flushed,
            target,
            footer: filling.footer(self.image),
        })
    }

    async fn write_flush(
        &self,
        buffer: usize,
        flush: &Flush,
        ahead: impl Future<Output = ()>,
    ) -> Result<(), DeviceError> {
        if !flush.done.is_begun {
            self.erase(flush.segment).await?;
        }
        let summary = |items: u32| summary_offset(self.segment_bytes, items);
        let first_page = |offset: u32| offset / PAGE_BYTES * PAGE_BYTES;
        let last_page = self.segment_bytes - PAGE_BYTES;
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
        let (synced, ()) = join(self.sync(), ahead).await;
        synced?;
        let forgotten = self.buffers[buffer].lock().flushed().map(|it| it.forgotten);
        if forgotten != Some(flush.done.forgotten) {
            // Another sync has failed since, and may have lost items that the footer would count.
            return Ok(());
        }
        let footer = last_page..self.segment_bytes;
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
            self.overwrite_at(flush.segment, piece.start, bytes.into())
                .await?;
        }
        Ok(())
    }

    /// Copies whole pages of a buffer. The last page gets the footer of `flush`.
    fn copy_of(&self, buffer: usize, flush: &Flush, pages: Range<u32>) -> AlignedBuf {
        let mut copy = AlignedBuf::new(pages.len());
        let range = pages.start as usize..pages.end as usize;
        match &*self.buffers[buffer].lock() {
            Content::Filling(filling) => copy.copy_from_slice(&filling.bytes[range]),
            Content::Sealed { bytes, .. } => copy.copy_from_slice(&bytes[range]),
            Content::Free(_) | Content::Lost => {
                unreachable!("a segment is written after its flush has ended")
            }
        }
        if pages.end == self.segment_bytes {
            let at = copy.len() - FOOTER_BYTES as usize;
            copy[at..].copy_from_slice(flush.footer.as_bytes());
        }
        copy
    }

    /// Writes a sealed segment from the end of its flushed items on. The last page comes last.
    pub(super) async fn program_rest(
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
            self.overwrite_at(segment, start as u32, data).await?;
        }
        // If the sync fails, the segment is marked doubtful, and is written again.
        let _ = join(self.sync(), ahead).await;
        let data = SharedBuf::new(Arc::clone(bytes), last_page..bytes.len());
        self.overwrite_at(segment, last_page as u32, data).await
    }

    pub(super) async fn overwrite_at(
        &self,
        segment: SegmentId,
        offset: u32,
        data: SharedBuf,
    ) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        work::count(Work::DeviceCommand, commands(bytes));
        let page = offset / self.flash.geometry().page_bytes;
        self.flash.overwrite(block(segment), page, data).await?;
        self.counters.bytes_written.add(bytes);
        Ok(())
    }
}
