//! [`Reader`]: reads one item, from a buffer while its segment is in memory, else with one read of flash.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, Bytes, DeviceError};
use futures_util::future::{Either, select};
use runtime::budget::{Budget, Share};
use zerocopy::FromBytes;

use super::blocks::Blocks;
use super::buffers::Buffers;
use super::counters::StoreCounters;
use super::flash_item::FlashItem;
use super::parts::Parts;
use super::read_patience::ReadPatience;
use super::segment::SegmentRecord;
use super::table::{SegmentPin, SegmentTable};
use super::walk::Walk;
use crate::counter::Count as _;
use crate::format::FormatError;
use crate::format::item::{CHECKSUM_BYTES, ItemHeader, ItemRef, is_page_end};
use crate::format::run_header::RunHeader;
use crate::format::segment::{
    FOOTER_BYTES, Footer, PAGE_BYTES, Position, SUMMARY_ENTRY_BYTES, SegmentId, SummaryEntry,
    UNIT_BYTES, decode_tail, largest_item, may_start_large,
};
use crate::key::HashSeed;

/// Longest read, in bytes, that does not wait behind longer ones.
const SMALL_READ_BYTES: usize = PAGE_BYTES as usize;

/// Bytes of a segment read at once to find the items that its summary does not list.
const WALK_BYTES: usize = 256 << 10;

/// Time that a read may wait for its share of the memory.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// Whether a read waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits in line.
    Waits,
    /// Does not wait: the reader needs other items first, and its memory would be held while other reads wait for it.
    ReadsAhead,
    /// Waits in line, and for as long as the device takes: no request waits for the read.
    Endless,
}

/// Reason for which an item could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device has not answered in time, or does not answer any read.
    #[error("flash does not answer")]
    NoAnswer,
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

/// A read whose buffer holds a share of a budget. It is abandoned if this is dropped before it is over. Of one that fails the share
/// has gone with its buffer, and both are noted.
struct Awaited<'a> {
    budget: &'a Budget,
    bytes: u64,
    is_over: bool,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.budget.abandon(self.bytes);
        }
    }
}

/// Reads items and summaries of pinned segments, and verifies them.
///
/// Returned items verify. The bytes that items being read hold in memory never exceed the two budgets.
pub struct Reader {
    large_reads: Arc<Budget>,
    small_reads: Arc<Budget>,
    patience: ReadPatience,
    index_patience: ReadPatience,
    table: Arc<SegmentTable>,
    blocks: Arc<Blocks>,
    buffers: Arc<Buffers>,
    counters: Arc<StoreCounters>,
}

impl Reader {
    pub(super) fn new(
        large_read_bytes: u64,
        small_read_bytes: u64,
        patience: Duration,
        parts: &Parts,
    ) -> Self {
        Self {
            large_reads: Arc::new(Budget::new(large_read_bytes)),
            small_reads: Arc::new(Budget::new(small_read_bytes)),
            patience: ReadPatience::new("flash", patience),
            index_patience: ReadPatience::new("the index on flash", patience),
            table: Arc::clone(&parts.table),
            blocks: Arc::clone(&parts.blocks),
            buffers: Arc::clone(&parts.buffers),
            counters: Arc::clone(&parts.counters),
        }
    }

    /// Takes the memory for a read at `position`. Must be called before the segment is pinned, so that a reader that
    /// waits for memory delays nobody who waits for the segment.
    ///
    /// # Errors
    /// [`ReadError::NoMemory`], and [`ReadError::NoAnswer`] if the device hangs meanwhile.
    pub async fn read_memory(
        &self,
        segment: SegmentId,
        position: Position,
        patience: Patience,
    ) -> Result<Share, ReadError> {
        self.share(self.table.read_bytes(segment, position), patience)
            .await
    }

    fn budget(&self, bytes: usize) -> &Arc<Budget> {
        match bytes > SMALL_READ_BYTES {
            true => &self.large_reads,
            false => &self.small_reads,
        }
    }

