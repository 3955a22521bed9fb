//! The superblock of a similarity index: settings and shape to fields, and back.

use format::slices::{SliceKind, SliceSuperblock};
use format::slices_lsh::{LshOwn, LshPage};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::channel::Channels;
use crate::error::SliceError;
use crate::lsh::family::Family;
use crate::lsh::layout::{LshLayout, sub_tables};
use crate::lsh::settings::{Components, LshSettings, LshShape};
use crate::scheduler::Scheduling;
use crate::superblock::{Instance, refuse_if};

const COSINE: u8 = 1;
const EUCLIDEAN: u8 = 2;

/// Returns the superblock of drive `number` of `count`.
pub(crate) fn superblock(
    settings: &LshSettings,
    shape: &LshShape,
    number: usize,
    count: usize,
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
    let mut superblock = SliceSuperblock::new(SliceKind::Lsh);
    superblock.instance = U64::new(instance.id);
    superblock.hash_seed = U64::new(instance.seed);
    superblock.own = own.encode();
    let numbers = [
        (&mut superblock.drive, number as u32),
        (&mut superblock.drives, count as u32),
        (&mut superblock.partitions, shape.partitions),
        (&mut superblock.pages, shape.layout.pages()),
        (&mut superblock.page_bytes, settings.page_bytes),
        (&mut superblock.incarnations, settings.incarnations),
        (&mut superblock.slots_per_page, 1),
        (
            &mut superblock.bucket_entries,
            shape.page.bucket_entries as u32,
        ),
        (&mut superblock.filter_bytes, shape.page.filter_bytes as u32),
        (&mut superblock.channels, settings.channels.count),
        (&mut superblock.chunk_bytes, settings.channels.chunk_bytes),
    ];
    for (field, value) in numbers {
        *field = U32::new(value);
    }
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
    let channels = Channels {
        count: found.channels.get(),
        chunk_bytes: found.chunk_bytes.get(),
    };
    let stripe = channels.stripe_bytes().max(1);
    let pieces = u64::from(settings.piece_bytes).div_ceil(stripe) * stripe;
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
        page_bytes: found.page_bytes.get(),
        channels,
        piece_bytes: u32::try_from(pieces).unwrap_or(u32::MAX),
        segment_bytes: own.segment_bytes,
        scheduling: Scheduling {
            queue_depth: settings.scheduling.queue_depth.max(1),
            channel_depth: settings.scheduling.channel_depth.max(1),
            ..settings.scheduling
        },
        ..settings.clone()
    };
    created.check()?;
    check_own(found, &own)?;
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
        page: LshPage {
            page_bytes: created.page_bytes as usize,
            incarnations: created.incarnations as usize,
            bucket_entries: found.bucket_entries.get() as usize,
            filter_bytes: found.filter_bytes.get() as usize,
        },
        batch: own.batch,
        ring: created.ring(own.batch, found.drives.get())?,
        region_bytes: u64::from(found.pages.get()) * u64::from(created.page_bytes),
    };
    Ok((created, shape))
}

/// Refuses values that no index has. Settings that depend on them have been checked.
fn check_own(found: &SliceSuperblock, own: &LshOwn) -> Result<(), SliceError> {
    let (page_bytes, channels) = (found.page_bytes.get(), found.channels.get());
    let page = LshPage {
        page_bytes: page_bytes as usize,
        incarnations: found.incarnations.get() as usize,
        bucket_entries: found.bucket_entries.get() as usize,
        filter_bytes: found.filter_bytes.get() as usize,
    };
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
        let written = superblock(&settings, &shape, 1, 2, Instance::random());
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
