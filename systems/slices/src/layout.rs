//! The layout of slicetables on a drive, for every kind of structure: the settings that all kinds share, and the sizes that
//! follow.

use std::sync::Arc;

use crate::encoding::log::MOST_REGIONS;
use crate::encoding::table::SliceSuperblock;
use device::Disk;

use crate::channel::Channels;
use crate::error::SliceError;
use crate::scheduler::Scheduling;

pub(crate) const MOST_INCARNATIONS: u32 = 4096;

/// Settings that every kind of structure has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) page_bytes: u32,
    pub(crate) channels: Channels,
    pub(crate) piece_bytes: u32,
    pub(crate) spare_regions: u32,
    pub(crate) scheduling: Scheduling,
    /// Bytes between the superblock and the first region, for other uses of the structure.
    pub(crate) beside_bytes: u64,
}

/// Returns [`SliceError::Setting`] with the first message whose condition holds.
pub(crate) fn refuse_if(
    wrong: impl IntoIterator<Item = (bool, &'static str)>,
) -> Result<(), SliceError> {
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, what)) => Err(SliceError::Setting(what.to_owned())),
        None => Ok(()),
    }
}

/// Returns the bytes of each disk.
pub(crate) fn drive_bytes(disks: &[Arc<dyn Disk>]) -> Vec<u64> {
    disks.iter().map(|disk| disk.len_bytes()).collect()
}

/// Returns the number of partitions asked for, or `most` without one. Refuses 0 and more than `most`.
pub(crate) fn partitions_of(asked: Option<u32>, most: u32) -> Result<u32, SliceError> {
    let partitions = asked.unwrap_or(most);
    if partitions == 0 || partitions > most {
        return Err(SliceError::Setting(format!(
            "{partitions} partitions cannot be: the drives have space for 1 to {most}"
        )));
    }
    Ok(partitions)
}

/// Returns the number of partitions that fit `has` bytes of memory, at `needs` bytes for each.
pub(crate) fn partitions_in(has: u64, needs: u64) -> Result<u32, SliceError> {
    match u32::try_from(has / needs).unwrap_or(u32::MAX) {
        0 => Err(SliceError::SmallMemory { has, needs }),
        partitions => Ok(partitions),
    }
}

impl Layout {
    /// Refuses pages, channels, pieces, spare regions and queue depths that no drive can have.
    pub(crate) fn check(&self) -> Result<(), SliceError> {
        let stripe = self.channels.stripe_bytes();
        let whole = |bytes: u64, of: u64| of > 0 && bytes > 0 && bytes.is_multiple_of(of);
        refuse_if([
            (
                !whole(self.page_bytes.into(), device::PAGE_BYTES as u64),
                "page_bytes: whole pages of 4096 bytes",
            ),
            (
                !whole(self.channels.chunk_bytes.into(), self.page_bytes.into()),
                "chunk_bytes: whole pages of page_bytes",
            ),
            (self.channels.count == 0, "channels: 1 at least"),
            (
                !whole(self.piece_bytes.into(), stripe),
                "piece_bytes: whole stripes, that is channels times chunk_bytes",
            ),
            (self.spare_regions == 0, "spare_regions: 1 at least"),
        ])?;
        self.check_scheduling()
    }

    fn check_scheduling(&self) -> Result<(), SliceError> {
        let Scheduling {
            queue_depth,
            channel_depth,
            ..
        } = self.scheduling;
        refuse_if([(
            queue_depth == 0 || channel_depth == 0,
            "queue_depth and channel_depth: 1 at least",
        )])
    }

    /// Returns the bytes of the superblock of a drive, whole stripes.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.channels.stripe_bytes().max(self.page_bytes.into())
    }

    /// Returns the bytes in front of the first region of a drive.
    pub(crate) fn front_bytes(&self) -> u64 {
        self.head_bytes().saturating_add(self.beside_bytes)
    }

    /// Returns the pages of a stripe. A slicetable is whole stripes.
    pub(crate) fn stripe_pages(&self) -> usize {
        (self.channels.stripe_bytes() / u64::from(self.page_bytes)).max(1) as usize
    }

    /// Returns the number of partitions that each drive has space for, with regions of `region_bytes`.
    pub(crate) fn fitting(
        &self,
        drive_bytes: &[u64],
        region_bytes: u64,
    ) -> Result<Vec<u32>, SliceError> {
        let mut fitting = Vec::new();
        for (drive, &has) in drive_bytes.iter().enumerate() {
            let regions = has.saturating_sub(self.front_bytes()) / region_bytes;
            let regions = regions.min(MOST_REGIONS.into());
            let Some(most) = regions
                .checked_sub(self.spare_regions.into())
                .filter(|&most| most > 0)
            else {
                let regions = u64::from(self.spare_regions) + 1;
                let needs = self.bytes_of(regions, region_bytes);
                return Err(SliceError::SmallDrive { drive, has, needs });
            };
            fitting.push(u32::try_from(most).unwrap_or(u32::MAX / 4));
        }
        match fitting.is_empty() {
            true => Err(SliceError::Setting("name at least one drive".to_owned())),
            false => Ok(fitting),
        }
    }

    /// Returns the bytes of a drive with `regions` regions.
    pub(crate) fn bytes_of(&self, regions: u64, region_bytes: u64) -> u64 {
        let regions = regions.saturating_mul(region_bytes);
        regions.saturating_add(self.front_bytes())
    }

    /// Returns the layout of an existing structure: `self` with the pages and channels of `found`, a superblock that has been
    /// checked. Rounds `piece_bytes` up to whole stripes.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range.
    pub(crate) fn created(self, found: &SliceSuperblock) -> Result<Self, SliceError> {
        refuse_if([(self.piece_bytes == 0, "piece_bytes: 1 at least")])?;
        self.check_scheduling()?;
        let channels = Channels {
            count: found.channels.get(),
            chunk_bytes: found.chunk_bytes.get(),
        };
        let stripe = channels.stripe_bytes();
        let most = u64::from(u32::MAX) / stripe;
        let stripes = u64::from(self.piece_bytes).div_ceil(stripe).min(most);
        Ok(Self {
            page_bytes: found.page_bytes.get(),
            channels,
            piece_bytes: (stripes * stripe) as u32,
            ..self
        })
    }
}
