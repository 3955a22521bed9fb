//! [`MemoryShares`]: the memory that the DRAM tier may use beside the index and loans.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::flash::FlashTier;
use crate::sync::atomic::Ordering;

/// The division of the memory. The DRAM tier may use the bytes that are neither fixed, nor lent, nor the index's.
///
/// ```text
///   memory = fixed (segment buffers, tables) + index (grows with the objects on flash) + lent + DRAM tier
/// ```
pub(crate) struct MemoryShares {
    pub(crate) flash: Arc<FlashTier>,
    pub(crate) memory_bytes: u64,
    /// Bytes of memory that never change: segment buffers, tables, reads of large items.
    pub(crate) fixed_bytes: u64,
    /// Number of partitions.
    pub(crate) partitions: u64,
}

impl MemoryShares {
    /// Returns the bytes of memory that the DRAM tier of a partition may use at present: an equal share of the
    /// remainder.
    pub(crate) fn tier_limit(&self) -> usize {
        let lent_bytes = self.lent().load(Ordering::Relaxed);
        let others = self.fixed_bytes + self.flash.memory().index_bytes + lent_bytes;
        let left = self.memory_bytes.saturating_sub(others);
        usize::try_from(left / self.partitions).unwrap_or(usize::MAX)
    }

    /// Bytes that users outside the cache have taken.
    pub(crate) fn lent(&self) -> &AtomicU64 {
        &self.flash.upkeep.index_use.lent_bytes
    }
}
