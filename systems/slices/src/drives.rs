//! The drives of a structure. Partition `p` has its slicetable on drive `p mod drives`, or slices are spread over all drives.

use std::ops::Deref;
use std::sync::Arc;

use crate::encoding::log::MOST_REGIONS;
use device::Disk;

use crate::counts::Counts;
use crate::drive::{Drive, DriveCounts, TableShape};
use crate::error::SliceError;
use crate::layout::Layout;
use crate::pointers::{Pointers, check_regions};
use crate::regions::Regions;
use crate::superblock::Instance;

pub(crate) struct Drives(Box<[Drive]>);

impl Deref for Drives {
    type Target = [Drive];

    fn deref(&self) -> &[Drive] {
        &self.0
    }
}

impl Drives {
    /// Returns the drives on `disks`, with slicetables of `pages` pages where `pointers` says.
    ///
    /// # Errors
    /// [`SliceError::DamagedLog`] for a pointer that names no region of its drive, or another pointer's region.
    pub(crate) fn open(
        disks: Vec<Arc<dyn Disk>>,
        layout: &Layout,
        instance: Instance,
        pages: u32,
        pointers: &Pointers,
    ) -> Result<Self, SliceError> {
        let shape = TableShape {
            instance: instance.id,
            is_new: instance.is_new,
            pages,
            page_bytes: layout.page_bytes as usize,
            piece_bytes: layout.piece_bytes as usize,
            head_bytes: layout.front_bytes(),
            channels: layout.channels,
        };
        let count = disks.len();
        let drive_of = |(number, disk): (usize, Arc<dyn Disk>)| {
            let pointers = pointers.on_drive(number, count);
            let regions = disk.len_bytes().saturating_sub(shape.head_bytes) / shape.region_bytes();
            check_regions(pointers.iter().copied(), regions)?;
            let used: Vec<u32> = pointers
                .iter()
                .filter(|(_, pointer)| pointer.generation > 0)
                .map(|(_, pointer)| pointer.region)
                .collect();
            let regions = Regions::without(regions.min(MOST_REGIONS.into()) as u32, &used);
            Ok(Drive::new(number, disk, shape, layout.scheduling, regions))
        };
        let drives: Result<_, SliceError> = disks.into_iter().enumerate().map(drive_of).collect();
        drives.map(Self)
    }

    /// Returns the drive of a partition whose slices are not spread.
    pub(crate) fn of(&self, partition: u32) -> &Drive {
        &self.0[partition as usize % self.0.len()]
    }

    /// Waits until no read uses a disk, not even a read that was given up.
    pub(crate) async fn idle(&self) {
        for drive in self.iter() {
            drive.idle().await;
        }
    }

    /// Returns the counts of all drives together.
    pub(crate) fn counts(&self) -> DriveCounts {
        let all = Counts::default();
        for drive in self.iter() {
            all.add(|counts| *counts = drive.counts.sums());
        }
        all.sums()
    }
}
