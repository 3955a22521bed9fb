//! The `hashed` placement with an index of a chosen size: small ones lose entries all the time, and those of other keys lead to
//! what is dead.

use std::sync::Arc;

use flowstone_engine::placement::{Parts, Placement, PlacementKind};
use flowstone_engine::store::Streams;
use flowstone_engine::{HashedSettings, OpenError};

/// The placement with an index for so many items, however large the flash is.
#[derive(Clone, Copy)]
pub(crate) struct HashedFor(pub(crate) u64);

impl HashedFor {
    const SETTINGS: HashedSettings = HashedSettings {
        index_percent: 50,
        hot_percent: 70,
        one_clock: false,
    };
}

impl PlacementKind for HashedFor {
    fn name(&self) -> &'static str {
        Self::SETTINGS.name()
    }

    fn streams(&self, segment_bytes: u32) -> Arc<dyn Streams> {
        Self::SETTINGS.streams(segment_bytes)
    }

    fn expected_items(&self, _flash_bytes: u64, _memory_bytes: u64) -> u64 {
        self.0
    }

    fn locates_displaced(&self) -> bool {
        false
    }

    fn max_index_bytes(&self, memory_bytes: u64) -> u64 {
        Self::SETTINGS.max_index_bytes(memory_bytes)
    }

    fn least_index_bytes(&self, expected_items: u64, partition_bits: u32) -> u64 {
        Self::SETTINGS.least_index_bytes(expected_items, partition_bits)
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        Self::SETTINGS.open(parts)
    }
}
