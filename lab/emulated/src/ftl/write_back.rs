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

use runtime::sync::Semaphore;

use super::cache::Failure;
use super::drive::Drive;
use super::state::State;
use super::write::{SLICE_BYTES, write_back};
use device::{DeviceError, Operation};

/// Rows that keep a LUN busy: one in the cells and one that waits.
const ROWS_A_LUN: usize = 2;

/// The way of writes through the cache. Writes enter the cache one after the other.
#[derive(Debug)]
pub(super) struct WriteBack {
    drive: Arc<Drive>,
    entrance: Semaphore,
}

impl WriteBack {
    pub(super) fn new(drive: Arc<Drive>) -> Self {
        Self {
            drive,
            entrance: Semaphore::new(1),
        }
    }

    pub(super) fn has_cache(&self) -> bool {
        self.drive.state.lock().cache.is_there()
    }

    /// Writes `data` at `offset` into the cache. Waits while the cache is full.
    pub(super) async fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let _place = self.drive.host.queue.acquire().await;
        self.drive.state.lock().counts.host_bytes_written += data.len() as u64;
        let slice_bytes = SLICE_BYTES.next_multiple_of(self.drive.flash.page_bytes);
        for first in (0..data.len()).step_by(slice_bytes) {
            let slice = &data[first..data.len().min(first + slice_bytes)];
            drop(self.drive.host.cross(slice.len()).await);
            let _turn = self.entrance.acquire().await;
            self.put(offset + first as u64, slice).await?;
        }
        Ok(())
    }

    async fn put(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let flash = &self.drive.flash;
        for logical in flash.touched(offset, data.len()) {
            let (from, to, within) = flash.part(offset, data.len(), logical);
            loop {
                let changed = self.drive.changed.listener();
                {
                    let mut state = self.drive.state.lock();
                    if let Some(failure) = state.cache.failure {
                        return Err(failure.error(Operation::Write, offset, data.len()));
                    }
                    if state.cache.write(logical, within, &data[from..to]) {
                        break;
                    }
                }
                Lane::start(&self.drive);
                changed.await;
            }
        }
        Lane::start(&self.drive);
        Ok(())
    }

    /// Waits until every acknowledged write is in flash.
    pub(super) async fn sync(&self) -> Result<(), DeviceError> {
        let last = self.drive.state.lock().cache.last_arrival();
        loop {
            let changed = self.drive.changed.listener();
            {
                let state = self.drive.state.lock();
                if state.cache.is_in_flash(last) {
                    return Ok(());
                }
                if let Some(failure) = state.cache.failure {
                    return Err(failure.error(Operation::Sync, 0, 0));
                }
            }
            Lane::start(&self.drive);
            changed.await;
        }
    }
}

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

impl Lane {
    /// Starts a lane if there is work for it.
    fn start(drive: &Arc<Drive>) {
        {
            let mut state = drive.state.lock();
            let luns = state.map.shape().luns();
            let most = drive.config.queue_depth.min(luns) as usize;
            if state.cache.lanes >= most || !may_take(&state) {
                return;
            }
            state.cache.lanes += 1;
        }
        let lane = Lane {
            drive: Arc::clone(drive),
        };
        runtime::spawn_detached(lane.run());
    }

    async fn run(self) {
        let drive = &self.drive;
        loop {
            let taken = {
                let mut state = drive.state.lock();
                if !may_take(&state) {
                    return;
                }
                state.cache.take(stripe_pages(drive))
            };
            Self::start(drive);
            if let Err(error) = write_back(drive, taken).await {
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

/// Returns whether a lane would find a page to take.
fn may_take(state: &State) -> bool {
    let shape = state.map.shape();
    let pages = ROWS_A_LUN * (shape.luns() * shape.planes) as usize;
    let cache = &state.cache;
    cache.has_waiting() && cache.failure.is_none() && cache.in_flight < pages
}

/// Returns the number of pages that a lane takes at once: a chunk for each plane of a LUN of every channel.
fn stripe_pages(drive: &Drive) -> usize {
    let chunk_pages = drive.config.chunk_bytes as usize / drive.flash.page_bytes;
    let channels = drive.flash.nand.config().geometry.channels as usize;
    chunk_pages * channels * drive.flash.planes as usize
}