    fn empty_share(&self, bytes: usize) -> Share {
        Share::empty(self.budget(bytes))
    }

    async fn share(&self, bytes: usize, patience: Patience) -> Result<Share, ReadError> {
        let mut share = self.empty_share(bytes);
        let has_grown = match patience {
            Patience::ReadsAhead => share.try_grow(bytes as u64),
            Patience::Endless => share.grow(bytes as u64, READ_PATIENCE).await,
            Patience::Waits if share.try_grow(bytes as u64) => true,
            Patience::Waits => {
                // Reads that were given up may hold all the memory.
                let has_abandoned = || self.budget(bytes).has_abandoned();
                let hang = self.patience.hang(has_abandoned);
                let grow = pin!(share.grow(bytes as u64, READ_PATIENCE));
                match select(grow, pin!(hang)).await {
                    Either::Left((has_grown, _)) => has_grown,
                    Either::Right(_) => return Err(ReadError::NoAnswer),
                }
            }
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

    /// Waits for the part of a request that reads an index on flash. `is_answer` says of its outcome whether the device has answered.
    ///
    /// # Errors
    /// [`ReadError::NoAnswer`].
    pub async fn wait_for_index<T>(
        &self,
        look_up: impl Future<Output = T>,
        is_answer: impl Fn(&T) -> bool,
    ) -> Result<T, ReadError> {
        let found = self.index_patience.wait_for(look_up, is_answer).await;
        found.ok_or(ReadError::NoAnswer)
    }

    /// Reads pages of a segment for a request that has the memory for them. The memory goes with the buffer: where the read is
    /// given up, it stays taken until the device answers.
    async fn read_in_time(
        &self,
        segment: SegmentId,
        offset: u32,
        len: usize,
        share: Share,
        patience: Patience,
    ) -> Result<(AlignedBuf, Share), ReadError> {
        let budget = match share.is_of(&self.large_reads) {
            true => &self.large_reads,
            false => &self.small_reads,
        };
        let read = async {
            let mut awaited = Awaited {
                budget,
                bytes: share.bytes(),
                is_over: false,
            };
            let read = self.blocks.read_holding(segment, offset, len, share).await;
            awaited.is_over = read.is_ok();
            read
        };
        let mut buf = match patience {
            Patience::Endless => read.await?,
            Patience::Waits | Patience::ReadsAhead => {
                let read = self.patience.wait_for(read, |_| true).await;
                read.ok_or(ReadError::NoAnswer)??
            }
        };
        let share = buf.let_go().unwrap_or_else(|| self.empty_share(len));
        Ok((buf, share))
    }

    /// Reads the item at `position` of the pinned segment and verifies it, for as long as the device takes.
    ///
    /// # Errors
    /// [`ReadError`]; counted here.
    pub async fn read(
        &self,
        pin: &SegmentPin<'_>,
        position: Position,
    ) -> Result<FlashItem, ReadError> {
        let bytes = self.table.read_bytes(pin.segment, position);
        let mut share = self.empty_share(bytes);
        if !share.grow(bytes as u64, READ_PATIENCE).await {
            return Err(ReadError::NoMemory { bytes });
        }
        let (page, len) = self.pages(pin, position, &mut share)?;
        let buf = match self.buffers.buffered(pin, page, len) {
            Some(buf) => buf,
            None => self.blocks.read_range(pin.segment, page, len).await?,
        };
        self.verified(pin, position.offset(), buf, share)
    }

    /// Reads like [`read`](Self::read), with [memory](Self::read_memory) that has been taken before.
    ///
    /// # Errors
    /// [`ReadError`]; counted here.
    pub async fn read_into(
        &self,
        pin: &SegmentPin<'_>,
        position: Position,
        mut share: Share,
    ) -> Result<FlashItem, ReadError> {
        let (page, len) = self.pages(pin, position, &mut share)?;
        let (buf, share) = match self.buffers.buffered(pin, page, len) {
            Some(buf) => (buf, share),
            None => {
                self.read_in_time(pin.segment, page, len, share, Patience::Waits)
                    .await?
            }
        };
        self.verified(pin, position.offset(), buf, share)
    }

    /// Counts a read at `position`. Returns the offset of the first page and the length.
    fn pages(
        &self,
        pin: &SegmentPin<'_>,
        position: Position,
        share: &mut Share,
    ) -> Result<(u32, usize), ReadError> {
        self.table.count_read(pin.segment);
        let offset = position.offset();
        if offset >= self.table.data_bytes(pin.segment) {
            let segment = pin.segment.0;
            return Err(ReadError::Unwritten { segment, offset });
        }
        let page = offset / PAGE_BYTES * PAGE_BYTES;
        let len = self.table.read_bytes(pin.segment, position);
        // The length has grown if the segment has been opened again, for longer slots, since the memory was taken.
        if !share.try_grow(len as u64) {
            return Err(ReadError::NoMemory { bytes: len });
        }
        Ok((page, len))
    }

    /// Returns the item that starts at `offset` of a generation of a segment, whatever its key and length, with the pin
    /// that keeps the segment. `None` if the generation has ended or no item starts there; that is no damage and is not
    /// counted as such. Reads one page; an item that is longer is read a second time, whole.
    ///
    /// Waits for memory as `patience` says, with no segment pinned.
    ///
    /// [`ReadError::NoMemory`], and the errors of the device.
    pub async fn find_at(
        &self,
        segment: SegmentId,
        generation: u64,
        offset: u32,
        patience: Patience,
    ) -> Result<Option<(SegmentPin<'_>, FlashItem)>, ReadError> {
        let mut position = Position::of_slot(offset);
        loop {
            let share = self.read_memory(segment, position, patience).await?;
            let Some(pin) = self.table.pin(segment, generation) else {
                return Ok(None);
            };
            if offset >= self.table.data_bytes(segment) {
                return Ok(None);
            }
            let page = offset / PAGE_BYTES * PAGE_BYTES;
            let bytes = self.table.read_bytes(segment, position);
            let (buf, share) = match self.buffers.buffered(&pin, page, bytes) {
                Some(buf) => (buf, share),
                None => {
                    self.read_in_time(segment, page, bytes, share, patience)
                        .await?
                }
            };
            let start = (offset - page) as usize;
            if ItemRef::decode(&buf[start..], generation, offset).is_ok() {
                self.table.count_read(segment);
                return Ok(Some((pin, FlashItem::at(buf, start, share))));
            }
            match self.large_at(offset, &buf) {
                Some(bytes) if bytes > PAGE_BYTES && position == Position::of_slot(offset) => {
                    position = Position::new(offset, bytes);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Returns the item that is wanted, and where it lies, among the items that lie in these bytes of a generation of a segment without gaps, except that
    /// none crosses a page; `None` if the generation has ended or the item is not there. Reads the pages of the range, whose
    /// start is that of an item. Waits for memory as `patience` says, with no segment pinned.
    ///
    /// # Errors
    /// [`ReadError::NoMemory`], the errors of the device, and [`ReadError::Corrupt`] if bytes in front of the item do not verify.
    pub(crate) async fn find_among(
        &self,
        segment: SegmentId,
        generation: u64,
        range: Range<u32>,
        is_wanted: impl Fn(&ItemRef<'_>) -> bool,
        patience: Patience,
    ) -> Result<Option<(Position, FlashItem)>, ReadError> {
        let first = range.start / PAGE_BYTES * PAGE_BYTES;
        let bytes = (range.end - first).next_multiple_of(PAGE_BYTES) as usize;
        let share = self.share(bytes, patience).await?;
        let Some(pin) = self.table.pin(segment, generation) else {
            return Ok(None);
        };
        self.table.count_read(segment);
        let (buf, share) = match self.buffers.buffered(&pin, first, bytes) {
            Some(buf) => (buf, share),
            None => {
                self.read_in_time(segment, first, bytes, share, patience)
                    .await?
            }
        };
        let mut offset = range.start;
        while offset < range.end {
            let start = (offset - first) as usize;
            let next_page = (offset + 1).next_multiple_of(PAGE_BYTES);
            let rest = &buf[start..(next_page - first) as usize];
            if is_page_end(rest, generation, offset) {
                offset = next_page;
                continue;
            }
            match ItemRef::decode(&buf[start..], generation, offset) {
                Ok(item) if is_wanted(&item) => {
                    let position = Position::new(offset, item.flash_bytes() as u32);
                    return Ok(Some((position, FlashItem::at(buf, start, share))));
                }
                Ok(item) => {
                    offset = (offset + item.flash_bytes() as u32).next_multiple_of(UNIT_BYTES);
                }
                Err(source) => return Err(self.corrupt(segment, offset, source)),
            }
        }
        Ok(None)
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
            Err(source) => {
                let error = self.corrupt(pin.segment, offset, source);
                self.counters.items_damaged.add(1);
                tracing::warn!(
                    %error,
                    damaged = self.counters.items_damaged.get(),
                    "another program has overwritten the flash, or the drive has lost data: a damaged item is a miss"
                );
                Err(error)
            }
        }
    }

    /// Returns the bytes of the item at `offset` if the header in `page` says that the item is longer than a page.
    fn large_at(&self, offset: u32, page: &[u8]) -> Option<u32> {
        let body = (offset % PAGE_BYTES) as usize + CHECKSUM_BYTES;
        let (header, _) = ItemHeader::ref_from_prefix(page.get(body..)?).ok()?;
        let bytes = u32::try_from(CHECKSUM_BYTES + header.body_bytes()).ok()?;
        let is_large = bytes > PAGE_BYTES
            && may_start_large(offset, bytes)
            && bytes <= largest_item(self.table.segment_bytes()).saturating_sub(offset);
        is_large.then_some(bytes)
    }

    /// Returns the summary of a pinned segment, from memory or from flash, in the order in which the items lie; `None`
    /// if it is lost.
    ///
    /// The error of the device, while it may be transient.
    pub(crate) async fn summary_unless_lost(
        &self,
        pin: &SegmentPin<'_>,
    ) -> Result<Option<Vec<SummaryEntry>>, DeviceError> {
        if let Some(entries) = self.buffers.summary_in_memory(pin) {
            return Ok(Some(entries));
        }
        let record = self.table.record(pin.segment);
        let (offset, len) = self.tail(&record);
        let read = self.blocks.read_range(record.segment, offset, len).await;
        let read = self.blocks.outages.unless_lost(&record, offset, read)?;
        let tail = read.map(|bytes| self.decode_tail(&record, &bytes));
        Ok(tail.and_then(Result::ok).map(|(_, entries)| entries))
    }

    /// Reads the summary of a written segment, with repeated reads as in [`read_patiently`](Blocks::read_patiently).
    ///
    /// # Errors
    /// As for [`read_summary`](Self::read_summary).
    pub(crate) async fn read_summary_patiently(
        &self,
        record: &SegmentRecord,
    ) -> Result<Vec<SummaryEntry>, ReadError> {
        let (offset, len) = self.tail(record);
        let bytes = self
            .blocks
            .read_patiently(record.segment, offset, len)
            .await?;
        let (_, entries) = self.decode_tail(record, &bytes)?;
        Ok(entries)
    }

    /// Reads a run header of a written segment, with repeated reads as in [`read_patiently`](Blocks::read_patiently).
    ///
    /// # Errors
    /// [`ReadError`]; a header that does not verify is counted as one corrupt item.
    pub(crate) async fn read_run_header(
        &self,
        record: &SegmentRecord,
        position: Position,
    ) -> Result<RunHeader, ReadError> {
        let offset = position.offset();
        let page = offset / PAGE_BYTES * PAGE_BYTES;
        let len = self.table.read_bytes(record.segment, position);
        let bytes = self
            .blocks
            .read_patiently(record.segment, page, len)
            .await?;
        ItemRef::decode(&bytes[(offset - page) as usize..], record.sequence, offset)
            .and_then(|item| RunHeader::decode(item.value))
            .map_err(|source| self.corrupt(record.segment, offset, source))
    }

    /// Returns entries for the items of a pinned segment that its summary, whose entries are `listed`, does not list: for all
    /// that verify, in the order in which they lie.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn unlisted(
        &self,
        pin: &SegmentPin<'_>,
        seed: HashSeed,
        listed: &[SummaryEntry],
    ) -> Result<Vec<SummaryEntry>, ReadError> {
        let mut found = Vec::new();
        let each = |entries: &[SummaryEntry], _: &[u8], _| found.extend_from_slice(entries);
        self.go_through(pin, seed, listed, each).await?;
        Ok(found)
    }

    /// Reads a pinned segment, part by part. Calls `each` with the entries of [`unlisted`](Self::unlisted) items, which are whole
    /// in the part that they are in, with the part, and with its offset.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn go_through(
        &self,
        pin: &SegmentPin<'_>,
        seed: HashSeed,
        listed: &[SummaryEntry],
        mut each: impl FnMut(&[SummaryEntry], &[u8], u32),
    ) -> Result<(), ReadError> {
        let mut walk = Walk::new(pin.sequence, seed, listed);
        let segment_bytes = self.table.segment_bytes();
        for start in (0..segment_bytes).step_by(WALK_BYTES) {
            let len = (segment_bytes - start).min(WALK_BYTES as u32) as usize;
            let part = match self.buffers.buffered(pin, start, len) {
                Some(part) => part,
                None => self.blocks.read_range(pin.segment, start, len).await?,
            };
            walk.go_through(&part, start);
            each(&walk.found, &part, start);
            walk.found.clear();
            runtime::yield_now().await;
        }
        Ok(())
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
    /// As for [`read_summary`](Self::read_summary).
    pub async fn read_tail(
        &self,
        record: &SegmentRecord,
    ) -> Result<(Footer, Vec<SummaryEntry>), ReadError> {
        let (offset, len) = self.tail(record);
        let bytes = self.blocks.read_range(record.segment, offset, len).await?;
        self.decode_tail(record, &bytes)
    }

    /// Reads a written segment whole. Returns its bytes, its footer and its summary.
    ///
    /// # Errors
    /// As for [`read_summary`](Self::read_summary).
    pub(crate) async fn read_whole(
        &self,
        record: &SegmentRecord,
    ) -> Result<(AlignedBuf, Footer, Vec<SummaryEntry>), ReadError> {
        let len = self.table.segment_bytes() as usize;
        let bytes = self.blocks.read_range(record.segment, 0, len).await?;
        let (footer, listed) = self.decode_tail(record, &bytes)?;
        Ok((bytes, footer, listed))
    }

    /// Returns the offset and the length, in bytes, of the pages with the footer and the summary.
    fn tail(&self, record: &SegmentRecord) -> (u32, usize) {
        let len = (record.items * SUMMARY_ENTRY_BYTES + FOOTER_BYTES)
            .next_multiple_of(PAGE_BYTES)
            .min(self.table.segment_bytes());
        (self.table.segment_bytes() - len, len as usize)
    }

    fn decode_tail(
        &self,
        record: &SegmentRecord,
        bytes: &[u8],
    ) -> Result<(Footer, Vec<SummaryEntry>), ReadError> {
        let offset = self.table.segment_bytes() - bytes.len() as u32;
        decode_tail(
            bytes,
            record.segment.0,
            record.sequence,
            self.table.segment_bytes(),
        )
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
}
