//! Writing with a cache: data that have crossed the link are acknowledged from the cache, and lanes program them.
//!
//! A lane takes a stripe of pages in turn, writes it like a command of the host, with GC if necessary, and takes the next stripe.
//! Lanes start while pages wait and the flash has too few programs to stay busy ([`ROWS_A_LUN`]). A lane ends when it finds no
//! page to take.
//!
//! Invariants: while a page waits, a lane runs or the cache has failed, unless the thread that drove the lane has ended; the next
//! task that waits for the cache then starts another lane. Failure: a lane that finds too few blocks, or whose program a power
//! cut interrupts, gives its pages back to the cache, and all later writes and syncs fail.

use std::sync::Arc;

use super::cache::Failure;
use super::write::SLICE_BYTES;
use super::{Drive, State};
use device::{DeviceError, Operation};

/// Rows that keep a LUN busy: one in the cells and one that waits.
const ROWS_A_LUN: usize = 2;

/// A task that programs waiting pages of the cache.
struct Lane {
    drive: Arc<Drive>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.drive.state.lock().cache.lanes -= 1;
        self.drive.changed.notify_all();
    }
}

impl Drive {
    pub(super) fn has_cache(&self) -> bool {
        self.state.lock().cache.is_there()
    }

    /// Writes `data` at `offset` into the cache. Waits while the cache is full.
    pub(super) async fn write_to_cache(
        self: &Arc<Self>,
        offset: u64,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let _place = self.host.queue.acquire().await;
        self.state.lock().counts.host_bytes_written += data.len() as u64;
        let slice_bytes = SLICE_BYTES.next_multiple_of(self.page_bytes);
        for first in (0..data.len()).step_by(slice_bytes) {
            let slice = &data[first..data.len().min(first + slice_bytes)];
            drop(self.host.cross(slice.len()).await);
            let _turn = self.cache_entrance.acquire().await;
            self.put_into_cache(offset + first as u64, slice).await?;
        }
        Ok(())
    }

    async fn put_into_cache(self: &Arc<Self>, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let page_bytes = self.page_bytes as u64;
        let end = (offset + data.len() as u64).div_ceil(page_bytes);
        for logical in (offset / page_bytes..end).map(|logical| logical as u32) {
            let (from, to, within) = self.part(offset, data.len(), logical);
            loop {
                let changed = self.changed.listener();
                {
                    let mut state = self.state.lock();
                    if let Some(failure) = state.cache.failure {
                        return Err(failure.error(Operation::Write, offset, data.len()));
                    }
                    if state.cache.write(logical, within, &data[from..to]) {
                        break;
                    }
                }
                self.start_lane();
                changed.await;
            }
        }
        self.start_lane();
        Ok(())
    }

    /// Waits until every acknowledged write is in flash.
    pub(super) async fn sync_cache(self: &Arc<Self>) -> Result<(), DeviceError> {
        let last = self.state.lock().cache.last_arrival();
        loop {
            let changed = self.changed.listener();
            {
                let state = self.state.lock();
                if state.cache.is_in_flash(last) {
                    return Ok(());
                }
                if let Some(failure) = state.cache.failure {
                    return Err(failure.error(Operation::Sync, 0, 0));
                }
            }
            self.start_lane();
            changed.await;
        }
    }

    /// Starts a lane if there is work for it.
    fn start_lane(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let luns = state.map.shape().luns();
            let most = self.config.queue_depth.min(luns) as usize;
            if state.cache.lanes >= most || !self.may_take(&state) {
                return;
            }
            state.cache.lanes += 1;
        }
        let lane = Lane {
            drive: Arc::clone(self),
        };
        runtime::spawn_detached(lane.run());
    }

    /// Returns whether a lane would find a page to take.
    fn may_take(&self, state: &State) -> bool {
        let shape = state.map.shape();
        let pages = ROWS_A_LUN * (shape.luns() * shape.planes) as usize;
        let cache = &state.cache;
        cache.has_waiting() && cache.failure.is_none() && cache.in_flight < pages
    }

    /// Returns the number of pages that a lane takes at once: a chunk for each plane of a LUN of every channel.
    fn stripe_pages(&self) -> usize {
        let chunk_pages = self.config.chunk_bytes as usize / self.page_bytes;
        let channels = self.nand.config().geometry.channels as usize;
        chunk_pages * channels * self.planes as usize
    }
}

impl Lane {
    async fn run(self) {
        let drive = &self.drive;
        loop {
            let taken = {
                let mut state = drive.state.lock();
                if !drive.may_take(&state) {
                    return;
                }
                state.cache.take(drive.stripe_pages())
            };
            drive.start_lane();
            if let Err(error) = drive.write_back(taken).await {
                drive
                    .state
                    .lock()
                    .cache
                    .failure
                    .get_or_insert(Failure::of(&error));
                return;
            }
        }
    }
}

impl Failure {
    fn of(error: &DeviceError) -> Self {
        if error.is_full() {
            Self::Full
        } else {
            Self::Flash
        }
    }

    fn error(self, operation: Operation, offset: u64, len: usize) -> DeviceError {
        let source = match self {
            Self::Full => std::io::ErrorKind::StorageFull.into(),
            Self::Flash => std::io::Error::other("the write cache could not be written back"),
        };
        DeviceError::io(operation, offset, len, source)
    }
}
