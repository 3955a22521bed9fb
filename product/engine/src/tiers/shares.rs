//! [`MemoryShares`]: the memory that the DRAM tier may use beside the index and loans.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::dram::LargeValues;
use crate::flash::FlashTier;
use crate::sync::atomic::Ordering;

/// A body larger than a partition's memory divided by this does not lie in the memory of its partition.
const LARGEST_SHARE: usize = 4;
/// A body larger than the memory that a partition has at the start divided by this is large: with most of the tier
/// taken by large values, a partition still holds several bodies that are not.
const LARGE_SHARE: u64 = 16;
/// A single large value may take the DRAM tier divided by this.
const SINGLE_SHARE: u64 = 4;
/// Chunks of each partition that large values leave to it.
const LEAST_CHUNKS: u64 = 2;

/// The division of the memory. The DRAM tier may use the bytes that are neither fixed, nor lent, nor the index's.
///
/// ```text
///   memory = fixed (segment buffers, tables) + index (grows with the objects on flash) + lent + DRAM tier
///   DRAM tier = large values + partitions, an equal share each
/// ```
pub(crate) struct MemoryShares {
    flash: Arc<FlashTier>,
    memory_bytes: u64,
    /// Bytes of memory that never change: segment buffers, tables, reads of large items.
    fixed_bytes: u64,
    /// Number of partitions.
    partitions: u64,
    /// Large values of all partitions.
    large: Arc<LargeValues>,
    /// Bytes of the smallest body that may be large.
    large_from: usize,
    /// Bytes of the largest body that lies in the log whole, and is never large.
    inline_bytes: usize,
    /// Bytes that large values leave to the partitions.
    least_bytes: u64,
}

impl MemoryShares {
    /// Divides `memory_bytes`, of which `fixed_bytes` never change, among `partitions` with chunks of `chunk_bytes`.
    pub(crate) fn new(
        flash: &Arc<FlashTier>,
        memory_bytes: u64,
        fixed_bytes: u64,
        partitions: u64,
        chunk_bytes: usize,
    ) -> Self {
        let share_bytes = memory_bytes.saturating_sub(fixed_bytes) / partitions;
        Self {
            flash: Arc::clone(flash),
            memory_bytes,
            fixed_bytes,
            partitions,
            large: Arc::default(),
            large_from: usize::try_from(share_bytes / LARGE_SHARE).unwrap_or(usize::MAX),
            inline_bytes: crate::dram::inline_bytes(chunk_bytes),
            least_bytes: LEAST_CHUNKS * chunk_bytes as u64 * partitions,
        }
    }

    /// Returns the bytes that the whole DRAM tier may use at present.
    pub(crate) fn whole_tier(&self) -> u64 {
        let lent_bytes = self.lent().load(Ordering::Relaxed);
        let others = self.fixed_bytes + self.flash.memory().index_bytes + lent_bytes;
        self.memory_bytes.saturating_sub(others)
    }

    /// Returns the bytes of memory that the DRAM tier of a partition may use at present, beside its large values: an
    /// equal share of the remainder.
    pub(crate) fn tier_limit(&self) -> usize {
        let left = self.whole_tier().saturating_sub(self.large.bytes() as u64);
        usize::try_from(left / self.partitions).unwrap_or(usize::MAX)
    }

    /// Returns the bytes that all large values may use at present.
    pub(crate) fn large_limit(&self) -> usize {
        let tier_bytes = self.whole_tier();
        let most = (tier_bytes - tier_bytes / SINGLE_SHARE)
            .min(tier_bytes.saturating_sub(self.least_bytes));
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Returns the bytes that a single large value may use at present.
    pub(crate) fn largest_value(&self) -> usize {
        let most = self.whole_tier() / SINGLE_SHARE;
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Returns whether a partition with this limit may have a body of `body_bytes` in its own memory.
    #[inline]
    pub(crate) fn fits_partition(body_bytes: usize, limit_bytes: usize) -> bool {
        body_bytes <= limit_bytes / LARGEST_SHARE
    }

    /// Returns whether a body of `body_bytes` is large in a partition with this limit.
    #[inline]
    pub(crate) fn is_large(&self, body_bytes: usize, limit_bytes: usize) -> bool {
        let fits = body_bytes <= self.large_from && Self::fits_partition(body_bytes, limit_bytes);
        !fits && !self.is_inline(body_bytes)
    }

    /// Returns whether a body of `body_bytes` lies in the log whole.
    #[inline]
    pub(crate) fn is_inline(&self, body_bytes: usize) -> bool {
        body_bytes <= self.inline_bytes
    }

    /// Returns the large values of all partitions.
    pub(crate) fn large(&self) -> &Arc<LargeValues> {
        &self.large
    }

    /// Bytes that users outside the cache have taken.
    pub(crate) fn lent(&self) -> &AtomicU64 {
        &self.flash.upkeep.index_use.lent_bytes
    }
}
