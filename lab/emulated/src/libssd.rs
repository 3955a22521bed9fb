//! [`Libssd`]: a [`Nand`] in segments, as presented to the cache by `DIDACache`'s library of that name (TOS '18, section 4.2).
//!
//! A segment is a fixed set of blocks, found by arithmetic ([`SegmentShape`]). It is read and written in pages, erased whole, and
//! looks like one erase block of a [`Flash`]. A segment with a bad block is bad: [`health`](Flash::health) reports it from the
//! start, and the segment store leaves it out. The device itself records its bad blocks, so that they survive a restart whenever
//! the device does.

use std::sync::Arc;

use crate::nand::{ConfigError, Nand, Pending, Rows};
use device::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Flash, Geometry, IoFuture, Operation,
    PAGE_BYTES, SharedBuf,
};

/// The blocks of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentShape {
    /// One block: the paper's choice.
    Block,
    /// One block of each plane of a LUN, neighbours, programmed together.
    Planes,
    /// The block with the same number on every channel, written page by page round robin.
    Channels,
}

/// A NAND device in segments. Its [`BlockId`]s name segments.
#[derive(Clone, Debug)]
pub struct Libssd {
    nand: Arc<Nand>,
    shape: SegmentShape,
    /// Number of neighbouring blocks of a LUN that belong to one segment.
    planes: u32,
    geometry: Geometry,
}

/// The share of one LUN in a run of a segment's pages: the pages `page`, `page + step`, `page + 2 step` and so on of the run, at
/// `rows`.
struct Part {
    rows: Rows,
    page: u32,
    step: u32,
}

impl Libssd {
    /// Divides `nand` into segments of that shape.
    ///
    /// # Errors
    /// When a segment would have 4 GiB or more.
    pub fn new(nand: Arc<Nand>, shape: SegmentShape) -> Result<Self, ConfigError> {
        let raw = nand.geometry();
        let planes = match shape {
            SegmentShape::Planes => nand.config().planes,
            SegmentShape::Block | SegmentShape::Channels => 1,
        };
        let channels = match shape {
            SegmentShape::Channels => raw.channels,
            SegmentShape::Block | SegmentShape::Planes => 1,
        };
        let geometry = Geometry {
            channels: raw.channels / channels,
            blocks_per_lun: raw.blocks_per_lun / planes,
            pages_per_block: raw.pages_per_block * planes * channels,
            ..raw
        };
        let (value, limit) = (geometry.block_bytes(), u64::from(u32::MAX));
        if value > limit {
            let what = "bytes a segment";
            return Err(ConfigError::TooMany { what, value, limit });
        }
        Ok(Self {
            nand,
            shape,
            planes,
            geometry,
        })
    }

    /// Returns the device.
    pub fn nand(&self) -> &Arc<Nand> {
        &self.nand
    }

    /// Returns the first block of a segment on each of its LUNs.
    fn first_blocks(&self, segment: BlockId) -> Vec<BlockId> {
        let channels = self.nand.geometry().channels / self.geometry.channels;
        let per_channel = self.geometry.luns_per_channel * self.geometry.blocks_per_lun;
        (0..channels)
            .map(|channel| BlockId(channel * per_channel + segment.0 * self.planes))
            .collect()
    }

    /// Returns the blocks of a segment.
    pub fn blocks_of(&self, segment: BlockId) -> Vec<BlockId> {
        self.first_blocks(segment)
            .into_iter()
            .flat_map(|first| (first.0..first.0 + self.planes).map(BlockId))
            .collect()
    }

    /// Returns the parts, one for each LUN, of `count` pages of a segment from `first` on.
    fn parts(&self, segment: BlockId, first: u32, count: u32) -> Vec<Part> {
        let first_blocks = self.first_blocks(segment);
        let step = first_blocks.len() as u32;
        let part = |page: u32| {
            let at = first + page;
            Part {
                rows: Rows {
                    first_block: first_blocks[(at % step) as usize],
                    planes: self.planes,
                    first: at / step,
                    count: (count - page).div_ceil(step),
                },
                page,
                step,
            }
        };
        (0..count.min(step)).map(part).collect()
    }

