//! The device of a run, as the engine and the counters see it.

use std::sync::Arc;

use device::{Disk, Emulated, Flash, Ftl, Libssd, Nand};

/// What a preset runs on.
#[derive(Clone)]
pub(super) enum Storage {
    /// A conventional drive, emulated.
    Ftl(Arc<Ftl>),
    /// Flash in segments, emulated.
    Nand(Arc<Libssd>),
    /// A file, whose flash nobody sees.
    File,
}

impl Storage {
    pub(super) fn of(device: &Emulated) -> Self {
        match device {
            Emulated::Nand(flash) => Self::Nand(Arc::clone(flash)),
            Emulated::Ftl(disk) => Self::Ftl(Arc::clone(disk)),
        }
    }

    fn nand(&self) -> Option<&Arc<Nand>> {
        match self {
            Self::Ftl(disk) => Some(disk.nand()),
            Self::Nand(flash) => Some(flash.nand()),
            Self::File => None,
        }
    }

    /// Bytes that can be stored.
    pub(super) fn usable_bytes(device: &Emulated) -> u64 {
        match device {
            Emulated::Ftl(disk) => disk.len_bytes(),
            Emulated::Nand(flash) => {
                let shape = flash.geometry();
                let bad = flash.bad_segments().len() as u64;
                (u64::from(shape.blocks()) - bad) * shape.block_bytes()
            }
        }
    }

    /// Bytes programmed into flash.
    pub(super) fn nand_bytes_programmed(&self) -> Option<u64> {
        let nand = self.nand()?;
        Some(nand.counts().programs * u64::from(nand.config().geometry.page_bytes))
    }

    /// Bytes written to the drive, as far as it counts them.
    pub(super) fn host_bytes_written(&self) -> Option<u64> {
        match self {
            Self::Ftl(disk) => Some(disk.counts().host_bytes_written),
            Self::Nand(_) | Self::File => None,
        }
    }

    /// Blocks erased.
    pub(super) fn erases(&self) -> Option<u64> {
        Some(self.nand()?.counts().erases)
    }

    /// Erases of the block with the fewest and of the one with the most; bad blocks do not count.
    pub(super) fn erase_spread(&self) -> Option<(u64, u64)> {
        let nand = self.nand()?;
        let bad = nand.bad_blocks();
        let blocks = (0..nand.config().geometry.blocks()).map(device::BlockId);
        let good = blocks.filter(|block| bad.binary_search_by_key(&block.0, |bad| bad.0).is_err());
        let mut spread: Option<(u64, u64)> = None;
        for block in good {
            let erases = u64::from(nand.erases(block));
            let (least, most) = spread.unwrap_or((erases, erases));
            spread = Some((least.min(erases), most.max(erases)));
        }
        spread
    }
}
