//! Division of the index region, and sizes of the index's tables.
//!
//! ```text
//!   log: locations of slicetables │ area 0 │ area 1 │ area 2 │ slicetables
//!                                   └ the changes in memory, saved by checkpoints in turn
//! ```

use crate::encoding::Header;
use slices::{FILL, HashSettings, PagedLog, Scheduling, SliceError, SliceHash, SliceIndex};

use super::settings::SlicedSettings;
use engine::format::segment::PAGE_BYTES;

/// Bytes of an entry of a table in memory: 8 for the key, 8 for the value.
const ENTRY_BYTES: u64 = 16;
/// Bytes of flash for each item that an image is laid out for.
pub(super) const ITEM_BYTES: u64 = 300;
/// Steps in which an index is laid out for fewer items than expected, if it lacks space: multiples of this part of the items.
pub(super) const SHARES: u64 = 64;
/// Areas for saved changes: of the checkpoint in force, of a checkpoint with an unknown outcome, and of the next one.
pub(super) const AREAS: usize = 3;
/// Bytes of a table in memory, or less if there would be fewer than [`LEAST_TABLES`].
const TABLE_BYTES: u64 = 128 << 10;
const LEAST_TABLES: u64 = 8;
const LEAST_TABLE_BYTES: u64 = 8 << 10;
/// Share of a table's places that values may fill, above the share at which the table is flushed.
const MOST_FILL: f64 = 0.95;
/// Entries that an index has space for, in percent of its items: partitions do not fill evenly.
const SPACE_PERCENT: u64 = 112;
/// Tables of a partition: one for changes, and one that is being flushed.
const TABLES: u64 = 2;
/// Tables that are flushed at once, in addition to the tables for changes.
const FLUSHED_TABLES: u64 = 2;
/// Regions beyond one for each partition: one to write to, the others for slicetables that are still read.
const SPARE_REGIONS: u32 = 3;
const PIECE_BYTES: u32 = 256 << 10;
/// Most look-ups that read the index at once.
pub(super) const LOOKUPS: u32 = 64;
/// Bytes of a saved segment, and the least bytes of an image for each segment.
const SAVED_SEGMENT_BYTES: u64 = 20;
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;

/// A part of the region: its start and its length, in bytes.
pub(super) type Part = (u64, u64);

/// Division of the region.
pub(super) struct Plan {
    pub(super) hash: HashSettings,
    pub(super) log_words: usize,
    pub(super) log: Part,
    pub(super) areas: [Part; AREAS],
    pub(super) slices: Part,
    /// Bytes of memory of a table.
    pub(super) table_bytes: u64,
    /// Number of items that the index has space for, as an estimate.
    pub(super) items: u64,
}

/// Choices made when an index is created.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub(super) partitions: u32,
    pub(super) table_bytes: u32,
    pub(super) incarnations: u32,
}

impl Tables {
    /// Returns the tables of a new index for `items` items.
    pub(super) fn for_items(settings: &SlicedSettings, items: u64) -> Self {
        let per_item = |bytes: u64| (bytes as f64 / FILL) as u64;
        let incarnations = u64::from(settings.incarnations);
        let entries = items.saturating_mul(SPACE_PERCENT) / 100;
        let all_tables = per_item(entries.saturating_mul(ENTRY_BYTES)) / incarnations;
        let usual = all_tables
            .div_ceil(LEAST_TABLES)
            .clamp(LEAST_TABLE_BYTES, TABLE_BYTES);
        let table_bytes = settings.table_bytes.map_or(usual, u64::from);
        let partitions = all_tables.div_ceil(table_bytes).max(1);
        Self {
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            table_bytes: u32::try_from(table_bytes).unwrap_or(u32::MAX),
            incarnations: settings.incarnations,
        }
    }

    /// Returns the tables of the index in a section.
    pub(super) fn of(header: &Header) -> Self {
        Self {
            partitions: header.partitions.get(),
            table_bytes: header.table_bytes.get(),
            incarnations: header.incarnations.get(),
        }
    }
}