    fn check(
        &self,
        operation: Operation,
        segment: BlockId,
        offset: u64,
        len: usize,
        unit: usize,
    ) -> Result<(), DeviceError> {
        let is_whole = offset.is_multiple_of(unit as u64) && len.is_multiple_of(unit);
        let is_within = offset + len as u64 <= self.geometry.block_bytes();
        if segment.0 < self.geometry.blocks() && is_whole && is_within {
            return Ok(());
        }
        let start = u64::from(segment.0) * self.geometry.block_bytes();
        Err(DeviceError::address(operation, start + offset, len))
    }

    async fn wait_all(pending: Vec<Pending<'_>>) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for pending in pending {
            outcome = outcome.and(pending.wait().await);
        }
        outcome
    }
}

impl Flash for Libssd {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, segment: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        if self.shape == SegmentShape::Block {
            return self.nand.read(segment, offset, buf);
        }
        let mut buf = buf;
        Box::pin(async move {
            let offset = u64::from(offset);
            self.check(Operation::Read, segment, offset, buf.len(), PAGE_BYTES)?;
            let page_bytes = self.geometry.page_bytes as usize;
            let first = (offset / page_bytes as u64) as u32;
            let skipped = (offset % page_bytes as u64) as usize;
            let count = (skipped + buf.len()).div_ceil(page_bytes) as u32;
            let mut reading = Vec::new();
            for part in self.parts(segment, first, count) {
                reading.push(self.nand.start_read(part.rows)?);
                for row in 0..part.rows.count {
                    let (block, page) = part.rows.place(part.rows.first + row);
                    // Offset of the page among the bytes asked for; the first page may be cut off.
                    let at = (part.page + row * part.step) as usize * page_bytes;
                    let from = at.max(skipped);
                    let to = (at + page_bytes).min(skipped + buf.len());
                    let within = page as usize * page_bytes + (from - at);
                    let into = &mut buf[from - skipped..to - skipped];
                    self.nand.load(block, within, into)?;
                }
            }
            Self::wait_all(reading).await?;
            Ok(buf)
        })
    }

    fn program(&self, segment: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        if self.shape == SegmentShape::Block {
            return self.nand.program(segment, first_page, data);
        }
        Box::pin(async move {
            let page_bytes = self.geometry.page_bytes as usize;
            let offset = u64::from(first_page) * page_bytes as u64;
            self.check(Operation::Write, segment, offset, data.len(), page_bytes)?;
            let count = (data.len() / page_bytes) as u32;
            let mut programming = Vec::new();
            for part in self.parts(segment, first_page, count) {
                programming.push(self.nand.start_program(part.rows, &[])?);
                for row in 0..part.rows.count {
                    let (block, page) = part.rows.place(part.rows.first + row);
                    let at = (part.page + row * part.step) as usize * page_bytes;
                    self.nand.store(block, page, &data[at..at + page_bytes])?;
                }
            }
            drop(data);
            Self::wait_all(programming).await
        })
    }

    fn erase(&self, segment: BlockId) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.check(Operation::Erase, segment, 0, 0, PAGE_BYTES)?;
            let mut erasing = Vec::new();
            for first in self.first_blocks(segment) {
                erasing.push(self.nand.start_erase(first, self.planes)?);
            }
            Self::wait_all(erasing).await
        })
    }

    fn health(&self, segment: BlockId) -> BlockHealth {
        let mut healths = self
            .blocks_of(segment)
            .into_iter()
            .map(|block| self.nand.health(block));
        let bad = healths.find(|&health| health == BlockHealth::Bad);
        bad.unwrap_or(BlockHealth::Good)
    }

    fn erase_count(&self, segment: BlockId) -> u64 {
        let blocks = self.blocks_of(segment);
        let counts = blocks.iter().map(|&block| self.nand.erase_count(block));
        counts.max().unwrap_or(0)
    }

    fn channel_load(&self, channel: u32) -> u64 {
        match self.shape {
            SegmentShape::Block | SegmentShape::Planes => self.nand.channel_load(channel),
            SegmentShape::Channels => self.nand.counts().busy_ns,
        }
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.nand.sync()
    }
}
