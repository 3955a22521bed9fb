//! [`DiskFlash`]: virtual blocks and channels on a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::disk::{check_access, refused};
use crate::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Disk, Flash, Geometry, IoFuture, Operation,
    PAGE_BYTES, Region, SharedBuf,
};

/// Marks a block with contents of an earlier run: it must be erased before programming.
const NEEDS_ERASE: u32 = u32::MAX;

/// A flash device made of any [`Disk`].
///
/// Blocks lie one after the other; a page is one I/O page. Program order is enforced as on real flash, so that an engine bug
/// shows on every device.
pub struct DiskFlash {
    disk: Arc<dyn Disk>,
    /// Byte offset of the first block on the disk.
    start: u64,
    geometry: Geometry,
    discard_on_erase: bool,
    /// Next page to program, per block.
    next_page: Box<[AtomicU32]>,
}

impl DiskFlash {
    /// Divides `region` into blocks of `block_bytes` bytes on `channels` virtual channels. A remainder at the end stays unused.
    /// With `discard_on_erase` an erase discards the block on the disk (a file gets a hole, a drive a TRIM).
    ///
    /// # Errors
    /// [`DeviceError::Address`] when `block_bytes` is not a multiple of [`PAGE_BYTES`] or the region is smaller than one block
    /// per channel.
    pub fn new(
        region: Region,
        block_bytes: u32,
        channels: u32,
        discard_on_erase: bool,
    ) -> Result<Self, DeviceError> {
        let len = block_bytes as usize;
        let is_whole = len.is_multiple_of(PAGE_BYTES);
        let blocks = region.len_bytes().checked_div(block_bytes.into());
        let blocks_per_channel = blocks
            .and_then(|blocks| blocks.checked_div(channels.into()))
            .and_then(|blocks| u32::try_from(blocks).ok())
            .filter(|&blocks| blocks > 0 && is_whole)
            .ok_or_else(|| DeviceError::address(Operation::Write, region.len_bytes(), len))?;
        let geometry = Geometry {
            channels,
            luns_per_channel: 1,
            blocks_per_lun: blocks_per_channel,
            pages_per_block: block_bytes / PAGE_BYTES as u32,
            page_bytes: PAGE_BYTES as u32,
        };
        let next_page = (0..geometry.blocks())
            .map(|_| AtomicU32::new(NEEDS_ERASE))
            .collect();
        let Region { disk, start, .. } = region;
        Ok(Self {
            disk,
            start,
            geometry,
            discard_on_erase,
            next_page,
        })
    }

    /// Returns the disk offset of byte `offset` of `block`; refuses an access beyond the block.
    fn locate(
        &self,
        operation: Operation,
        block: BlockId,
        offset: u64,
        len: usize,
    ) -> Result<u64, DeviceError> {
        let start = u64::from(block.0) * self.geometry.block_bytes();
        if block.0 >= self.geometry.blocks() {
            return Err(DeviceError::address(operation, start + offset, len));
        }
        check_access(operation, offset, len as u64, self.geometry.block_bytes())?;
        Ok(self.start + start + offset)
    }
}

impl Flash for DiskFlash {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        match self.locate(Operation::Read, block, u64::from(offset), buf.len()) {
            Ok(at) => self.disk.read(at, buf),
            Err(error) => refused(error),
        }
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        let offset = u64::from(first_page) * u64::from(self.geometry.page_bytes);
        Box::pin(async move {
            let at = self.locate(Operation::Write, block, offset, data.len())?;
            let pages = (data.len() / PAGE_BYTES) as u32;
            // Claimed before the write: a failed program leaves the block needing an erase.
            self.next_page[block.0 as usize]
                .compare_exchange(
                    first_page,
                    first_page + pages,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .map_err(|expected| DeviceError::ProgramOrder {
                    block: block.0,
                    page: first_page,
                    expected,
                })?;
            self.disk.write(at, data).await
        })
    }

    fn can_overwrite(&self) -> bool {
        true
    }

    fn overwrite(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        let offset = u64::from(first_page) * u64::from(self.geometry.page_bytes);
        match self.locate(Operation::Write, block, offset, data.len()) {
            Ok(at) => self.disk.write(at, data),
            Err(error) => refused(error),
        }
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let at = self.locate(Operation::Erase, block, 0, 0)?;
            if self.discard_on_erase {
                self.disk.discard(at, self.geometry.block_bytes()).await?;
            }
            self.next_page[block.0 as usize].store(0, Ordering::Release);
            Ok(())
        })
    }

    fn health(&self, _block: BlockId) -> BlockHealth {
        BlockHealth::Good
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.disk.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;
    use runtime::sim::Sim;

    fn flash() -> DiskFlash {
        let disk = Arc::new(MemoryDisk::new(11 * 8192));
        let region = Region::new(disk, 4096, 10 * 8192 + 4096).unwrap();
        DiskFlash::new(region, 8192, 2, true).unwrap()
    }

    fn page(byte: u8) -> SharedBuf {
        let mut buf = AlignedBuf::new(PAGE_BYTES);
        buf.fill(byte);
        buf.into()
    }

    #[test]
    fn the_geometry_leaves_out_what_does_not_fill_a_block_on_every_channel() {
        let geometry = flash().geometry();
        assert_eq!(
            (geometry.channels, geometry.blocks(), geometry.block_bytes()),
            (2, 10, 8192)
        );
        assert_eq!(geometry.channel_of(BlockId(4)), 0);
        assert_eq!(geometry.channel_of(BlockId(5)), 1);
    }

    #[test]
    fn pages_are_programmed_in_order_after_an_erase() {
        Sim::new(1).block_on(async {
            let flash = flash();
            let refused = |outcome: Result<(), DeviceError>, next: u32| {
                assert!(matches!(
                    outcome,
                    Err(DeviceError::ProgramOrder { block: 3, expected, .. }) if expected == next
                ));
            };
            let program = |at, byte| flash.program(BlockId(3), at, page(byte));
            refused(program(0, 1).await, NEEDS_ERASE);
            flash.erase(BlockId(3)).await.unwrap();
            refused(program(1, 1).await, 0);
            program(0, 1).await.unwrap();
            program(1, 2).await.unwrap();
            refused(program(1, 3).await, 2);
            let read = flash
                .read(BlockId(3), 4096, AlignedBuf::new(4096))
                .await
                .unwrap();
            assert!(read.iter().all(|&byte| byte == 2));
        });
    }

    #[test]
    fn an_access_beyond_its_block_is_refused() {
        Sim::new(1).block_on(async {
            let flash = flash();
            for (block, offset, len) in [(0, 4096, 8192), (10, 0, 4096)] {
                let read = flash.read(BlockId(block), offset, AlignedBuf::new(len));
                assert!(read.await.is_err());
            }
            assert!(flash.erase(BlockId(10)).await.is_err());
        });
    }
}
