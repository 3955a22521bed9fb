//! The superblocks of a structure's drives: written when it is created, checked when it is opened.

use std::sync::Arc;

use device::{AlignedBuf, Disk, PAGE_BYTES, SharedBuf};
use format::slices::{SliceKind, SliceSuperblock};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::error::SliceError;
use crate::layout::Layout;

/// What tells a structure from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    pub(crate) id: u64,
    /// Seed of the hash functions.
    pub(crate) seed: u64,
}

impl Instance {
    pub(crate) fn random() -> Self {
        Self {
            id: runtime::random_id(),
            seed: runtime::random_u64(),
        }
    }

    pub(crate) fn of(found: &SliceSuperblock) -> Self {
        Self {
            id: found.instance.get(),
            seed: found.hash_seed.get(),
        }
    }
}

/// A superblock with the numbers that every kind has.
pub(crate) fn common(
    kind: SliceKind,
    instance: Instance,
    layout: &Layout,
    (partitions, pages): (u32, u32),
    (incarnations, slots): (usize, usize),
) -> SliceSuperblock {
    let mut superblock = SliceSuperblock::new(kind);
    superblock.instance = U64::new(instance.id);
    superblock.hash_seed = U64::new(instance.seed);
    let numbers = [
        (&mut superblock.partitions, partitions),
        (&mut superblock.pages, pages),
        (&mut superblock.page_bytes, layout.page_bytes),
        (&mut superblock.incarnations, incarnations as u32),
        (&mut superblock.slots_per_page, slots as u32),
        (&mut superblock.channels, layout.channels.count),
        (&mut superblock.chunk_bytes, layout.channels.chunk_bytes),
    ];
    for (field, value) in numbers {
        *field = U32::new(value);
    }
    superblock
}

/// Writes `superblock` to each drive, with its number, and syncs it. What lies in front of the first region is zeros beside.
pub(crate) async fn write(
    disks: &[Arc<dyn Disk>],
    mut superblock: SliceSuperblock,
    layout: &Layout,
) -> Result<(), SliceError> {
    for (number, disk) in disks.iter().enumerate() {
        let mut head = AlignedBuf::new((layout.head_bytes() as usize).max(PAGE_BYTES));
        superblock.drive = U32::new(number as u32);
        superblock.drives = U32::new(disks.len() as u32);
        superblock.encode(&mut head);
        disk.write(0, SharedBuf::from(head))
            .await
            .map_err(SliceError::device(number))?;
        disk.sync().await.map_err(SliceError::device(number))?;
    }
    Ok(())
}

/// The superblock of the first drive, after that of each has been found to be of one structure of this kind.
pub(crate) async fn read(
    disks: &[Arc<dyn Disk>],
    kind: SliceKind,
) -> Result<SliceSuperblock, SliceError> {
    let mut first: Option<SliceSuperblock> = None;
    for (number, disk) in disks.iter().enumerate() {
        let page = disk
            .read(0, AlignedBuf::new(PAGE_BYTES))
            .await
            .map_err(SliceError::device(number))?;
        let found = SliceSuperblock::decode(&page).map_err(|source| SliceError::NoStructure {
            drive: number,
            source,
        })?;
        check(&found, kind, number, disks.len(), first.as_ref())?;
        first.get_or_insert(found);
    }
    first.ok_or_else(|| SliceError::Setting("name at least one drive".to_owned()))
}

/// Whether a superblock is that of drive `number` of `given`, and of the same structure as `first`.
fn check(
    found: &SliceSuperblock,
    kind: SliceKind,
    number: usize,
    given: usize,
    first: Option<&SliceSuperblock>,
) -> Result<(), SliceError> {
    if found.kind.get() != kind as u32 {
        return Err(SliceError::OtherKind {
            drive: number,
            found: SliceKind::name_of(found.kind.get()),
            expected: SliceKind::name_of(kind as u32),
        });
    }
    let drives = found.drives.get();
    if drives as usize != given {
        return Err(SliceError::DrivesMissing { drives, given });
    }
    if found.drive.get() as usize != number {
        let found = found.drive.get();
        return Err(SliceError::OtherDrive {
            expected: number,
            found,
            drives,
        });
    }
    match first.is_none_or(|first| first.instance == found.instance) {
        true => Ok(()),
        false => Err(SliceError::OtherInstance { drive: number }),
    }
}
