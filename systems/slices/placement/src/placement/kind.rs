//! Settings of a `sliced` index, its layout in a new image, and its memory.

use std::sync::Arc;

use super::plan::{ITEM_BYTES, Plan, SHARES, Tables};
use super::settings::SlicedSettings;
use super::{PLACED_AT_ONCE, Sliced};
use engine::OpenError;
use engine::placement::{
    DeadCopies, Description, IndexRoom, IndexSizes, Parts, Placement, PlacementKind,
};
use engine::{ConfigError, IndexSettings};

/// Most bytes of the tables in memory for an item, with one incarnation. Divided by the number of incarnations.
const TABLE_ITEM_BYTES: f64 = 25.0;

impl PlacementKind for SlicedSettings {
    fn describe(&self) -> Description {
        Description {
            dead_copies: DeadCopies::BySection,
            demaps_by_itself: true,
            forgets_written: true,
            placed_at_once: PLACED_AT_ONCE,
            most_item_bytes: TABLE_ITEM_BYTES / f64::from(self.incarnations),
            ..Description::new("sliced")
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        let sliced = self.tuned(&room.settings);
        sliced.check()?;
        let expected_items = room
            .expected_items
            .unwrap_or_else(|| sliced.items_that_fit(room));
        let tables = Tables::for_items(&sliced, room.image_bytes / ITEM_BYTES);
        // Impossible settings are refused when the index is opened.
        let region = Plan::new(tables, room.image_bytes, 0);
        Ok(IndexSizes {
            expected_items,
            region_bytes: region.map_or(room.image_bytes, |plan| plan.region_bytes()),
            least_bytes: sliced.least_bytes(expected_items),
            working_bytes: Plan::working_bytes(),
            ..IndexSizes::in_memory(room)
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        let settings = self.tuned(&parts.settings);
        Ok(Arc::new(Sliced::new(settings, parts)?))
    }
}

impl SlicedSettings {
    fn tuned(&self, settings: &IndexSettings) -> Self {
        Self {
            incarnations: settings.incarnations.unwrap_or(self.incarnations),
            filter_percent: settings.filter_percent.unwrap_or(self.filter_percent),
            table_bytes: self.table_bytes,
            checkpoint_segments: settings
                .checkpoint_segments
                .unwrap_or(self.checkpoint_segments),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let table_fits = |bytes| (2 << 10..=16 << 20).contains(&bytes);
        // With more incarnations, buckets would have fewer than three entries, and tables would not fill up.
        for (fits, name, range) in [
            (
                (1..=64).contains(&self.incarnations),
                "incarnations",
                "1 to 64",
            ),
            (self.filter_percent <= 90, "filter_percent", "0 to 90"),
            (
                self.table_bytes.is_none_or(table_fits),
                "table_bytes",
                "2 KiB to 16 MiB",
            ),
        ] {
            if !fits {
                return Err(ConfigError::Range { name, range });
            }
        }
        Ok(())
    }

    /// Returns how many items the flash has, or fewer if the index's memory is not enough for all.
    fn items_that_fit(&self, room: &IndexRoom) -> u64 {
        let by_flash = room.flash_bytes / ITEM_BYTES;
        let bytes = room.max_index_bytes() / 100 * u64::from(100 - self.filter_percent);
        // In steps of equal shares, because the bytes of a table grow in steps.
        let by_memory = (1..=SHARES)
            .map(|share| by_flash / SHARES * share)
            .take_while(|&items| self.least_bytes(items) <= bytes)
            .last();
        match self.least_bytes(by_flash) <= bytes {
            true => by_flash.max(1),
            false => by_memory.unwrap_or(0).max(1),
        }
    }

    /// Returns the bytes of memory of an index for `items` items.
    pub(super) fn least_bytes(&self, items: u64) -> u64 {
        let tables = Tables::for_items(self, items);
        // An eighth is left for the structures beside the tables, so that reclaim does not mistake them for growth.
        Plan::new(tables, 0, 0).map_or(0, |plan| plan.memory_bytes() * 8 / 7)
    }
}
