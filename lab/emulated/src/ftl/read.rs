//! Reading: pages are looked up and handed to their channels, in order.

use runtime::sync::Permit;

use super::{Drive, Run};
use crate::nand::Pending;
use device::{AlignedBuf, DeviceError};

/// Reads in progress, with their slots on the channels.
type Reading<'a> = Vec<(Pending<'a>, Option<Permit>)>;

impl Drive {
    /// Fills `buf` from `offset`. Pages that are not stored read as zeros.
    pub(super) async fn read_pages(
        &self,
        offset: u64,
        mut buf: AlignedBuf,
    ) -> Result<AlignedBuf, DeviceError> {
        let _place = self.host.queue.acquire().await;
        let link = self.host.cross(buf.len()).await;
        let mut reading = Reading::new();
        for run in self.runs_of(offset, &mut buf) {
            let permit = self.channel_turn(&run, &mut reading).await?;
            if let Some(pending) = self.start_run(offset, &run, &mut buf)? {
                reading.push((pending, permit));
            }
        }
        drop(link);
        finish(&mut reading).await?;
        Ok(buf)
    }

    /// Returns the locations of the pages to read. Fills cached pages from the cache, and pages without a location with zeros.
    fn runs_of(&self, offset: u64, buf: &mut AlignedBuf) -> Vec<Run> {
        let page_bytes = self.page_bytes as u64;
        let first = (offset / page_bytes) as u32;
        let end = (offset + buf.len() as u64).div_ceil(page_bytes) as u32;
        let mut runs = Vec::new();
        let state = self.state.lock();
        for (at, logical) in (first..end).enumerate() {
            let (from, to, within) = self.part(offset, buf.len(), logical);
            let bytes = &mut buf[from..to];
            if state.cache.read(logical, within, bytes) {
                continue;
            }
            match state.map.lookup(logical) {
                Some(page) => Run::add(&mut runs, self.pages_per_group, page, (logical, at)),
                None => {
                    bytes.fill(0);
                    state.cache.read(logical, within, bytes);
                }
            }
        }
        runs
    }

    /// Returns the range of a logical page's bytes in a buffer of `len` bytes that begins at `offset`, and the first byte within
    /// the page.
    pub(super) fn part(&self, offset: u64, len: usize, logical: u32) -> (usize, usize, usize) {
        let begin = u64::from(logical) * self.page_bytes as u64;
        let from = begin.max(offset);
        let to = (begin + self.page_bytes as u64).min(offset + len as u64);
        (
            (from - offset) as usize,
            (to - offset) as usize,
            (from - begin) as usize,
        )
    }

    /// Acquires a slot on the channel of a run, if slots are bounded. If none is free, first waits for this command's own reads
    /// in progress.
    async fn channel_turn(
        &self,
        run: &Run,
        reading: &mut Reading<'_>,
    ) -> Result<Option<Permit>, DeviceError> {
        let channel = self.state.lock().map.shape().channel_of(run.first);
        let Some(places) = self.host.channel(channel) else {
            return Ok(None);
        };
        if let Some(permit) = places.try_acquire() {
            return Ok(Some(permit));
        }
        finish(reading).await?;
        loop {
            if let Some(permit) = places.try_acquire() {
                return Ok(Some(permit));
            }
            self.host.wait_to_retry().await;
        }
    }

    /// Starts the read of a run and copies its bytes at once. A page that has moved in between is read from its new location.
    /// Returns `None` if every page has been discarded.
    fn start_run(
        &self,
        offset: u64,
        run: &Run,
        buf: &mut AlignedBuf,
    ) -> Result<Option<Pending<'_>>, DeviceError> {
        let state = self.state.lock();
        let mut first = None;
        for (at, &(logical, _)) in run.pages.iter().enumerate() {
            let (from, to, within) = self.part(offset, buf.len(), logical);
            let bytes = &mut buf[from..to];
            match state.map.lookup(logical) {
                None => bytes.fill(0),
                Some(page) => {
                    first = first.or(Some((page, page == run.page(at))));
                    let (block, number) = self.block_page(page);
                    let byte = number as usize * self.page_bytes + within;
                    self.nand.load(block, byte, bytes)?;
                }
            }
            state.cache.read(logical, within, bytes);
        }
        // The time is that of the planned run, or of one page if the run has moved.
        match first {
            None => Ok(None),
            Some((page, true)) if page == run.first => {
                let count = run.pages.len() as u32;
                self.nand.start_read(self.rows(page, count)).map(Some)
            }
            Some((page, _)) => self.nand.start_read(self.rows(page, 1)).map(Some),
        }
    }
}

/// Waits for all reads in progress.
async fn finish(reading: &mut Reading<'_>) -> Result<(), DeviceError> {
    for (pending, _permit) in reading.drain(..) {
        pending.wait().await?;
    }
    Ok(())
}
