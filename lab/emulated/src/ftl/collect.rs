//! Garbage collection: valid pages are moved within their LUN, then their group is erased.

use super::drive::{Drive, no_space};
use super::map::{GroupId, LunId, PhysicalPage, Stream};
use super::pages::Run;
use super::state::State;
use crate::nand::Pending;
use device::DeviceError;

/// Pages moved at once.
const BATCH_PAGES: usize = 32;

/// A valid page of a group being collected.
struct Moving {
    logical: u32,
    from: PhysicalPage,
    version: u64,
    bytes: Box<[u8]>,
}

/// Marks a LUN as being collected while this value lives.
struct Collecting<'a> {
    ftl: &'a Drive,
    lun: LunId,
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.ftl.state.lock().collecting[self.lun.0 as usize] = false;
        self.ftl.changed.notify_all();
    }
}

/// GC's pages in flight, given back if this is dropped before their programs end.
struct Copies<'a> {
    ftl: &'a Drive,
    run: Option<Run>,
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run.give_back(&mut self.ftl.state.lock(), Stream::Gc);
        }
    }
}

/// The garbage collection of a LUN for a write that waits for a page.
pub(super) struct Collector<'a> {
    pub(super) ftl: &'a Drive,
    pub(super) lun: LunId,
}

impl Collector<'_> {
    /// Collects groups of the LUN until the host can have a page of it, or waits for the task that collects it. `offset` and `len`
    /// describe the waiting write in an error.
    pub(super) async fn free_a_page(&self, offset: u64, len: usize) -> Result<(), DeviceError> {
        let Self { ftl, lun } = *self;
        let collecting = loop {
            let changed = ftl.changed.listener();
            {
                let mut state = ftl.state.lock();
                if state.map.has_free_page(lun) {
                    return Ok(());
                }
                let is_taken = &mut state.collecting[lun.0 as usize];
                if !std::mem::replace(is_taken, true) {
                    break Collecting { ftl, lun };
                }
            }
            changed.await;
        };
        loop {
            let changed = ftl.changed.listener();
            let victim = {
                let mut state = ftl.state.lock();
                if state.map.has_free_page(lun) {
                    break;
                }
                match state.map.victim(lun) {
                    None if !state.map.has_pages_in_flight(lun) => {
                        return Err(no_space(offset, len));
                    }
                    victim => victim,
                }
            };
            match victim {
                // Pages in flight block every group that could be collected; their programs end.
                None => changed.await,
                Some(victim) => {
                    if !self.collect(victim).await? {
                        return Err(no_space(offset, len));
                    }
                }
            }
        }
        drop(collecting);
        Ok(())
    }

    /// Collects one group; returns false when no page is left to move its pages to.
    async fn collect(&self, victim: GroupId) -> Result<bool, DeviceError> {
        let ftl = self.ftl;
        loop {
            let moving = self.read_valid(victim).await?;
            if moving.is_empty() {
                break;
            }
            if !self.move_pages(&moving).await? {
                return Ok(false);
            }
        }
        let erased = ended(ftl.flash.start_erase(victim)).await;
        let mut state = ftl.state.lock();
        state.counts.collections += 1;
        match erased {
            Ok(()) => state.map.erased(victim),
            Err(error) if is_worn(&error) => state.map.retire(victim),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Reads the first valid pages of a group.
    async fn read_valid(&self, victim: GroupId) -> Result<Vec<Moving>, DeviceError> {
        let flash = &self.ftl.flash;
        let mut moving = Vec::new();
        let mut reading = Vec::new();
        {
            let state = self.ftl.state.lock();
            let mut runs = Vec::new();
            let valid = state.map.valid_pages(victim, BATCH_PAGES);
            for (index, &(page, logical)) in valid.iter().enumerate() {
                let (block, number) = flash.block_page(page);
                moving.push(Moving {
                    logical,
                    from: page,
                    version: flash.nand.tag(block, number).map_or(0, |tag| tag.version),
                    bytes: flash.load(page)?,
                });
                Run::add(&mut runs, flash.pages_per_group, page, (logical, index));
            }
            for run in runs {
                let count = run.pages.len() as u32;
                reading.push(flash.nand.start_read(flash.rows(run.first, count))?);
            }
        }
        for pending in reading {
            pending.wait().await?;
        }
        Ok(moving)
    }

    /// Programs pages into the LUN's group for GC and maps them there; returns false when the LUN is full. Pages whose program
    /// fails stay at their old location.
    async fn move_pages(&self, moving: &[Moving]) -> Result<bool, DeviceError> {
        let Self { ftl, lun } = *self;
        let mut programming = Vec::new();
        let mut is_full = false;
        {
            let mut state = ftl.state.lock();
            let state = &mut *state;
            let mut runs = Vec::new();
            for (index, page) in moving.iter().enumerate() {
                let Some(place) = state.map.allocate(lun, Stream::Gc) else {
                    is_full = true;
                    break;
                };
                let what = (page.logical, index);
                Run::add(&mut runs, ftl.flash.pages_per_group, place, what);
            }
            for run in runs {
                let version = |_: &mut State, index: usize| moving[index].version;
                let bytes = |index: usize| &*moving[index].bytes;
                let started = ftl.flash.start_program(state, &run, version, bytes);
                let copies = Copies {
                    ftl,
                    run: Some(run),
                };
                programming.push((copies, started));
            }
        }
        let mut moved = 0;
        for (mut copies, started) in programming {
            let outcome = ended(started).await;
            let mut state = ftl.state.lock();
            let state = &mut *state;
            let Some(run) = copies.run.take() else {
                continue;
            };
            match outcome {
                Ok(()) => {
                    for (at, &(logical, index)) in run.pages.iter().enumerate() {
                        let from = moving[index].from;
                        state.map.commit_copy(logical, from, run.page(at));
                    }
                    let bytes = (run.pages.len() * ftl.flash.page_bytes) as u64;
                    state.counts.moved_bytes += bytes;
                    state.counts.nand_bytes_programmed += bytes;
                    moved += 1;
                }
                Err(error) => {
                    state.map.retire(state.map.shape().group_of(run.first));
                    run.give_back(state, Stream::Gc);
                    if !is_worn(&error) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(moved > 0 || !is_full)
    }
}

/// Waits for a command, unless it was refused.
async fn ended(started: Result<Pending<'_>, DeviceError>) -> Result<(), DeviceError> {
    started?.wait().await
}

/// Returns whether the error means only that a block has failed.
pub(super) fn is_worn(error: &DeviceError) -> bool {
    matches!(
        error,
        DeviceError::WornOut { .. } | DeviceError::BadBlock { .. }
    )
}
