//! The superblock of a Bloom filter: its shape to fields, and back.

use crate::encoding::table::{BitPage, SliceKind, SliceSuperblock};
use zerocopy::byteorder::little_endian::U64;

use super::settings::{BitPlacement, BloomShape, MOST_FUNCTIONS};
use crate::error::SliceError;
use crate::layout::Layout;
use crate::superblock::{Instance, SlicetableShape, common, refuse_if};

/// Returns the superblock of a filter of this shape.
pub(super) fn superblock_of(
    layout: &Layout,
    shape: &BloomShape,
    instance: Instance,
) -> SliceSuperblock {
    let mut superblock = common(
        SliceKind::Bloom,
        instance,
        layout,
        SlicetableShape {
            partitions: shape.partitions,
            pages: shape.pages,
            incarnations: shape.page.incarnations,
            slots: shape.page.slots,
        },
    );
    let placement = match shape.placement {
        BitPlacement::Spread => 0,
        BitPlacement::OnePage => 1,
    };
    let own = [shape.keys, shape.functions, placement, 0];
    superblock.own = own.map(|number| U64::new(number.into()));
    superblock
}

/// Returns the shape in a superblock whose common fields have been checked. Refuses values that no filter has.
pub(super) fn created_shape(found: &SliceSuperblock) -> Result<BloomShape, SliceError> {
    let page = BitPage {
        page_bytes: found.page_bytes.get() as usize,
        incarnations: found.incarnations.get() as usize,
        slots: found.slots_per_page.get() as usize,
    };
    let [keys, functions, placement, own] = found.own.map(U64::get);
    let bits = u64::from(found.pages.get()) * page.slots as u64;
    let most_functions = match placement {
        0 => MOST_FUNCTIONS.into(),
        _ => u64::from(MOST_FUNCTIONS).min(page.slots as u64),
    };
    let others = [found.spread, found.bucket_entries, found.filter_bytes];
    refuse_if(
        0,
        [
            (
                BitPage::of(page.page_bytes, page.incarnations) != Some(page),
                "what a page holds",
            ),
            (keys == 0 || keys > bits, "keys of a full filter"),
            (functions == 0 || functions > most_functions, "functions"),
            (placement > 1, "placement"),
            (
                own != 0 || others.iter().any(|number| number.get() != 0),
                "numbers that a Bloom filter does not have",
            ),
        ],
    )?;
    Ok(BloomShape {
        partitions: found.partitions.get(),
        pages: found.pages.get(),
        page,
        keys: keys as u32,
        functions: functions as u32,
        placement: match placement {
            0 => BitPlacement::Spread,
            _ => BitPlacement::OnePage,
        },
        region_bytes: u64::from(found.pages.get()) * u64::from(found.page_bytes.get()),
    })
}