impl Plan {
    /// Returns the plan for an image of `image_bytes`.
    pub(super) fn new(
        tables: Tables,
        image_bytes: u64,
        filter_bytes: u64,
    ) -> Result<Self, SliceError> {
        let hash = SliceIndex::settings(&HashSettings {
            partitions: Some(tables.partitions),
            table_bytes: tables.table_bytes as usize,
            incarnations: tables.incarnations,
            fill: MOST_FILL,
            spare_regions: SPARE_REGIONS,
            piece_bytes: PIECE_BYTES,
            scheduling: Scheduling {
                queue_depth: LOOKUPS,
                channel_depth: LOOKUPS,
                is_channel_aware: false,
                // Segments of items are written to the same drive all the time.
                writes_alone: false,
            },
            filter_bytes,
            ..HashSettings::default()
        });
        let (slices_bytes, shape) = hash.on_one_drive(tables.partitions)?;
        let log_words = SliceHash::log_words(&hash, &[slices_bytes])?;
        let log_bytes = PagedLog::bytes_for(log_words + 1);
        let partitions = u64::from(tables.partitions);
        let saved_tables = partitions * TABLES * u64::from(shape.places()) * ENTRY_BYTES;
        let saved_segments = image_bytes / LEAST_SEGMENT_BYTES * SAVED_SEGMENT_BYTES;
        // Deletes that do not fit a table are also saved.
        let area_bytes = saved_tables + saved_tables / 8 + partitions * 32 + saved_segments;
        let area_bytes = area_bytes.next_multiple_of(PAGE_BYTES.into());
        let area = |number| (log_bytes + number * area_bytes, area_bytes);
        let slices_start = log_bytes + AREAS as u64 * area_bytes;
        let entries = f64::from(shape.places()) * FILL * f64::from(tables.incarnations);
        Ok(Self {
            hash,
            log_words,
            log: (0, log_bytes),
            areas: [area(0), area(1), area(2)],
            slices: (slices_start, slices_bytes),
            table_bytes: shape.table_memory_bytes(),
            items: (entries as u64).saturating_mul(partitions) / SPACE_PERCENT * 100,
        })
    }

    /// Returns the bytes of the whole region, or the largest number for the sizes of a damaged section.
    pub(super) fn region_bytes(&self) -> u64 {
        self.slices.0.saturating_add(self.slices.1)
    }

    /// Returns the bytes of memory of the index.
    pub(super) fn memory_bytes(&self) -> u64 {
        let partitions = u64::from(self.hash.partitions.unwrap_or(0));
        (partitions + FLUSHED_TABLES) * self.table_bytes
    }

    /// Returns the bytes of memory that look-ups and flushes hold in addition.
    pub(super) fn working_bytes() -> u64 {
        u64::from(LOOKUPS) * u64::from(PAGE_BYTES) + 2 * u64::from(PIECE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The region is laid out for the image, and checked for the segments, which are smaller.
    #[test]
    fn a_smaller_flash_needs_no_larger_region() {
        for incarnations in [1, 4, 8, 16, 32, 64] {
            let settings = SlicedSettings {
                incarnations,
                ..SlicedSettings::default()
            };
            let needs = |bytes: u64| {
                let tables = Tables::for_items(&settings, bytes / ITEM_BYTES);
                let plan = Plan::new(tables, bytes, 0).expect("it can be");
                plan.region_bytes()
            };
            let sizes = (16..3000).map(|mib: u64| needs(mib << 20));
            assert!(sizes.is_sorted(), "{incarnations} incarnations");
            assert!(needs(8 << 40) > needs(4 << 40));
        }
    }

    #[test]
    fn what_no_index_has_is_refused_or_needs_more_than_there_is() {
        for incarnations in [0, 1, 64, 200, 250, u32::MAX] {
            for table_bytes in [0, 1, 4096, 1 << 20, u32::MAX] {
                for partitions in [1, 1 << 20, (1 << 24) - 4, 1 << 24, u32::MAX] {
                    let tables = Tables {
                        partitions,
                        table_bytes,
                        incarnations,
                    };
                    if let Ok(plan) = Plan::new(tables, u64::MAX / 100, 0) {
                        assert!(plan.region_bytes() > u64::from(partitions));
                        assert!(plan.memory_bytes() > u64::from(partitions));
                    }
                }
            }
        }
    }
}
