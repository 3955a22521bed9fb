//! [`Blocks`]: the commands to the flash.

use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, BlockHealth, BlockId, DeviceError, Flash, SharedBuf};
use runtime::budget::Share;
use runtime::work::{self, Work};

use super::counters::StoreCounters;
use super::outage::Outages;
use crate::counter::{Count as _, Ewma};
use crate::format::segment::SegmentId;

/// Largest number of consecutive bytes in one command to a drive. Work is counted in these commands: flash written page
/// by page then costs the processor no more than a drive does.
const COMMAND_BYTES: u64 = 256 << 10;

/// Returns the number of commands that have begun once `bytes` of a segment are written.
fn commands(bytes: u64) -> u64 {
    bytes.div_ceil(COMMAND_BYTES)
}

/// Returns the erase block of a segment.
fn block(segment: SegmentId) -> BlockId {
    BlockId(segment.0)
}

/// The device of a store.
pub(crate) struct StoreFlash {
    /// The device.
    pub(crate) segments: Arc<dyn Flash>,
    /// The same device for checkpoints, whose programs may go first.
    pub(crate) checkpoints: Arc<dyn Flash>,
}

impl StoreFlash {
    /// Returns a device that treats all programs alike.
    pub(crate) fn of(flash: Arc<dyn Flash>) -> Self {
        Self {
            checkpoints: Arc::clone(&flash),
            segments: flash,
        }
    }
}

/// The erase blocks of the flash: each holds one segment. Every erase, program and read of a segment is a method of this
/// type, and is counted once.
pub struct Blocks {
    flash: Arc<dyn Flash>,
    /// The device for checkpoints.
    checkpoint_flash: Arc<dyn Flash>,
    counters: Arc<StoreCounters>,
    erase_time: Ewma,
    /// Reads that the device has failed.
    pub(super) outages: Outages,
}

impl Blocks {
    pub(super) fn new(flash: StoreFlash, counters: Arc<StoreCounters>) -> Self {
        Self {
            flash: flash.segments,
            checkpoint_flash: flash.checkpoints,
            counters,
            erase_time: Ewma::default(),
            outages: Outages::default(),
        }
    }

    /// Returns the device.
    pub(super) fn flash(&self) -> &dyn Flash {
        &*self.flash
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
        self.read(segment, offset, AlignedBuf::new(len)).await
    }

    /// Reads like [`read_range`](Self::read_range), into a buffer that holds this share of memory.
    ///
    /// As for [`read_range`](Self::read_range).
    pub(super) async fn read_holding(
        &self,
        segment: SegmentId,
        offset: u32,
        len: usize,
        share: Share,
    ) -> Result<AlignedBuf, DeviceError> {
        let mut buf = AlignedBuf::new(len);
        buf.hold(share);
        self.read(segment, offset, buf).await
    }

    async fn read(
        &self,
        segment: SegmentId,
        offset: u32,
        buf: AlignedBuf,
    ) -> Result<AlignedBuf, DeviceError> {
        work::count(Work::DeviceCommand, 1);
        self.counters.reads.add(1);
        self.counters.bytes_read.add(buf.len() as u64);
        let read = self.flash.read(block(segment), offset, buf).await;
        self.counters.read_errors.add(u64::from(read.is_err()));
        read
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

    /// Waits before a step that failed at a start is tried again; returns `false` if it is not to be.
    pub async fn wait_to_try_again(&self, error: &DeviceError) -> bool {
        self.outages.wait_to_read_again(error).await
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
        self.program_on(&*self.flash, segment, first_page, data)
            .await
    }

    /// Programs the next pages of a segment with a part of a checkpoint.
    pub(super) async fn program_checkpoint(
        &self,
        segment: SegmentId,
        first_page: u32,
        data: SharedBuf,
    ) -> Result<(), DeviceError> {
        self.program_on(&*self.checkpoint_flash, segment, first_page, data)
            .await
    }

    async fn program_on(
        &self,
        flash: &dyn Flash,
        segment: SegmentId,
        first_page: u32,
        data: SharedBuf,
    ) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        let before = u64::from(first_page) * u64::from(self.flash.geometry().page_bytes);
        let begun = commands(before + bytes) - commands(before);
        work::count(Work::DeviceCommand, begun);
        flash.program(block(segment), first_page, data).await?;
        self.counters.bytes_written.add(bytes);
        Ok(())
    }

    /// Writes whole pages of a segment, at `offset` bytes from its start, that may have been written before.
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

    /// Returns the erases of the block of a segment, as the device counts them.
    pub(super) fn erase_count(&self, segment: SegmentId) -> u64 {
        self.flash.erase_count(block(segment))
    }

    /// Returns the erases of a segment's block caused by use: all but the first.
    pub(super) fn erases_of_use(&self, segment: SegmentId) -> u64 {
        self.erase_count(segment).saturating_sub(1)
    }

    /// Returns whether the block of a segment has gone bad.
    pub(super) fn is_bad(&self, segment: SegmentId) -> bool {
        self.flash.health(block(segment)) == BlockHealth::Bad
    }
}
