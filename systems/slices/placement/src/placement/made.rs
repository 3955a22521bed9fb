//! A made index, with its log and its areas of the region.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{DeviceError, Journal as _};
use engine::reclaim::IndexUse;
use on_flash::IndexDisk;
use slices::{PagedLog, SliceIndex};

use super::plan::{AREAS, Tables};

/// Segment numbers reserved at once. After a crash, entries on flash may have any reserved number, so the next start gives
/// higher numbers.
pub(super) const NUMBERS_AHEAD: u32 = 1 << 12;

/// The index and its parts of the region.
pub(super) struct Made {
    pub(super) index: SliceIndex,
    /// Locations of the slicetables, followed by the [limit](Made::reserved) of the numbers.
    pub(super) log: Arc<PagedLog>,
    pub(super) tables: Tables,
    pub(super) instance: u64,
    pub(super) areas: [IndexDisk; AREAS],
    /// Bytes of memory of index and log when they were made, without the pieces that flushes hold.
    pub(super) fixed_bytes: u64,
}

impl Made {
    /// Returns the limit of the reserved numbers: all numbers given so far are lower.
    pub(super) fn reserved(&self) -> u32 {
        self.log.load(self.log.words() - 1) as u32
    }

    /// Reserves the [`NUMBERS_AHEAD`] numbers from `from` on, durably. Returns the new limit; `None` if no numbers are left.
    pub(super) async fn reserve(&self, from: u32) -> Result<Option<u32>, DeviceError> {
        let Some(limit) = from.checked_add(NUMBERS_AHEAD) else {
            return Ok(None);
        };
        self.log.store(self.log.words() - 1, limit.into());
        self.log.sync().await?;
        Ok(Some(limit))
    }

    /// Reports the memory of the index to reclaim.
    pub(super) fn account(&self, index_use: &IndexUse) {
        let memory = self.index.memory();
        let bytes = self.fixed_bytes.max(memory.total() - memory.pieces);
        index_use.bytes.store(bytes, Ordering::Relaxed);
    }
}
