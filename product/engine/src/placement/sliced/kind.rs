//! What a new image is laid out for, and the memory that its index needs.

use std::sync::Arc;

use super::super::{Parts, Placement, PlacementKind};
use super::Sliced;
use super::plan::{ITEM_BYTES, Plan, SHARES, Tables};
use crate::config::SlicedSettings;
use crate::durability::OpenError;
use crate::store::{Layout, SlabClasses, Streams};

impl PlacementKind for SlicedSettings {
    fn name(&self) -> &'static str {
        "sliced"
    }

    fn streams(&self, segment_bytes: u32) -> Arc<dyn Streams> {
        Arc::new(SlabClasses::new(Layout::Packed, segment_bytes))
    }

    fn locates_displaced(&self) -> bool {
        false
    }

    fn survives(&self) -> bool {
        true
    }

    fn index_region_bytes(&self, image_bytes: u64) -> u64 {
        let tables = Tables::for_items(self, image_bytes / ITEM_BYTES);
        // Settings that cannot be are refused when the index is opened.
        Plan::new(tables, image_bytes, 0).map_or(image_bytes, |plan| plan.region_bytes())
    }

    fn expected_items(&self, flash_bytes: u64, memory_bytes: u64) -> u64 {
        let by_flash = flash_bytes / ITEM_BYTES;
        let room = self.max_index_bytes(memory_bytes) / 100 * u64::from(100 - self.filter_percent);
        let needs = |items| self.least_index_bytes(items, 0);
        // In proportion, since what a table takes follows steps.
        let by_memory = (1..=SHARES)
            .map(|share| by_flash / SHARES * share)
            .take_while(|&items| needs(items) <= room)
            .last();
        match needs(by_flash) <= room {
            true => by_flash.max(1),
            false => by_memory.unwrap_or(0).max(1),
        }
    }

    fn max_index_bytes(&self, memory_bytes: u64) -> u64 {
        memory_bytes / 100 * u64::from(self.index_percent)
    }

    fn least_index_bytes(&self, expected_items: u64, _partition_bits: u32) -> u64 {
        let tables = Tables::for_items(self, expected_items);
        // An eighth is left for what is beside tables, and so that reclaim does not take them for growing.
        Plan::new(tables, 0, 0).map_or(0, |plan| plan.memory_bytes() * 8 / 7)
    }

    fn working_bytes(&self, _expected_items: u64) -> u64 {
        Plan::working_bytes()
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        Ok(Arc::new(Sliced::new(*self, parts)?))
    }
}
