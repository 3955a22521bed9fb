//! The superblock of a similarity index: settings and shape to bytes, and back.

use format::FormatError;
use format::slices::{SliceKind, SliceSuperblock};
use format::slices_lsh::{LshOwn, LshPage};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::channel::Channels;
use crate::error::SliceError;
use crate::lsh::family::Family;
use crate::lsh::layout::LshLayout;
use crate::lsh::settings::{Components, LshSettings, LshShape};
use crate::scheduler::Scheduling;
use crate::superblock::Instance;

const COSINE: u8 = 1;
const EUCLIDEAN: u8 = 2;

/// The superblock of drive `number` of `count`.
pub(crate) fn superblock(
    settings: &LshSettings,
    shape: &LshShape,
    (number, count): (usize, usize),
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

/// The settings with what was chosen when the index was created, and its shape.
///
/// # Errors
/// Where what was chosen then, or what is chosen now, cannot be.
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
    let pages_per_chunk = channels.chunk_bytes / created.page_bytes;
    let is_whole = own.slots > 0 && own.slots.is_multiple_of(pages_per_chunk);
    if !is_whole || own.sub_tables == 0 || own.batch == 0 || found.drives.get() == 0 {
        let source = FormatError::Range;
        return Err(SliceError::NoStructure { drive: 0, source });
    }
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
        let written = superblock(&settings, &shape, (1, 2), Instance::random());
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
