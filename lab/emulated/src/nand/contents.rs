//! Contents of the pages: in memory, one buffer for each block in use, or in a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::file::NandFile;
use device::{DeviceError, Geometry};

/// Buffers of erased blocks kept for reuse.
const KEPT_BUFFERS: usize = 64;

/// Value of every byte of an erased page.
const ERASED: u8 = 0xFF;

/// The bytes of all blocks. The blocks decide which pages may be read.
#[derive(Debug)]
pub(super) struct Contents {
    page_bytes: usize,
    block_bytes: usize,
    /// Pages stored since the last erase, per block; later pages read as erased.
    stored: Box<[AtomicU32]>,
    place: Place,
}

/// The bytes of a block in memory, from its first program to its erase; shared with images.
pub(super) type BlockBytes = Option<Arc<Box<[u8]>>>;

/// Storage of the bytes of all blocks.
#[derive(Debug)]
pub(super) enum Place {
    Memory {
        blocks: Box<[Mutex<BlockBytes>]>,
        spare: Mutex<Vec<Arc<Box<[u8]>>>>,
    },
    File(NandFile),
}

impl Place {
    pub(super) fn memory(blocks: Vec<BlockBytes>) -> Self {
        Self::Memory {
            blocks: blocks.into_iter().map(Mutex::new).collect(),
            spare: Mutex::default(),
        }
    }
}

impl Contents {
    /// Creates the contents in `place`, with the number of `stored` pages of each block.
    pub(super) fn new(place: Place, stored: impl Iterator<Item = u32>, shape: &Geometry) -> Self {
        Self {
            page_bytes: shape.page_bytes as usize,
            block_bytes: shape.block_bytes() as usize,
            stored: stored.map(AtomicU32::new).collect(),
            place,
        }
    }

    /// Returns the bytes of all blocks; a block is copied only when it changes.
    ///
    /// # Panics
    /// When the contents are in a file.
    pub(super) fn shared(&self) -> Vec<BlockBytes> {
        let Place::Memory { blocks, .. } = &self.place else {
            panic!("the device is in memory");
        };
        blocks.iter().map(|bytes| bytes.lock().clone()).collect()
    }

    /// Returns the file, if there is one.
    pub(super) fn file(&self) -> Option<&NandFile> {
        match &self.place {
            Place::Memory { .. } => None,
            Place::File(file) => Some(file),
        }
    }

    /// Fills `into` from byte `offset` of a block.
    pub(super) fn load(
        &self,
        block: u32,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
        let stored = self.stored[block as usize].load(Ordering::Acquire) as usize * self.page_bytes;
        let held = stored.saturating_sub(offset).min(into.len());
        let (held, erased) = into.split_at_mut(held);
        erased.fill(ERASED);
        if held.is_empty() {
            return Ok(());
        }
        match &self.place {
            Place::Memory { blocks, .. } => match &*blocks[block as usize].lock() {
                Some(bytes) => held.copy_from_slice(&bytes[offset..offset + held.len()]),
                // Erased in between: the caller should have loaded the bytes before any other operation on the block.
                None => held.fill(ERASED),
            },
            Place::File(file) => file.load(block, offset, held)?,
        }
        Ok(())
    }

    /// Stores whole pages from `first_page` of a block on.
    pub(super) fn store(
        &self,
        block: u32,
        first_page: u32,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let pages = (data.len() / self.page_bytes) as u32;
        let offset = first_page as usize * self.page_bytes;
        match &self.place {
            Place::Memory { blocks, spare } => {
                let mut bytes = blocks[block as usize].lock();
                let bytes = bytes.get_or_insert_with(|| {
                    let spare = spare.lock().pop();
                    // Zeros from the system cost nothing until they are written.
                    spare.unwrap_or_else(|| Arc::new(vec![0; self.block_bytes].into()))
                });
                Arc::make_mut(bytes)[offset..offset + data.len()].copy_from_slice(data);
            }
            Place::File(file) => file.store(block, first_page, pages, data)?,
        }
        self.stored[block as usize].store(first_page + pages, Ordering::Release);
        Ok(())
    }

    /// Discards the contents of a block.
    pub(super) fn erase(&self, block: u32) -> Result<(), DeviceError> {
        self.stored[block as usize].store(0, Ordering::Release);
        match &self.place {
            Place::Memory { blocks, spare } => {
                if let Some(bytes) = blocks[block as usize].lock().take()
                    && Arc::strong_count(&bytes) == 1
                {
                    let mut spare = spare.lock();
                    if spare.len() < KEPT_BUFFERS {
                        spare.push(bytes);
                    }
                }
                Ok(())
            }
            Place::File(file) => file.erase(block),
        }
    }

    /// Discards the pages of a block from `pages` on, whose program never ended.
    pub(super) fn truncate(&self, block: u32, pages: u32) -> Result<(), DeviceError> {
        let stored = self.stored[block as usize].fetch_min(pages, Ordering::AcqRel);
        match &self.place {
            Place::File(file) if stored > pages => file.forget(block, pages, stored - pages),
            _ => Ok(()),
        }
    }
}
