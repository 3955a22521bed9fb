//! Reading: pages are looked up and handed to their channels, in order.

use runtime::sync::Permit;

use super::drive::Drive;
use super::pages::Run;
use crate::nand::Pending;
use device::{AlignedBuf, DeviceError};

/// Fills `buf` from `offset`. Pages that are not stored read as zeros.
pub(super) async fn read_pages(
    drive: &Drive,
    offset: u64,
    mut buf: AlignedBuf,
) -> Result<AlignedBuf, DeviceError> {
    let _place = drive.host.queue.acquire().await;
    let link = drive.host.cross(buf.len()).await;
    let mut read = Read {
        drive,
        offset,
        reading: Vec::new(),
    };
    for run in read.runs_of(&mut buf) {
        let permit = read.channel_turn(&run).await?;
        if let Some(pending) = read.start_run(&run, &mut buf)? {
            read.reading.push((pending, permit));
        }
    }
    drop(link);
    read.finish().await?;
    Ok(buf)
}

/// A read of the host, and its reads of the flash in progress, each with its slot on the channel.
struct Read<'a> {
    drive: &'a Drive,
    offset: u64,
    reading: Vec<(Pending<'a>, Option<Permit>)>,
}

impl<'a> Read<'a> {
    /// Returns the locations of the pages to read. Fills cached pages from the cache, and pages without a location with zeros.
    fn runs_of(&self, buf: &mut AlignedBuf) -> Vec<Run> {
        let flash = &self.drive.flash;
        let mut runs = Vec::new();
        let state = self.drive.state.lock();
        for (at, logical) in flash.touched(self.offset, buf.len()).enumerate() {
            let (from, to, within) = flash.part(self.offset, buf.len(), logical);
            let bytes = &mut buf[from..to];
            if state.cache.read(logical, within, bytes) {
                continue;
            }
            match state.map.lookup(logical) {
                Some(page) => Run::add(&mut runs, flash.pages_per_group, page, (logical, at)),
                None => {
                    bytes.fill(0);
                    state.cache.read(logical, within, bytes);
                }
            }
        }
        runs
    }

    /// Acquires a slot on the channel of a run, if slots are bounded. If none is free, first waits for this command's own reads
    /// in progress.
    async fn channel_turn(&mut self, run: &Run) -> Result<Option<Permit>, DeviceError> {
        let channel = self.drive.state.lock().map.shape().channel_of(run.first);
        let Some(places) = self.drive.host.channel(channel) else {
            return Ok(None);
        };
        if let Some(permit) = places.try_acquire() {
            return Ok(Some(permit));
        }
        self.finish().await?;
        loop {
            if let Some(permit) = places.try_acquire() {
                return Ok(Some(permit));
            }
            self.drive.host.wait_to_retry().await;
        }
    }

    /// Starts the read of a run and copies its bytes at once. A page that has moved in between is read from its new location.
    /// Returns `None` if every page has been discarded.
    fn start_run(
        &self,
        run: &Run,
        buf: &mut AlignedBuf,
    ) -> Result<Option<Pending<'a>>, DeviceError> {
        let flash = &self.drive.flash;
        let state = self.drive.state.lock();
        let mut first = None;
        for (at, &(logical, _)) in run.pages.iter().enumerate() {
            let (from, to, within) = flash.part(self.offset, buf.len(), logical);
            let bytes = &mut buf[from..to];
            match state.map.lookup(logical) {
                None => bytes.fill(0),
                Some(page) => {
                    first = first.or(Some((page, page == run.page(at))));
                    let (block, number) = flash.block_page(page);
                    let byte = number as usize * flash.page_bytes + within;
                    flash.nand.load(block, byte, bytes)?;
                }
            }
            state.cache.read(logical, within, bytes);
        }
        // The time is that of the planned run, or of one page if the run has moved.
        match first {
            None => Ok(None),
            Some((page, true)) if page == run.first => {
                let count = run.pages.len() as u32;
                flash.nand.start_read(flash.rows(page, count)).map(Some)
            }
            Some((page, _)) => flash.nand.start_read(flash.rows(page, 1)).map(Some),
        }
    }

    /// Waits for all reads in progress.
    async fn finish(&mut self) -> Result<(), DeviceError> {
        for (pending, _permit) in self.reading.drain(..) {
            pending.wait().await?;
        }
        Ok(())
    }
}
