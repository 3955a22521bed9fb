//! [`Flash`]: blocks that are erased whole and programmed page by page, in order.

use crate::disk::refused;
use crate::{AlignedBuf, DeviceError, IoFuture, SharedBuf};

/// Number of a block within its device: channel by channel, `0..geometry.blocks()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// The shape of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Channels that move data independently of each other.
    pub channels: u32,
    /// LUNs on a channel, each doing one operation at a time.
    pub luns_per_channel: u32,
    /// Erase blocks in a LUN.
    pub blocks_per_lun: u32,
    /// Pages in an erase block.
    pub pages_per_block: u32,
    /// Bytes in a page: the unit of programming.
    pub page_bytes: u32,
}

impl Geometry {
    /// Returns the number of erase blocks on the device.
    pub const fn blocks(&self) -> u32 {
        self.channels * self.luns_per_channel * self.blocks_per_lun
    }

    /// Returns the bytes in an erase block.
    pub const fn block_bytes(&self) -> u64 {
        self.pages_per_block as u64 * self.page_bytes as u64
    }

    /// Returns the channel of a block.
    pub const fn channel_of(&self, block: BlockId) -> u32 {
        block.0 / (self.luns_per_channel * self.blocks_per_lun)
    }
}

/// Usability of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockHealth {
    /// The block takes programs and erases.
    Good,
    /// The block failed a program or an erase, or was marked bad at the factory.
    Bad,
}

/// A flash device.
///
/// Reads may run at any time on programmed pages, on every thread at once. Programs and erases of
/// one block are issued one after the other by its owner; the device enforces their order.
pub trait Flash: Send + Sync {
    /// Returns the shape of the device; it never changes.
    fn geometry(&self) -> Geometry;

    /// Fills `buf` from byte `offset` of `block`. Offset and length are whole I/O pages
    /// ([`PAGE_BYTES`](crate::PAGE_BYTES)) and stay within the block.
    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf>;

    /// Programs the pages of `data` from `first_page` on, which must be the block's next page to program.
    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()>;

    /// Returns whether [`overwrite`](Flash::overwrite) works, as on flash made of a drive.
    fn can_overwrite(&self) -> bool {
        false
    }

    /// Writes pages of a block in any order, including pages written before.
    ///
    /// # Errors
    /// [`DeviceError::ProgramOrder`] if the device cannot write a page twice.
    fn overwrite(&self, block: BlockId, first_page: u32, _data: SharedBuf) -> IoFuture<'_, ()> {
        refused(DeviceError::ProgramOrder {
            block: block.0,
            page: first_page,
            expected: u32::MAX,
        })
    }

    /// Erases a block; its first page is then the next to program.
    fn erase(&self, block: BlockId) -> IoFuture<'_, ()>;

    /// Returns the health of a block.
    fn health(&self, block: BlockId) -> BlockHealth;

    /// Returns the bad blocks in ascending order.
    fn bad_blocks(&self) -> Vec<BlockId> {
        (0..self.geometry().blocks())
            .map(BlockId)
            .filter(|&block| self.health(block) == BlockHealth::Bad)
            .collect()
    }

    /// Returns the number of erases of a block so far, 0 if the device does not count them.
    fn erase_count(&self, _block: BlockId) -> u64 {
        0
    }

    /// Returns the work of a channel so far, in a measure that grows with its reads, programs and erases and compares channels of
    /// one device; 0 if the device does not tell.
    fn channel_load(&self, _channel: u32) -> u64 {
        0
    }

    /// Makes every completed program and erase durable.
    fn sync(&self) -> IoFuture<'_, ()>;
}
