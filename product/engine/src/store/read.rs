//! Reading: one item, from a buffer while its segment is in memory, else with one read of flash.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, Bytes, DeviceError};
use futures_util::future::select;
use runtime::budget::Share;
use runtime::work::{self, Work};
use zerocopy::FromBytes;

use super::core::{Content, SegmentStore, block};
use super::segment::{DRAINING, SegmentRecord};
use crate::counter::Count as _;
use crate::format::FormatError;
use crate::format::item::{CHECKSUM_BYTES, ItemHeader, ItemRef};
use crate::format::segment::{
    FOOTER_BYTES, Footer, LARGE_UNIT_BYTES, PAGE_BYTES, Position, SUMMARY_ENTRY_BYTES, SegmentId,
    SummaryEntry, decode_tail, largest_item,
};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;

/// Longest read, in bytes, that does not wait behind longer ones.
const SMALL_READ_BYTES: usize = PAGE_BYTES as usize;
/// Time that a read may wait for its share of the memory.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// Keeps a segment from being written again while it is read.
pub struct SegmentPin<'a> {
    store: &'a SegmentStore,
    pub(super) segment: SegmentId,
    pub(super) sequence: u64,
}

impl Drop for SegmentPin<'_> {
    fn drop(&mut self) {
        let pins = &self.store.segment(self.segment).pins;
        if pins.fetch_sub(1, Ordering::AcqRel) == DRAINING | 1 {
            self.store.drained.notify_all();
        }
    }
}

/// Whether a read waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits in line.
    Waits,
    /// Does not wait: the reader needs other items first, and its memory would be held while other reads wait for it.
    ReadsAhead,
}

/// An item read from flash, in the buffer it was read into.
#[derive(Debug)]
pub struct FlashItem {
    bytes: AlignedBuf,
    /// Offset of the item's body in `bytes`.
    body: usize,
    /// The item's share of the memory for reads, given back when the item is dropped. `None` for a copy.
    share: Option<Share>,
}

impl FlashItem {
    /// Returns the item, already verified, at the `start` of the bytes read.
    pub(super) fn at(bytes: AlignedBuf, start: usize, share: Share) -> Self {
        Self {
            bytes,
            body: start + CHECKSUM_BYTES,
            share: Some(share),
        }
    }

    /// Copies an item that lies elsewhere.
    pub fn copy_of(item: &ItemRef<'_>) -> Self {
        let mut bytes = AlignedBuf::new(item.flash_bytes());
        item.encode(&mut bytes, 0, 0);
        Self {
            bytes,
            body: CHECKSUM_BYTES,
            share: None,
        }
    }

    /// Sets bits of its state: [`state`](crate::format::item::state).
    ///
    /// # Panics
    /// Never: it was parsed when it was read.
    pub fn mark(&mut self, bits: u8) {
        let (header, _) = ItemHeader::mut_from_prefix(&mut self.bytes[self.body..])
            .expect("verified when it was read");
        header.state |= bits;
    }

    /// Returns the item.
    ///
    /// # Panics
    /// Never: it was parsed when it was read.
    pub fn item(&self) -> ItemRef<'_> {
        ItemRef::parse(&self.bytes[self.body..]).expect("verified when it was read")
    }

    /// Returns the item's fixed part.
    pub fn header(&self) -> &ItemHeader {
        ItemHeader::ref_from_prefix(&self.bytes[self.body..])
            .expect("verified when it was read")
            .0
    }

    /// Completes when a read waits for the memory that this item holds; never for a copy. If the item is shared, the
    /// wish is passed on to the next holder: the memory is freed when the last one drops the item.
    pub async fn wanted(self: &Arc<Self>) {
        let Some(share) = &self.share else {
            return std::future::pending().await;
        };
        share.wanted().await;
        if Arc::strong_count(self) > 1 {
            share.ask_another();
        }
    }

    /// Bytes of memory it holds.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Reason for which an item could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Too many items are being read, and their readers are slow.
    #[error("no memory to read an item of {:.2}", Bytes(*bytes as u64))]
    NoMemory {
        /// Bytes that the read needs.
        bytes: usize,
    },
    /// The last run ended before the item was written there.
    #[error("item at byte {offset} of segment {segment} was not written before the last run ended")]
    Unwritten {
        /// The segment.
        segment: u32,
        /// The item's offset in it, in bytes.
        offset: u32,
    },
    /// The bytes are not the item that was written there.
    #[error("item at byte {offset} of segment {segment}: {source}")]
    Corrupt {
        /// The segment.
        segment: u32,
        /// The item's offset in it, in bytes.
        offset: u32,
        /// The reason for which it does not verify.
        source: FormatError,
    },
}

