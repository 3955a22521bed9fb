//! The device of a run, as the engine and the counters see it.

use std::sync::Arc;

use device::{Disk, DriveModel, Emulated, Flash, Ftl, Libssd, MemoryDisk, Nand, PacedDisk};
use engine::Medium;
use engine::config::META_BYTES;

#[derive(Clone)]
pub(super) enum Storage {
    /// A conventional drive, emulated.
    Ftl(Arc<Ftl>),
    /// Flash in segments, emulated.
    Nand(Arc<Libssd>),
    /// A disk whose flash nobody sees: a file, or the model of a drive.
    Disk(Arc<dyn Disk>),
}

impl Storage {
    pub(super) fn of(device: &Emulated) -> Self {
        match device {
            Emulated::Nand(flash) => Self::Nand(Arc::clone(flash)),
            Emulated::Ftl(disk) => Self::Ftl(Arc::clone(disk)),
        }
    }

    /// An empty drive of `bytes` that does what `model` says.
    pub(super) fn modelled(model: &DriveModel, bytes: u64) -> Self {
        let contents = Arc::new(MemoryDisk::new(bytes));
        Self::Disk(Arc::new(PacedDisk::new(contents, model.clone())))
    }

    fn nand(&self) -> Option<&Arc<Nand>> {
        match self {
            Self::Ftl(disk) => Some(disk.nand()),
            Self::Nand(flash) => Some(flash.nand()),
            Self::Disk(_) => None,
        }
    }

    /// What an engine is opened on. Beside flash, the superblock lies in memory.
    pub(super) fn medium(&self) -> Medium {
        match self {
            Self::Ftl(disk) => Medium::Disk(Arc::clone(disk) as _),
            Self::Disk(disk) => Medium::Disk(Arc::clone(disk)),
            Self::Nand(flash) => Medium::Flash {
                flash: Arc::clone(flash) as _,
                meta: Arc::new(MemoryDisk::new(META_BYTES)),
            },
        }
    }

    /// Bytes that it has for segments and what goes with them.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Ftl(disk) => disk.len_bytes(),
            Self::Nand(flash) => {
                let shape = flash.geometry();
                u64::from(shape.blocks()) * shape.block_bytes()
            }
            Self::Disk(disk) => disk.len_bytes(),
        }
    }

    /// The number and the bytes of its erase blocks, where segments are made of them.
    pub(super) fn blocks(&self) -> Option<(u64, u32)> {
        let Self::Nand(flash) = self else {
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

    /// Bytes written to the drive, as far as it counts them.
    pub(super) fn host_bytes_written(&self) -> Option<u64> {
        match self {
            Self::Ftl(disk) => Some(disk.counts().host_bytes_written),
            Self::Nand(_) | Self::Disk(_) => None,
        }
    }

    pub(super) fn erases(&self) -> Option<u64> {
        Some(self.nand()?.counts().erases)
    }

    /// Erases of every block that is not bad, by rising number.
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

    /// What the drive keeps in its own memory to know where pages lie.
    pub(super) fn mapping_bytes(&self) -> u64 {
        match self {
            Self::Ftl(disk) => disk.map_bytes(),
            Self::Nand(_) | Self::Disk(_) => 0,
        }
    }
}
