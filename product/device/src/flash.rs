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
    /// Erase blocks on the device.
    pub const fn blocks(&self) -> u32 {
        self.channels * self.luns_per_channel * self.blocks_per_lun
    }

    /// Bytes in an erase block.
    pub const fn block_bytes(&self) -> u64 {
        self.pages_per_block as u64 * self.page_bytes as u64
    }

    /// The channel a block lies on.
    pub const fn channel_of(&self, block: BlockId) -> u32 {
        block.0 / (self.luns_per_channel * self.blocks_per_lun)
    }
}

/// Whether a block can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockHealth {
    /// It takes programs and erases.
    Good,
    /// It failed a program or an erase, or was marked so at the factory.
    Bad,
}

/// A flash device.
///
/// Reads may run at any time on programmed pages, on every thread at once. Programs and erases of
/// one block are issued one after the other by its owner; the device enforces their order.
pub trait Flash: Send + Sync {
    /// The shape of the device; it never changes.
    fn geometry(&self) -> Geometry;

    /// Fills `buf` from byte `offset` of `block`. Offset and length are whole I/O pages
    /// ([`PAGE_BYTES`](crate::PAGE_BYTES)) and stay within the block.
    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf>;

    /// Programs the pages of `data` from `first_page` on, which must be the next of its block.
    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()>;

    /// Whether [`overwrite`](Flash::overwrite) works, as on what is made of a drive.
    fn can_overwrite(&self) -> bool {
        false
    }

    /// Writes pages of a block in any order, also ones that have been written before.
    ///
    /// # Errors
    /// [`DeviceError::ProgramOrder`] where pages cannot be written twice.
    fn overwrite(&self, block: BlockId, first_page: u32, _data: SharedBuf) -> IoFuture<'_, ()> {
        refused(DeviceError::ProgramOrder {
            block: block.0,
            page: first_page,
            expected: u32::MAX,
        })
    }

    /// Erases a block, after which its first page is the next to program.
    fn erase(&self, block: BlockId) -> IoFuture<'_, ()>;

    /// Whether a block can be used.
    fn health(&self, block: BlockId) -> BlockHealth;

    /// The blocks that cannot be used, by rising number.
    fn bad_blocks(&self) -> Vec<BlockId> {
        (0..self.geometry().blocks())
            .map(BlockId)
            .filter(|&block| self.health(block) == BlockHealth::Bad)
            .collect()
    }

    /// Erases of a block so far, as far as the device counts them.
    fn erase_count(&self, _block: BlockId) -> u64 {
        0
    }

    /// How much a channel has had to do so far, in a measure that grows with its reads, programs
    /// and erases and compares channels of one device; 0 where the device does not tell.
    fn channel_load(&self, _channel: u32) -> u64 {
        0
    }

    /// Makes every program and erase that has completed durable.
    fn sync(&self) -> IoFuture<'_, ()>;
}
