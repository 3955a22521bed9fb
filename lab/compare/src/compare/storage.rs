//! The device of a run, for the engine and for the counters.

use std::sync::Arc;

use device::{
    AlignedBuf, DeviceError, Disk, Flash, MemoryDisk, MeteredDisk, Region, SharedBuf, WriteMeter,
};
use emulated::{DriveModel, Emulated, Ftl, Libssd, Nand, NandCrash, PacedDisk};
use engine::Medium;
use engine::config::META_BYTES;

#[derive(Clone)]
pub(super) struct Storage {
    device: Device,
    /// Part of the drive that is used; `None` for all.
    part: Option<Arc<Region>>,
}

#[derive(Clone)]
enum Device {
    /// An emulated conventional drive.
    Ftl(Arc<Ftl>),
    /// Emulated raw flash.
    Nand(Arc<Libssd>),
    /// A disk whose flash cannot be observed: a file, or the model of a drive.
    Disk(Arc<dyn Disk>),
}

impl Storage {
    pub(super) fn of(device: &Emulated) -> Self {
        Self::all(match device {
            Emulated::Nand(flash) => Device::Nand(Arc::clone(flash)),
            Emulated::Ftl(disk) => Device::Ftl(Arc::clone(disk)),
        })
    }

    fn all(device: Device) -> Self {
        Self { device, part: None }
    }

    /// Returns a drive whose flash cannot be observed.
    pub(super) fn disk(disk: Arc<dyn Disk>) -> Self {
        Self::all(Device::Disk(disk))
    }

    /// Restricts the cache to the first `bytes` of a drive. `None` leaves all of it. Raw flash is always used whole.
    pub(super) fn part(mut self, bytes: Option<u64>) -> Result<Self, DeviceError> {
        if let (Some(bytes), Some(disk)) = (bytes, self.drive()) {
            self.part = Some(Arc::new(Region::new(disk, 0, bytes)?));
        }
        Ok(self)
    }

    fn drive(&self) -> Option<Arc<dyn Disk>> {
        match &self.device {
            Device::Ftl(disk) => Some(Arc::clone(disk) as _),
            Device::Disk(disk) => Some(Arc::clone(disk)),
            Device::Nand(_) => None,
        }
    }

    /// Returns the used part of the drive; `None` for raw flash.
    pub(super) fn used(&self) -> Option<Arc<dyn Disk>> {
        let part = self
            .part
            .as_ref()
            .map(|part| Arc::clone(part) as Arc<dyn Disk>);
        part.or_else(|| self.drive())
    }

    /// Overwrites the superblock, so that the next start finds no cache on the drive. Raw flash has its superblock in memory.
    pub(super) async fn forget(&self) -> Result<(), DeviceError> {
        match self.used() {
            Some(disk) => {
                let nothing = AlignedBuf::new(META_BYTES as usize);
                disk.write(0, SharedBuf::from(nothing)).await
            }
            None => Ok(()),
        }
    }

    /// Waits until the drive has moved its cache to flash.
    pub(super) async fn sync(&self) -> Result<(), DeviceError> {
        match self.used() {
            Some(disk) => disk.sync().await,
            None => Ok(()),
        }
    }

    /// Returns the storage as it is after the process was killed. An emulated drive has completed all commands that it got.
    pub(super) fn survived(&self) -> Result<Self, DeviceError> {
        let device = match &self.device {
            Device::Ftl(disk) => {
                let nand = Nand::from_image(disk.nand().crash(NandCrash::Finished));
                let config = disk.config().clone();
                Device::Ftl(Arc::new(
                    Ftl::open(Arc::new(nand), config).expect("it was a drive"),
                ))
            }
            other => other.clone(),
        };
        let bytes = self.part.as_ref().map(|part| part.len_bytes());
        Self::all(device).part(bytes)
    }

    /// Returns an empty drive of `bytes` with the times of `model`.
    pub(super) fn modelled(model: &DriveModel, bytes: u64) -> Self {
        let contents = Arc::new(MemoryDisk::new(bytes));
        Self::disk(Arc::new(PacedDisk::new(contents, model.clone())))
    }

    fn nand(&self) -> Option<&Arc<Nand>> {
        match &self.device {
            Device::Ftl(disk) => Some(disk.nand()),
            Device::Nand(flash) => Some(flash.nand()),
            Device::Disk(_) => None,
        }
    }

    /// Returns the medium for an engine. `meter` counts writes to a drive. With raw flash, the superblock lies in memory.
    pub(super) fn medium(&self, meter: &Arc<WriteMeter>) -> Medium {
        match (&self.device, self.used()) {
            (_, Some(disk)) => Medium::Disk(Arc::new(MeteredDisk::new(disk, Arc::clone(meter)))),
            (Device::Nand(flash), _) => Medium::Flash {
                flash: Arc::clone(flash) as _,
                meta: Arc::new(MemoryDisk::new(META_BYTES)),
            },
            (Device::Ftl(_) | Device::Disk(_), None) => unreachable!("drives are used"),
        }
    }

    /// Returns the bytes for segments and metadata.
    pub(super) fn bytes(&self) -> u64 {
        match (&self.device, self.used()) {
            (Device::Nand(flash), _) => {
                let shape = flash.geometry();
                u64::from(shape.blocks()) * shape.block_bytes()
            }
            (_, used) => used.map_or(0, |disk| disk.len_bytes()),
        }
    }

    /// Returns the number and the size of the erase blocks, if segments are erase blocks.
    pub(super) fn blocks(&self) -> Option<(u64, u32)> {
        let Device::Nand(flash) = &self.device else {
            return None;
        };
        let shape = flash.geometry();
        let bytes = u32::try_from(shape.block_bytes()).unwrap_or(u32::MAX);
        Some((shape.blocks().into(), bytes))
    }

    pub(super) fn nand_bytes_programmed(&self) -> Option<u64> {
        let nand = self.nand()?;
        Some(nand.counts().programs * u64::from(nand.config().geometry.page_bytes))
    }

    /// Returns the bytes written to the drive, if it counts them.
    pub(super) fn host_bytes_written(&self) -> Option<u64> {
        match &self.device {
            Device::Ftl(disk) => Some(disk.counts().host_bytes_written),
            Device::Nand(_) | Device::Disk(_) => None,
        }
    }

    pub(super) fn erases(&self) -> Option<u64> {
        Some(self.nand()?.counts().erases)
    }

    /// Returns the erases of every good block, by ascending block number.
    pub(super) fn erase_counts(&self) -> Vec<u64> {
        let Some(nand) = self.nand() else {
            return Vec::new();
        };
        let bad = nand.bad_blocks();
        let blocks = (0..nand.config().geometry.blocks()).map(device::BlockId);
        blocks
            .filter(|block| bad.binary_search_by_key(&block.0, |bad| bad.0).is_err())
            .map(|block| u64::from(nand.erases(block)))
            .collect()
    }

    /// Returns the bytes of the drive's own memory for its map of pages.
    pub(super) fn mapping_bytes(&self) -> u64 {
        match &self.device {
            Device::Ftl(disk) => disk.map_bytes(),
            Device::Nand(_) | Device::Disk(_) => 0,
        }
    }
}
