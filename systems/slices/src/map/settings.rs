//! The settings of a map, the division of its drives, and both in its superblock.

use std::sync::Arc;

use crate::encoding::map::{MOST_RECORD_BYTES, RECORD_HEAD_BYTES, Record};
use crate::encoding::table::{SliceKind, SliceSuperblock};
use device::{Disk, PAGE_BYTES, Region};
use zerocopy::byteorder::little_endian::U64;

use crate::channel::Channels;
use crate::error::SliceError;
use crate::layout::refuse_if;
use crate::map::log::SLOTS;
use crate::settings::{HashSettings, HashShape};
use crate::superblock::{self, Instance, SlicetableShape};

/// Estimated bytes of a drive for each entry of the table.
const ENTRY_BYTES: u64 = 24;
const MOST_SEGMENT_BYTES: u32 = 64 << 20;
/// Minimum segments of all drives: as many as are in memory, and some more.
const LEAST_SEGMENTS: u64 = 8;

/// Settings of a [`SliceMap`](crate::SliceMap).
#[derive(Clone, Debug, PartialEq)]
pub struct MapSettings {
    /// Settings of the table, which has the address of each key's record.
    pub table: HashSettings,
    /// Average bytes of a key and its value together, which divides the drives between records and table.
    pub mean_bytes: u32,
    /// Bytes of records that are written at once, a multiple of 4 KiB. A record fits a segment, and has at most 1 MiB less 16
    /// bytes.
    pub segment_bytes: u32,
}

impl Default for MapSettings {
    fn default() -> Self {
        Self {
            table: HashSettings::default(),
            mean_bytes: 1024,
            segment_bytes: 1 << 20,
        }
    }
}

/// Sizes of a map that follow from the settings and the drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapShape {
    /// Shape of the table, which has the address of each key's record.
    pub table: HashShape,
    /// Division of the drives between records and table.
    pub records: RecordShape,
}

/// The division of a map's drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordShape {
    /// Bytes of a segment of records.
    pub segment_bytes: u32,
    /// Segments of records on each drive. All drives have the same number.
    pub segments: u64,
    pub(crate) drives: usize,
    /// Bytes in front of the records of a drive.
    pub(crate) head_bytes: u64,
    /// Bytes of a drive in front of its part of the table.
    pub(crate) table_start: u64,
}

impl MapSettings {
    /// Returns the shape on drives of these sizes.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range, and a drive that is too small.
    pub fn shape(&self, drive_bytes: &[u64]) -> Result<MapShape, SliceError> {
        self.check()?;
        let layout = self.table.layout();
        layout.check()?;
        let least = drive_bytes.iter().copied().min().unwrap_or(0);
        let share = |bytes: u64| {
            let mean = u128::from(self.mean_bytes) + u128::from(ENTRY_BYTES);
            (u128::from(bytes) * u128::from(self.mean_bytes) / mean) as u64
        };
        let usable = least.saturating_sub(layout.head_bytes());
        let most = usable.saturating_sub(self.least_of_table(drive_bytes.len())?);
        let segments = share(usable).min(most) / u64::from(self.segment_bytes);
        let drives = drive_bytes.len();
        let records = self.records(segments, drives)?;
        let table = self.table.shape(&records.rest(drive_bytes))?;
        Ok(MapShape { table, records })
    }

    /// Returns the bytes of a drive for the table that is asked for, or for the smallest one.
    fn least_of_table(&self, drives: usize) -> Result<u64, SliceError> {
        let boundless = vec![1 << 62; drives];
        let region_bytes = self.table.shape(&boundless)?.region_bytes;
        let partitions = self.table.partitions.unwrap_or(1);
        let of_a_drive = match self.table.spread {
            true => partitions,
            false => partitions.div_ceil(drives.max(1) as u32),
        };
        let regions = u64::from(of_a_drive) + u64::from(self.table.spare_regions);
        let layout = self.table.layout();
        // The table's part begins at a stripe.
        Ok(layout
            .bytes_of(regions, region_bytes)
            .saturating_add(layout.head_bytes()))
    }

    fn check(&self) -> Result<(), SliceError> {
        let segment = self.segment_bytes;
        refuse_if([
            (
                segment == 0
                    || !segment.is_multiple_of(PAGE_BYTES as u32)
                    || segment > MOST_SEGMENT_BYTES,
                "segment_bytes: whole pages of 4096 bytes, 64 MiB at most",
            ),
            (self.mean_bytes == 0, "mean_bytes: 1 at least"),
            (
                !self.table.log_changes,
                "log_changes: a map's table logs what changes",
            ),
        ])
    }

