//! Layout of blocks, and references to their pages.

use crate::encoding::mapping::BlockError;
use device::DeviceError;

use super::pages::PageId;
use super::slices::Filter;

/// A page of a block, and its number, which differs from those of all earlier contents of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    pub(super) page: PageId,
    pub(super) number: u64,
}

/// Parameters with which blocks are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLayout {
    pub(super) image: u64,
    /// Bits of a hash that the whole block shares.
    pub(super) prefix_bits: u32,
    /// Filters of whole blocks, and of pages.
    pub(super) filter: Filter,
    pub(super) page_filter: Filter,
    /// Entries in a page.
    pub(super) page_entries: usize,
    /// Whether a look-up reads all pages of a block at once, as SlickCache does, instead of the one page that may have
    /// the key.
    pub(super) whole_blocks: bool,
}

/// Reason why a page of a block could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("a page of the index cannot be read: {0}")]
    Device(#[from] DeviceError),
    #[error("a page of the index is damaged: {0}")]
    Damaged(#[from] BlockError),
}

impl PageError {
    /// Whether reading it again may help.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Device(_))
    }
}

impl BlockLayout {
    /// Returns the number of pages of a block of `entries` entries.
    pub(super) fn pages_for(&self, entries: usize) -> usize {
        entries.div_ceil(self.page_entries)
    }

    pub(super) fn fence(&self, hash: u64) -> u16 {
        (hash << self.prefix_bits >> 48) as u16
    }
}
