//! The superblocks of a structure's drives: written when it is created, checked when it is opened.

use std::sync::Arc;

use crate::encoding::table::{SliceKind, SliceSuperblock};
use device::{AlignedBuf, Disk, Journal, PAGE_BYTES, SharedBuf};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::channel::Channels;
use crate::error::SliceError;
use crate::layout::{Layout, MOST_INCARNATIONS};
use crate::pointers::Pointers;
use crate::words;

/// The identity of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    pub(crate) id: u64,
    /// Seed of the hash functions.
    pub(crate) seed: u64,
    /// Whether this process has created it.
    pub(crate) is_new: bool,
}

impl Instance {
    pub(crate) fn random() -> Self {
        Self {
            id: runtime::random_id(),
            seed: runtime::random_u64(),
            is_new: true,
        }
    }

    pub(crate) fn of(found: &SliceSuperblock) -> Self {
        Self {
            id: found.instance.get(),
            seed: found.hash_seed.get(),
            is_new: false,
        }
    }
}

/// Shape of the slicetables of a structure.
pub(crate) struct SlicetableShape {
    pub(crate) partitions: u32,
    /// Pages of a slicetable.
    pub(crate) pages: u32,
    pub(crate) incarnations: usize,
    /// Slots of an incarnation in a page.
    pub(crate) slots: usize,
}

/// Returns a superblock with the fields that every kind has.
pub(crate) fn common(
    kind: SliceKind,
    instance: Instance,
    layout: &Layout,
    tables: SlicetableShape,
) -> SliceSuperblock {
    let mut superblock = SliceSuperblock::new(kind);
    superblock.instance = U64::new(instance.id);
    superblock.hash_seed = U64::new(instance.seed);
    let numbers = [
        (&mut superblock.partitions, tables.partitions),
        (&mut superblock.pages, tables.pages),
        (&mut superblock.page_bytes, layout.page_bytes),
        (&mut superblock.incarnations, tables.incarnations as u32),
        (&mut superblock.slots_per_page, tables.slots as u32),
        (&mut superblock.channels, layout.channels.count),
        (&mut superblock.chunk_bytes, layout.channels.chunk_bytes),
    ];
    for (field, value) in numbers {
        *field = U32::new(value);
    }
    superblock
}

/// Creates a structure whose log has `log_words` words: writes `superblock` to each drive, with the drive's number, and syncs it.
/// The rest of the bytes of the superblock is zeros.
///
/// # Errors
/// A disk that is named twice or a log that is too short, before anything is written, and errors of the devices.
pub(crate) async fn create(
    disks: &[Arc<dyn Disk>],
    journal: &dyn Journal,
    log_words: usize,
    mut superblock: SliceSuperblock,
    layout: &Layout,
) -> Result<(), SliceError> {
    refuse_twice(disks)?;
    words::refuse_short(journal, log_words)?;
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

/// Returns the superblock of the first drive. Refuses a disk that is named twice, and drives whose superblocks are not of one
/// structure of this kind.
pub(crate) async fn read(
    disks: &[Arc<dyn Disk>],
    kind: SliceKind,
) -> Result<SliceSuperblock, SliceError> {
    refuse_twice(disks)?;
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
        check_numbers(&found, number)?;
        first.get_or_insert(found);
    }
    first.ok_or_else(|| SliceError::Setting("name at least one drive".to_owned()))
}

/// Refuses a disk that is named twice.
fn refuse_twice(disks: &[Arc<dyn Disk>]) -> Result<(), SliceError> {
    let is_before = |drive: &usize| {
        let same = |other: &Arc<dyn Disk>| {
            std::ptr::addr_eq(&raw const **other, &raw const *disks[*drive])
        };
        disks[..*drive].iter().any(same)
    };
    match (0..disks.len()).find(is_before) {
        Some(drive) => Err(SliceError::SameDrive { drive }),
        None => Ok(()),
    }
}

/// Refuses a superblock that is not of drive `number` of `given`, or not of the same structure as `first`.
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
    let Some(first) = first else {
        return Ok(());
    };
    if first.instance != found.instance {
        return Err(SliceError::OtherInstance { drive: number });
    }
    let mut expected = *first;
    expected.drive = found.drive;
    refuse_if(
        number,
        [(expected != *found, "other numbers than the first drive's")],
    )
}

/// Returns [`SliceError::BadSuperblock`] with the first message whose condition holds.
pub(crate) fn refuse_if(
    drive: usize,
    wrong: impl IntoIterator<Item = (bool, &'static str)>,
) -> Result<(), SliceError> {
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, what)) => Err(SliceError::BadSuperblock { drive, what }),
        None => Ok(()),
    }
}

/// Refuses values of the common fields that no structure has. Later sums and products of accepted values do not overflow.
fn check_numbers(found: &SliceSuperblock, drive: usize) -> Result<(), SliceError> {
    let channels = Channels {
        count: found.channels.get(),
        chunk_bytes: found.chunk_bytes.get(),
    };
    let (page_bytes, pages) = (
        u64::from(found.page_bytes.get()),
        u64::from(found.pages.get()),
    );
    let incarnations = found.incarnations.get();
    let stripe = channels.stripe_bytes();
    let whole = |bytes: u64, of: u64| of > 0 && bytes > 0 && bytes.is_multiple_of(of);
    let slots = pages * u64::from(found.slots_per_page.get());
    refuse_if(
        drive,
        [
            (!whole(page_bytes, PAGE_BYTES as u64), "bytes of a page"),
            (
                !whole(channels.chunk_bytes.into(), page_bytes),
                "bytes of a chunk",
            ),
            (stripe == 0 || stripe > u32::MAX.into(), "channels"),
            (!whole(pages * page_bytes, stripe), "pages of a slicetable"),
            (
                incarnations == 0 || incarnations > MOST_INCARNATIONS,
                "incarnations",
            ),
            (slots == 0 || slots > u32::MAX.into(), "slots of a page"),
            (found.partitions.get() == 0, "partitions"),
        ],
    )
}

/// Refuses a drive that is shorter than when the structure was created: it lacks space for its partitions and a spare region, or
/// for a region that one of its pointers names.
pub(crate) fn check_space(
    disks: &[Arc<dyn Disk>],
    found: &SliceSuperblock,
    layout: &Layout,
    pointers: &Pointers,
) -> Result<(), SliceError> {
    let region_bytes = u64::from(found.pages.get()) * u64::from(found.page_bytes.get());
    for (drive, disk) in disks.iter().enumerate() {
        let partitions = match found.spread.get() {
            0 => (found.partitions.get().saturating_sub(drive as u32)).div_ceil(disks.len() as u32),
            _ => found.partitions.get(),
        };
        let pointers = pointers.on_drive(drive, disks.len()).into_iter();
        let named = pointers.filter(|(_, pointer)| pointer.generation > 0);
        let last = named.map(|(_, pointer)| pointer.region).max().unwrap_or(0);
        let regions = u64::from(partitions).max(last.into()) + 1;
        let (has, needs) = (disk.len_bytes(), layout.bytes_of(regions, region_bytes));
        if has < needs {
            return Err(SliceError::ShortDrive { drive, has, needs });
        }
    }
    Ok(())
}