impl SegmentStore {
    /// Pins `segment` if it is still in `generation`.
    ///
    /// A release ends the generation before it looks for pins, and a reader sets its pin before it checks the
    /// generation: one of the two sees the other.
    #[must_use]
    pub fn pin(&self, segment: SegmentId, generation: u64) -> Option<SegmentPin<'_>> {
        let state = self.segment(segment);
        state.pins.fetch_add(1, Ordering::SeqCst);
        let pin = SegmentPin {
            store: self,
            segment,
            sequence: generation,
        };
        (state.sequence.load(Ordering::SeqCst) == generation).then_some(pin)
    }

    /// Returns the number of bytes to read for the item at `position`.
    pub(super) fn read_bytes(&self, segment: SegmentId, position: Position) -> usize {
        let page = position.offset() / PAGE_BYTES * PAGE_BYTES;
        let slot_bytes = self.segment(segment).slot_bytes.load(Ordering::Relaxed);
        let left = self.segment_bytes.saturating_sub(page);
        position.read_bytes(slot_bytes).min(left) as usize
    }

    /// Takes the memory for a read at `position`. Must be called before the segment is pinned, so that a reader that
    /// waits for memory delays nobody who waits for the segment.
    ///
    /// # Errors
    /// [`ReadError::NoMemory`].
    pub async fn read_memory(
        &self,
        segment: SegmentId,
        position: Position,
        patience: Patience,
    ) -> Result<Share, ReadError> {
        let bytes = self.read_bytes(segment, position);
        let budget = if bytes > SMALL_READ_BYTES {
            &self.large_reads
        } else {
            &self.small_reads
        };
        let mut share = Share::empty(budget);
        let has_grown = match patience {
            Patience::Waits => share.grow(bytes as u64, READ_PATIENCE).await,
            Patience::ReadsAhead => share.try_grow(bytes as u64),
        };
        has_grown
            .then_some(share)
            .ok_or(ReadError::NoMemory { bytes })
    }

    /// Completes when a read waits for memory and this caller, which holds items that it can do without, is the one to
    /// give them up.
    pub async fn read_memory_wanted(&self) {
        let [small, large] = [&self.small_reads, &self.large_reads].map(Share::empty);
        select(pin!(small.wanted()), pin!(large.wanted())).await;
    }

    /// Reads the item at `position` of the pinned segment and verifies it.
    ///
    /// # Errors
    /// [`ReadError`]; counted here.
    pub async fn read(
        &self,
        pin: &SegmentPin<'_>,
        position: Position,
    ) -> Result<FlashItem, ReadError> {
        let memory = self
            .read_memory(pin.segment, position, Patience::Waits)
            .await?;
        self.read_into(pin, position, memory).await
    }

    /// Reads like [`read`](SegmentStore::read), with [memory](SegmentStore::read_memory) that has been taken before.
    ///
    /// # Errors
    /// [`ReadError`]; counted here.
    pub async fn read_into(
        &self,
        pin: &SegmentPin<'_>,
        position: Position,
        mut share: Share,
    ) -> Result<FlashItem, ReadError> {
        self.count_read(pin.segment);
        let offset = position.offset();
        if offset >= self.segment(pin.segment).data_bytes.load(Ordering::Acquire) {
            let segment = pin.segment.0;
            return Err(ReadError::Unwritten { segment, offset });
        }
        let page = offset / PAGE_BYTES * PAGE_BYTES;
        let len = self.read_bytes(pin.segment, position);
        // The length has grown if the segment has been opened again, for longer slots, since the memory was taken.
        if !share.try_grow(len as u64) {
            return Err(ReadError::NoMemory { bytes: len });
        }
        let buf = match self.buffered(pin, page, len) {
            Some(buf) => buf,
            None => self.read_range(pin.segment, page, len).await?,
        };
        self.verified(pin, offset, buf, share)
    }

    /// Verifies the item at `offset`. `buf` begins with the item's first page.
    fn verified(
        &self,
        pin: &SegmentPin<'_>,
        offset: u32,
        buf: AlignedBuf,
        share: Share,
    ) -> Result<FlashItem, ReadError> {
        let start = (offset % PAGE_BYTES) as usize;
        match ItemRef::decode(&buf[start..], pin.sequence, offset) {
            Ok(_) => Ok(FlashItem::at(buf, start, share)),
            Err(source) => Err(self.corrupt(pin.segment, offset, source)),
        }
    }

    /// Returns the bytes of the item at `offset` if the header in `page` says that the item is longer than a page.
    pub(super) fn large_at(&self, offset: u32, page: &[u8]) -> Option<u32> {
        let body = (offset % PAGE_BYTES) as usize + CHECKSUM_BYTES;
        let (header, _) = ItemHeader::ref_from_prefix(page.get(body..)?).ok()?;
        let bytes = u32::try_from(CHECKSUM_BYTES + header.body_bytes()).ok()?;
        let is_large = bytes > PAGE_BYTES
            && offset.is_multiple_of(LARGE_UNIT_BYTES)
            && bytes <= largest_item(self.segment_bytes).saturating_sub(offset);
        is_large.then_some(bytes)
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

    /// Returns whether the pinned segment is in a buffer.
    pub(crate) fn is_in_memory(&self, pin: &SegmentPin<'_>) -> bool {
        self.content_of(pin).is_some()
    }

    /// Returns the buffer of the pinned segment; `None` when the segment has no buffer any more.
    pub(super) fn content_of(&self, pin: &SegmentPin<'_>) -> Option<MutexGuard<'_, Content>> {
        let number = self.segment(pin.segment).buffer.load(Ordering::Acquire);
        let content = self.buffers[usize::from(number).checked_sub(1)?].lock();
        let segment = match &*content {
            Content::Filling(filling) => Some(filling.segment),
            Content::Sealed { segment, .. } => Some(*segment),
            Content::Free(_) | Content::Lost => None,
        };
        // Otherwise the segment has been written since, and the buffer belongs to another one.
        (segment == Some(pin.segment)).then_some(content)
    }

    /// Returns the summary of a pinned segment, from memory or from flash, in the order in which the items lie; `None`
    /// if it is lost.
    ///
    /// The error of the device, while it may be transient.
    pub(crate) async fn summary_unless_lost(
        &self,
        pin: &SegmentPin<'_>,
    ) -> Result<Option<Vec<SummaryEntry>>, DeviceError> {
        if let Some(entries) = self.summary_in_memory(pin) {
            return Ok(Some(entries));
        }
        let record = self.record(pin.segment);
        let (offset, len) = self.tail(&record);
        let read = self.read_range(record.segment, offset, len).await;
        let read = self.outages.unless_lost(&record, offset, read)?;
        let tail = read.map(|bytes| self.decode_tail(&record, &bytes));
        Ok(tail.and_then(Result::ok).map(|(_, entries)| entries))
    }

    /// Reads the summary of a written segment, with repeated reads as in [`read_patiently`](Self::read_patiently).
    ///
    /// # Errors
    /// As for [`read_summary`](SegmentStore::read_summary).
    pub(crate) async fn read_summary_patiently(
        &self,
        record: &SegmentRecord,
    ) -> Result<Vec<SummaryEntry>, ReadError> {
        let (offset, len) = self.tail(record);
        let bytes = self.read_patiently(record.segment, offset, len).await?;
        let (_, entries) = self.decode_tail(record, &bytes)?;
        Ok(entries)
    }

    /// Reads the summary of a written segment, in the order in which the items lie.
    ///
    /// # Errors
    /// [`ReadError`]; a summary that does not verify is counted as one corrupt item.
    pub async fn read_summary(
        &self,
        record: &SegmentRecord,
    ) -> Result<Vec<SummaryEntry>, ReadError> {
        self.read_tail(record).await.map(|(_, entries)| entries)
    }

    /// Reads the footer and the summary of a written segment, the summary in the order in which the items lie.
    ///
    /// # Errors
    /// As for [`read_summary`](SegmentStore::read_summary).
    pub async fn read_tail(
        &self,
        record: &SegmentRecord,
    ) -> Result<(Footer, Vec<SummaryEntry>), ReadError> {
        let (offset, len) = self.tail(record);
        let bytes = self.read_range(record.segment, offset, len).await?;
        self.decode_tail(record, &bytes)
    }

    /// Returns the offset and the length, in bytes, of the pages with the footer and the summary.
    fn tail(&self, record: &SegmentRecord) -> (u32, usize) {
        let len = (record.items * SUMMARY_ENTRY_BYTES + FOOTER_BYTES)
            .next_multiple_of(PAGE_BYTES)
            .min(self.segment_bytes);
        (self.segment_bytes - len, len as usize)
    }

    fn decode_tail(
        &self,
        record: &SegmentRecord,
        bytes: &[u8],
    ) -> Result<(Footer, Vec<SummaryEntry>), ReadError> {
        let offset = self.segment_bytes - bytes.len() as u32;
        decode_tail(bytes, record.segment.0, record.sequence, self.segment_bytes)
            .map_err(|source| self.corrupt(record.segment, offset, source))
    }

    /// Counts a read of bytes that do not verify, and returns its error.
    fn corrupt(&self, segment: SegmentId, offset: u32, source: FormatError) -> ReadError {
        self.counters.corrupt_items.add(1);
        ReadError::Corrupt {
            segment: segment.0,
            offset,
            source,
        }
    }

    /// Waits before a step that failed at a start is tried again; returns `false` if it is not to be.
    pub(crate) async fn wait_to_try_again(&self, error: &DeviceError) -> bool {
        self.outages.wait_to_read_again(error).await
    }

    /// Reads like [`read_range`](Self::read_range); repeats the read for as long as [`Outages`](super::outage::Outages)
    /// allows.
    ///
    /// As for [`read_range`](Self::read_range).
    pub(crate) async fn read_patiently(
        &self,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<AlignedBuf, DeviceError> {
        loop {
            match self.read_range(segment, offset, len).await {
                Err(error) if self.outages.wait_to_read_again(&error).await => {}
                read => return read,
            }
        }
    }

    /// Reads whole pages of a segment that is on flash.
    ///
    /// The error of the device; counted here.
    pub async fn read_range(
        &self,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<AlignedBuf, DeviceError> {
        work::count(Work::DeviceCommand, 1);
        let buf = AlignedBuf::new(len);
        self.counters.reads.add(1);
        self.counters.bytes_read.add(buf.len() as u64);
        let read = self.flash.read(block(segment), offset, buf).await;
        self.counters.read_errors.add(u64::from(read.is_err()));
        read
    }
}
