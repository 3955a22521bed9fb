//! The superblock of a similarity index: settings and shape to fields, and back.

use crate::encoding::lsh::{LshOwn, LshPage};
use crate::encoding::table::{SliceKind, SliceSuperblock};
use zerocopy::byteorder::little_endian::U32;

use crate::error::SliceError;
use crate::lsh::family::Family;
use crate::lsh::layout::{LshLayout, sub_tables};
use crate::lsh::settings::{Components, LshSettings, LshShape};
use crate::superblock::{self, Instance, SlicetableShape, refuse_if};

const COSINE: u8 = 1;
const EUCLIDEAN: u8 = 2;

/// Returns the superblock of a new index.
pub(crate) fn superblock_of(
    settings: &LshSettings,
    shape: &LshShape,
    instance: Instance,
) -> SliceSuperblock {
    let (family, width) = match settings.family {
        Family::Cosine => (COSINE, 0.0),
        Family::Euclidean { width } => (EUCLIDEAN, width),
    };
    let own = LshOwn {
        dimensions: settings.dimensions,
        tables: settings.tables as u16,
        functions: settings.functions as u16,
        family,
        component_bytes: settings.components.bytes() as u8,
        sub_tables: shape.layout.sub_tables as u16,
        width_bits: width.to_bits(),
        batch: shape.batch,
        slots: shape.layout.slots,
        segment_bytes: settings.segment_bytes,
    };
    let mut superblock = superblock::common(
        SliceKind::Lsh,
        instance,
        &settings.layout(0),
        SlicetableShape {
            partitions: shape.partitions,
            pages: shape.layout.pages(),
            incarnations: shape.page.incarnations,
            slots: 1,
        },
    );
    superblock.own = own.encode();
    superblock.bucket_entries = U32::new(shape.page.bucket_entries as u32);
    superblock.filter_bytes = U32::new(shape.page.filter_bytes as u32);
    superblock
}

/// Returns `settings` with the values that were chosen when the index was created, and its shape.
///
/// # Errors
/// If a value chosen then or now is out of range.
pub(crate) fn created(
    found: &SliceSuperblock,
    settings: &LshSettings,
) -> Result<(LshSettings, LshShape), SliceError> {
    let own = LshOwn::decode(found.own);
    let layout = settings.layout(0).created(found)?;
    let created = LshSettings {
        dimensions: own.dimensions,
        components: match own.component_bytes {
            1 => Components::Bytes,
            _ => Components::Floats,
        },
        family: match own.family {
            COSINE => Family::Cosine,
            _ => Family::Euclidean {
                width: f32::from_bits(own.width_bits),
            },
        },
        tables: own.tables.into(),
        functions: own.functions.into(),
        partitions: Some(found.partitions.get()),
        incarnations: found.incarnations.get(),
        page_bytes: layout.page_bytes,
        channels: layout.channels,
        piece_bytes: layout.piece_bytes,
        segment_bytes: own.segment_bytes,
        ..settings.clone()
    };
    created.check()?;
    check_own(found, &own)?;
    let channels = created.channels;
    let pages_per_chunk = channels.chunk_bytes / created.page_bytes;
    let layout = LshLayout {
        tables: created.tables,
        sub_tables: own.sub_tables.into(),
        slots: own.slots,
        channels: channels.count,
        pages_per_chunk,
    };
    let shape = LshShape {
        partitions: found.partitions.get(),
        layout,
        page: page_of(found),
        batch: own.batch,
        ring: created.ring(own.batch, found.drives.get())?,
        region_bytes: u64::from(found.pages.get()) * u64::from(created.page_bytes),
    };
    Ok((created, shape))
}

/// Returns the division of a page.
fn page_of(found: &SliceSuperblock) -> LshPage {
    LshPage {
        page_bytes: found.page_bytes.get() as usize,
        incarnations: found.incarnations.get() as usize,
        bucket_entries: found.bucket_entries.get() as usize,
        filter_bytes: found.filter_bytes.get() as usize,
    }
}

/// Refuses values that no index has. Settings that depend on them have been checked.
fn check_own(found: &SliceSuperblock, own: &LshOwn) -> Result<(), SliceError> {
    let (page_bytes, channels) = (found.page_bytes.get(), found.channels.get());
    let page = page_of(found);
    let sub_tables = sub_tables(own.tables.into(), channels);
    let columns = u64::from(own.tables) * u64::from(sub_tables);
    let layers = columns.div_ceil(channels.into());
    let pages = (layers * u64::from(channels)).saturating_mul(own.slots.into());
    let slots = u64::from(found.partitions.get()).saturating_mul(own.slots.into());
    let entries = slots
        .saturating_mul(sub_tables.into())
        .saturating_mul(page.bucket_entries as u64);
    let pages_per_chunk = found.chunk_bytes.get() / page_bytes;
    let is_whole = own.slots > 0 && own.slots.is_multiple_of(pages_per_chunk);
    refuse_if(
        0,
        [
            (![COSINE, EUCLIDEAN].contains(&own.family), "distance"),
            (
                ![1, 4].contains(&own.component_bytes),
                "bytes of a component",
            ),
            (
                LshPage::of(page.page_bytes, page.incarnations) != Some(page),
                "what a page holds",
            ),
            (u32::from(own.sub_tables) != sub_tables, "parts of a table"),
            (
                !is_whole || pages != found.pages.get().into(),
                "pages of a slicetable",
            ),
            (
                own.batch == 0 || u64::from(own.batch) > entries,
                "vectors of a generation",
            ),
            (
                slots.saturating_mul(columns) > u32::MAX.into(),
                "partitions",
            ),
            (
                found.spread.get() != 0 || found.slots_per_page.get() != 1,
                "numbers that a similarity index does not have",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Channels;

    #[test]
    fn what_was_chosen_is_read_as_it_was_written() {
        let settings = LshSettings {
            components: Components::Bytes,
            functions: 17,
            channels: Channels {
                count: 8,
                chunk_bytes: 8192,
            },
            segment_bytes: 1 << 17,
            ..LshSettings::new(300, Family::Euclidean { width: 2.5 })
        };
        let shape = settings.shape(&[1 << 30, 1 << 30]).expect("it fits");
        let mut written = superblock_of(&settings, &shape, Instance::random());
        written.drives = U32::new(2);
        let other = LshSettings {
            most_candidates: 7,
            ..LshSettings::new(10, Family::Cosine)
        };
        let (found, found_shape) = created(&written, &other).expect("it can be");
        assert_eq!(found_shape, shape);
        let expected = LshSettings {
            partitions: Some(shape.partitions),
            most_candidates: 7,
            ..settings
        };
        assert_eq!(found, expected);
        for slots in [0, shape.layout.slots + 1] {
            let mut wrong = written;
            let own = LshOwn::decode(written.own);
            wrong.own = LshOwn { slots, ..own }.encode();
            assert!(created(&wrong, &other).is_err());
        }
    }
}
