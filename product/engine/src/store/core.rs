//! [`SegmentStore`]: its parts, and what ties them.

use std::sync::Arc;
use std::time::Duration;

use super::append::Appender;
use super::blocks::{Blocks, StoreFlash};
use super::buffers::Buffers;
use super::counters::StoreCounters;
use super::doubt::Syncs;
use super::filling::FLUSH_BYTES;
use super::flush::Flusher;
use super::layout::{SlotPages, StreamLayout, Streams};
use super::parts::Parts;
use super::pool::SegmentPool;
use super::read::Reader;
use super::segment::SegmentRecord;
use super::table::SegmentTable;
use super::write::Writer;
use crate::format::location::LocationCodec;

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
    /// Time that a request waits for the device to answer a read.
    pub read_patience: Duration,
    /// Bytes of one program.
    pub write_bytes: u32,
    /// Whether the reads of each segment are counted.
    pub counts_reads: bool,
}

/// The segments of one flash device. Shared by all threads.
///
/// Each part has its own invariant; the store makes the parts and holds what needs several of them.
pub struct SegmentStore {
    /// Packs segment and position into as few bits as the flash needs.
    pub(crate) codec: LocationCodec,
    parts: Parts,
    appender: Arc<Appender>,
    reader: Reader,
    syncs: Arc<Syncs>,
    flusher: Arc<Flusher>,
    writer: Writer,
}

impl SegmentStore {
    /// Returns the store of `flash`, with one segment in each block. All are free, except those on bad blocks.
    ///
    /// When there are no buffers or more than 254: the configuration checks that.
    pub(crate) fn new(flash: StoreFlash, streams: Arc<dyn Streams>, config: &StoreConfig) -> Self {
        assert!((1..=254).contains(&config.buffers), "1 to 254 buffers");
        let geometry = flash.segments.geometry();
        let segment_bytes =
            u32::try_from(geometry.block_bytes()).expect("blocks are smaller than 4 GiB");
        let slot_pages = SlotPages::of(&geometry);
        let counters = Arc::new(StoreCounters::default());
        let table = Arc::new(SegmentTable::new(
            geometry.blocks(),
            segment_bytes,
            slot_pages,
            config.image,
            config.counts_reads,
        ));
        let blocks = Arc::new(Blocks::new(flash, Arc::clone(&counters)));
        let pool = Arc::new(SegmentPool::new(
            Arc::clone(&table),
            Arc::clone(&blocks),
            Arc::clone(&counters),
            config.first_sequence,
            streams.priorities(),
        ));
        let parts = Parts {
            buffers: Arc::new(Buffers::new(config.buffers, Arc::clone(&table))),
            table,
            blocks,
            pool,
            counters,
        };
        let has_hashed = streams.layouts().contains(&StreamLayout::Hashed);
        let appender = Appender::new(streams, slot_pages, config.first_sequence, &parts);
        let appender = Arc::new(appender);
        let syncs = Syncs::new(config.first_sequence, Arc::clone(&appender), &parts);
        let syncs = Arc::new(syncs);
        let flusher = Arc::new(Flusher::new(has_hashed, Arc::clone(&syncs), &parts));
        let write_bytes = config.write_bytes.next_multiple_of(geometry.page_bytes) as usize;
        let writer = Writer::new(
            write_bytes,
            Arc::clone(&flusher),
            Arc::clone(&syncs),
            &parts,
        );
        Self {
            codec: LocationCodec::new(geometry.blocks(), segment_bytes),
            reader: Reader::new(
                config.large_read_bytes,
                config.small_read_bytes,
                config.read_patience,
                &parts,
            ),
            parts,
            appender,
            syncs,
            flusher,
            writer,
        }
    }

    /// Returns the state of every segment.
    pub fn table(&self) -> &SegmentTable {
        &self.parts.table
    }

    /// Returns the erase blocks of the flash.
    pub fn blocks(&self) -> &Blocks {
        &self.parts.blocks
    }

    /// Returns the segments in memory.
    pub fn buffers(&self) -> &Buffers {
        &self.parts.buffers
    }

    /// Returns the queues of the segments.
    pub fn pool(&self) -> &SegmentPool {
        &self.parts.pool
    }

    /// Returns the part that fills segments.
    pub fn appender(&self) -> &Appender {
        &self.appender
    }

    /// Returns the part that reads items.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the part that syncs the flash.
    pub fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    /// Returns the part that writes parts of segments.
    pub(crate) fn flusher(&self) -> &Flusher {
        &self.flusher
    }

    /// Returns the part that writes sealed segments.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Returns the counters.
    pub fn counters(&self) -> &StoreCounters {
        &self.parts.counters
    }

    /// Returns the bytes of memory in use: buffers, a piece of a segment being flushed, and the segment table.
    pub(crate) fn memory_bytes(&self) -> usize {
        let table = self.table();
        self.buffers().count() * table.segment_bytes() as usize
            + FLUSH_BYTES as usize
            + table.memory_bytes()
    }

    /// Takes the written segment with the lowest sequence number, unless a segment in memory has a lower one. Seals the
    /// segments being filled if one of them is older than all written ones.
    pub(crate) fn take_in_order(&self) -> Option<SegmentRecord> {
        let unwritten = self.buffers().in_memory();
        let oldest = unwritten.iter().map(|record| record.sequence).min();
        let taken = self.pool().take_oldest(oldest);
        if taken.is_none() && self.pool().counts().written > 0 && self.is_filling_older() {
            self.appender.flush();
        }
        taken.map(|segment| self.table().record(segment))
    }

    /// Returns whether a segment being filled was opened before the oldest written one.
    fn is_filling_older(&self) -> bool {
        let written = self.pool().written();
        let oldest = written.first().map_or(0, |record| record.sequence);
        self.buffers().is_filling_before(oldest)
    }
}
