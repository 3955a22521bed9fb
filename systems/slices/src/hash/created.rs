//! The superblock of a hash table: the settings of its creation to fields, and back, with checks.

use crate::encoding::log::MOST_REGIONS;
use crate::encoding::table::{EntryPage, SliceKind, SliceSuperblock};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::error::SliceError;
use crate::settings::{
    HashSettings, HashShape, MOST_BUCKET_ENTRIES, MOST_SIDE_TABLES, MOST_TABLE_ENTRIES,
};
use crate::superblock::{self, Instance, SlicetableShape};

/// Returns the superblock of a new table.
pub(super) fn superblock_of(
    settings: &HashSettings,
    shape: &HashShape,
    instance: Instance,
) -> SliceSuperblock {
    let page = &shape.page;
    let mut superblock = superblock::common(
        SliceKind::Hash,
        instance,
        &settings.layout(),
        SlicetableShape {
            partitions: shape.partitions,
            pages: shape.pages,
            incarnations: page.incarnations,
            slots: page.slots,
        },
    );
    superblock.own[0] = U64::new(shape.table_entries.into());
    superblock.own[1] = U64::new(shape.side_tables.into());
    superblock.own[2] = U64::new((!settings.log_changes).into());
    superblock.spread = U32::new(settings.spread.into());
    superblock.bucket_entries = U32::new(page.bucket_entries as u32);
    superblock.filter_bytes = U32::new(page.filter_bytes as u32);
    superblock
}

/// Returns `settings` with the values that were chosen when the table was created.
pub(super) fn created_settings(
    found: &SliceSuperblock,
    settings: &HashSettings,
) -> Result<HashSettings, SliceError> {
    let layout = settings.layout().created(found)?;
    Ok(HashSettings {
        partitions: Some(found.partitions.get()),
        incarnations: found.incarnations.get(),
        bucket_entries: Some(found.bucket_entries.get()),
        page_bytes: layout.page_bytes,
        channels: layout.channels,
        piece_bytes: layout.piece_bytes,
        spread: found.spread.get() != 0,
        side_tables: u32::try_from(found.own[1].get()).unwrap_or(u32::MAX),
        scheduling: layout.scheduling,
        log_changes: found.own[2].get() == 0,
        ..settings.clone()
    })
}

/// Returns the shape in a superblock whose common fields have been checked. Refuses values that no table has.
pub(super) fn created_shape(found: &SliceSuperblock) -> Result<HashShape, SliceError> {
    let page = EntryPage {
        page_bytes: found.page_bytes.get() as usize,
        incarnations: found.incarnations.get() as usize,
        slots: found.slots_per_page.get() as usize,
        bucket_entries: found.bucket_entries.get() as usize,
        filter_bytes: found.filter_bytes.get() as usize,
    };
    let is_bucket = (1..=MOST_BUCKET_ENTRIES).contains(&found.bucket_entries.get());
    superblock::refuse_if(0, [(!is_bucket, "entries of a bucket")])?;
    let expected = EntryPage::of(
        page.page_bytes,
        page.incarnations,
        page.slots,
        page.bucket_entries,
    );
    let most = page.slots * page.bucket_entries * found.pages.get() as usize;
    let [table_entries, side_tables, is_unlogged, own] = found.own.map(U64::get);
    superblock::refuse_if(
        0,
        [
            (expected != Some(page), "what a page holds"),
            (most > MOST_TABLE_ENTRIES, "entries of a table"),
            (
                table_entries == 0 || table_entries > most as u64,
                "entries of a full table",
            ),
            (found.spread.get() > 1, "whether slices are spread"),
            (
                found.partitions.get() > MOST_REGIONS,
                "partitions that the log can name",
            ),
            (side_tables > MOST_SIDE_TABLES.into(), "tables on the side"),
            (is_unlogged > 1, "whether changes are logged"),
            (own != 0, "numbers that a hash table does not have"),
        ],
    )?;
    Ok(HashShape {
        partitions: found.partitions.get(),
        pages: found.pages.get(),
        page,
        table_entries: table_entries as u32,
        side_tables: side_tables as u32,
        region_bytes: u64::from(found.pages.get()) * u64::from(found.page_bytes.get()),
    })
}