    /// Returns the division of drives with `segments` segments each.
    fn records(&self, segments: u64, drives: usize) -> Result<RecordShape, SliceError> {
        let stripe = self.table.layout().head_bytes();
        let too_few = segments.saturating_mul(drives as u64) < LEAST_SEGMENTS;
        if too_few {
            return Err(SliceError::Setting(format!(
                "the drives hold {segments} segments of records each, and {} are the least of all together; give them more bytes, \
                 or choose smaller segments",
                LEAST_SEGMENTS
            )));
        }
        let records = segments * u64::from(self.segment_bytes);
        Ok(RecordShape {
            segment_bytes: self.segment_bytes,
            segments,
            drives,
            head_bytes: stripe,
            table_start: (stripe + records).next_multiple_of(stripe),
        })
    }
}

impl RecordShape {
    /// Returns the bytes of records on all drives.
    pub fn bytes(&self) -> u64 {
        self.drives as u64 * self.segments * u64::from(self.segment_bytes)
    }

    /// Returns the bytes of a record with a key and a value of these sizes.
    pub fn record_bytes(key_bytes: usize, value_bytes: usize) -> u64 {
        Record::bytes_of(key_bytes, value_bytes) as u64
    }

    /// Returns the maximum bytes of a key and its value together.
    pub fn most_bytes(&self) -> usize {
        (self.segment_bytes as usize).min(MOST_RECORD_BYTES) - RECORD_HEAD_BYTES
    }

    /// Returns the bytes of drives of these sizes that are left for the table.
    pub(super) fn rest(&self, drive_bytes: &[u64]) -> Vec<u64> {
        let rest = |bytes: &u64| bytes.saturating_sub(self.table_start);
        drive_bytes.iter().map(rest).collect()
    }

    /// Returns the parts of drives that the table lies on.
    pub(crate) fn table_parts(
        &self,
        disks: &[Arc<dyn Disk>],
    ) -> Result<Vec<Arc<dyn Disk>>, SliceError> {
        let part_of = |(drive, disk): (usize, &Arc<dyn Disk>)| {
            let (has, start) = (disk.len_bytes(), self.table_start);
            let needs = start + PAGE_BYTES as u64;
            if has < needs {
                return Err(SliceError::ShortDrive { drive, has, needs });
            }
            let part = Region::new(Arc::clone(disk), start, has - start);
            let part = part.map_err(SliceError::device(drive))?;
            Ok(Arc::new(part) as Arc<dyn Disk>)
        };
        disks.iter().enumerate().map(part_of).collect()
    }
}

/// Returns the superblock of a new map.
pub(super) fn superblock_of(
    settings: &MapSettings,
    shape: &MapShape,
    instance: Instance,
) -> SliceSuperblock {
    let table = &shape.table;
    let mut superblock = superblock::common(
        SliceKind::Map,
        instance,
        &settings.table.layout(),
        SlicetableShape {
            partitions: table.partitions,
            pages: table.pages,
            incarnations: table.page.incarnations,
            slots: table.page.slots,
        },
    );
    let records = &shape.records;
    let own = [records.segment_bytes.into(), records.segments, 0, 0];
    superblock.own = own.map(U64::new);
    superblock
}

/// Returns the settings that an existing map was created with, and the division of its drives.
pub(super) fn created(
    found: &SliceSuperblock,
    settings: &MapSettings,
) -> Result<(MapSettings, RecordShape), SliceError> {
    let [segment_bytes, segments, own @ ..] = found.own.map(U64::get);
    let drives = u64::from(found.drives.get());
    let all = segments.checked_mul(drives);
    let bytes = segments.checked_mul(segment_bytes);
    superblock::refuse_if(
        0,
        [
            (
                segment_bytes == 0
                    || segment_bytes % PAGE_BYTES as u64 != 0
                    || segment_bytes > MOST_SEGMENT_BYTES.into(),
                "bytes of a segment",
            ),
            (
                all.is_none_or(|all| all < LEAST_SEGMENTS)
                    || bytes.is_none_or(|bytes| bytes > i64::MAX as u64),
                "segments",
            ),
            (own != [0; 2], "numbers that a map does not have"),
        ],
    )?;
    let created = MapSettings {
        table: HashSettings {
            page_bytes: found.page_bytes.get(),
            channels: Channels {
                count: found.channels.get(),
                chunk_bytes: found.chunk_bytes.get(),
            },
            ..settings.table.clone()
        },
        segment_bytes: segment_bytes as u32,
        ..settings.clone()
    };
    let records = created.records(segments, drives as usize)?;
    Ok((created, records))
}

const _: () = assert!(SLOTS as u64 + 2 <= LEAST_SEGMENTS);
