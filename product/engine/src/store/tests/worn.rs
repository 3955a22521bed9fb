//! Flash of a disk in memory whose blocks are bad from the beginning or go bad with an erase too many.

use std::sync::Arc;

use device::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, DiskFlash, Flash, Geometry, IoFuture,
    MemoryDisk, Operation, Region, SharedBuf, refused,
};
use parking_lot::Mutex;

use super::SEGMENT;

pub(super) struct WornFlash {
    flash: DiskFlash,
    /// Erases that a block bears.
    cycles: u32,
    /// Erases of each block so far; `None` for a bad one.
    erases: Mutex<Vec<Option<u32>>>,
}

impl WornFlash {
    /// Creates flash of 32 blocks on two channels.
    pub(super) fn new(cycles: u32, is_bad: impl Fn(u32) -> bool) -> Arc<Self> {
        const BLOCKS: u32 = 32;
        let bytes = u64::from(BLOCKS * SEGMENT);
        let region = Region::new(Arc::new(MemoryDisk::new(bytes)), 0, bytes).unwrap();
        let erases = (0..BLOCKS).map(|block| (!is_bad(block)).then_some(0));
        Arc::new(Self {
            flash: DiskFlash::new(region, SEGMENT, 2, false).unwrap(),
            cycles,
            erases: Mutex::new(erases.collect()),
        })
    }

    /// Counts an erase; the one too many makes the block bad.
    fn wear(&self, block: u32) -> Result<(), DeviceError> {
        let operation = Operation::Erase;
        let erases = &mut self.erases.lock()[block as usize];
        let Some(before) = *erases else {
            return Err(DeviceError::BadBlock { operation, block });
        };
        *erases = (before < self.cycles).then_some(before + 1);
        erases.map(drop).ok_or(DeviceError::WornOut {
            operation,
            block,
            erases: before,
        })
    }
}

impl Flash for WornFlash {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.flash.read(block, offset, buf)
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        if self.health(block) == BlockHealth::Bad {
            return refused(DeviceError::BadBlock {
                operation: Operation::Write,
                block: block.0,
            });
        }
        self.flash.program(block, first_page, data)
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        match self.wear(block.0) {
            Ok(()) => self.flash.erase(block),
            Err(error) => refused(error),
        }
    }

    fn health(&self, block: BlockId) -> BlockHealth {
        match self.erases.lock()[block.0 as usize] {
            Some(_) => BlockHealth::Good,
            None => BlockHealth::Bad,
        }
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.flash.sync()
    }
}
