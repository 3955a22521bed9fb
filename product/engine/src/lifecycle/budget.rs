//! The division of the memory among the parts of an engine.

use device::Journal as Log;

use crate::admission::Gate;
use crate::config::EngineConfig;
use crate::durability::dead::StartBounds;
use crate::durability::error::OpenError;
use crate::flash::fixed_bytes;
use crate::format::superblock::ImageShape;
use crate::partition;
use crate::placement::{Collecting, IndexSizes};
use crate::settings::{ConfigError, Dram};
use crate::store::SegmentStore;
use crate::tiers::VersionMarks;

/// The dead set of an earlier run may take the memory divided by this, until recovery ends.
const DEAD_SHARE: u64 = 4;
/// The DRAM tier keeps at least the memory divided by this, however large the index.
const LEAST_TIER_SHARE: u64 = 16;
/// Part of the bytes of an empty index by which it can grow in any case. Reclaim keeps half of a 32nd of the index's memory
/// free: with less, it would take the segment of each item.
const GROWTH_SHARE: u64 = 16;
/// Bytes of the smallest chunk of the DRAM tier.
pub(super) const LEAST_CHUNK_BYTES: u64 = 4 << 10;

/// Each of the two page pools, of the DRAM tier and of the index, keeps at most the memory divided by this for reuse.
const KEPT_SHARE: u64 = 256;

/// Returns the bytes that each page pool keeps in the process when its pages are given back.
pub(super) fn kept_bytes(config: &EngineConfig) -> u64 {
    config.memory_bytes / KEPT_SHARE
}

/// Division of the memory. The fixed parts, the least index and the least DRAM tier fit the memory together.
pub(super) struct Budget {
    /// Bytes of the flash tier that never change.
    pub(super) flash_bytes: u64,
    /// Bytes that the index may take.
    pub(super) index_bytes: u64,
    /// Bytes that are left for the index beside the least DRAM tier.
    pub(super) index_room_bytes: u64,
    /// Limits of the state that the start reads into memory.
    pub(super) bounds: StartBounds,
    sizes: IndexSizes,
}

impl Budget {
    /// Divides the memory. Fails if it is not enough for an image of this shape.
    pub(super) fn divide(
        config: &EngineConfig,
        shape: &ImageShape,
        store: &SegmentStore,
        log: &dyn Log,
        gate: &Gate,
    ) -> Result<Self, OpenError> {
        let memory_bytes = config.memory_bytes;
        let segments_bytes = u64::from(shape.segments) * u64::from(shape.segment_bytes);
        let mut room = config.index_room(
            shape.image_bytes,
            segments_bytes,
            Some(shape.expected_items),
        );
        room.partition_bits = shape.partitions.trailing_zeros();
        let sizes = config.placement.sizes(&room)?;
        let flash_bytes = fixed_bytes(store, log, shape.partitions) + sizes.working_bytes;
        let fixed_bytes = flash_bytes
            + config.read_bytes()
            + 2 * kept_bytes(config)
            + gate.memory_bytes()
            + VersionMarks::memory_bytes(shape.partitions);
        let chunk_bytes = match config.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => LEAST_CHUNK_BYTES,
            // The tier keeps no items.
            Dram::WriteBuffers { .. } => 0,
        };
        let partition_bytes = partition::least_bytes(chunk_bytes);
        let least_tier_bytes = u64::from(shape.partitions) * partition_bytes;
        let least_index_bytes = sizes
            .least_bytes
            .saturating_add(sizes.least_bytes / GROWTH_SHARE);
        let needed = (fixed_bytes + least_tier_bytes).saturating_add(least_index_bytes);
        if needed > memory_bytes {
            return Err(ConfigError::Memory {
                given: memory_bytes,
                needed,
            }
            .into());
        }
        let tier_bytes = match config.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => {
                least_tier_bytes.max(memory_bytes / LEAST_TIER_SHARE)
            }
            Dram::WriteBuffers { .. } => least_tier_bytes,
        };
        let taken = fixed_bytes + tier_bytes + config.lendable_bytes;
        let left = memory_bytes.saturating_sub(taken).max(least_index_bytes);
        // With less memory than the image was created with, the index needs more than its share.
        let index_bytes = room.max_index_bytes().max(least_index_bytes).min(left);
        Ok(Self {
            flash_bytes,
            index_bytes,
            index_room_bytes: left,
            bounds: StartBounds {
                dead_bytes: left.min(memory_bytes / DEAD_SHARE),
                items: sizes.items_in(index_bytes),
            },
            sizes,
        })
    }

    /// Returns how items collect in memory before they are placed.
    pub(super) fn collecting(&self) -> Option<Collecting> {
        self.sizes.collecting
    }

    /// Returns the number of items that the index can name while `other_bytes` of its memory are in use.
    pub(super) fn items_beside(&self, other_bytes: u64) -> u64 {
        self.sizes
            .items_in(self.index_bytes.saturating_sub(other_bytes))
    }
}
