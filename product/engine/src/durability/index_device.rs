//! A device that holds only the index of an image; its header names the image and the run.
//!
//! A run writes the header durably before the superblock, and once more after it:
//!
//! ```text
//!   journal's head ─> header: run ─> superblock, both copies ─> header: begun
//! ```
//!
//! So at each moment the header names the superblock's run, or the next one, which has not begun. Anything else is a
//! copy that somebody has put back. A header of which no run has begun belongs to an image that never came to be, and
//! may be overwritten for any image.

use std::sync::Arc;

use device::{AlignedBuf, DeviceError, Disk, Region};

use super::error::IndexDeviceError;
use crate::format::FormatError;
use crate::format::index_device::{
    INDEX_HEAD_BYTES, INDEX_HEADER_BYTES, INDEX_HEADER_OFFSETS, IndexHeader,
};
use crate::format::superblock::{Superblock, run_number};

/// Requirements on the device of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexDeviceNeed {
    /// Whether its content does not matter, so that a missing device may be created.
    pub may_be_new: bool,
    /// Bytes that the device must have.
    pub bytes: u64,
}

/// Opens the device of an index; `None` if there is none and none may be created.
pub(crate) type OpenIndexDevice =
    Box<dyn FnOnce(IndexDeviceNeed) -> Result<Option<Arc<dyn Disk>>, device::OpenError> + Send>;

/// Content of the head of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexHead {
    /// The head is zero.
    Blank,
    /// The device holds the index of an image.
    Index(IndexHeader),
    /// The device holds other data, described by the error.
    Other(IndexDeviceError),
}

impl IndexHead {
    /// Decodes the beginning of a device with any content.
    pub(crate) fn of(head: &[u8]) -> Self {
        if head.iter().all(|&byte| byte == 0) {
            return Self::Blank;
        }
        let copy = |offset: u64| {
            let page = head.get(offset as usize..).unwrap_or_default();
            let page = page.get(..INDEX_HEADER_BYTES).unwrap_or_default();
            (!page.iter().all(|&byte| byte == 0)).then(|| IndexHeader::decode(page))
        };
        let copies = INDEX_HEADER_OFFSETS.map(copy);
        let valid = copies.iter().flatten().flatten();
        if let Some(&newest) = valid.max_by_key(|header| header.generation.get()) {
            return Self::Index(newest);
        }
        if let Some(what) = device::file_system_in(head) {
            return Self::Other(IndexDeviceError::FileSystem { what });
        }
        if let Ok(superblock) = Superblock::decode(head) {
            let image = superblock.shape().image_id;
            return Self::Other(IndexDeviceError::IsImage { image });
        }
        let refusal = copies.into_iter().flatten().find_map(|copy| match copy {
            Err(FormatError::Version { found, expected }) => {
                Some(IndexDeviceError::Version { found, expected })
            }
            Err(FormatError::Checksum) => Some(IndexDeviceError::Damaged),
            _ => None,
        });
        Self::Other(refusal.unwrap_or(IndexDeviceError::Foreign))
    }
}

/// Requirements of a new image on the device of its index.
pub(crate) struct NewIndex {
    /// Bytes of the image.
    pub(crate) image_bytes: u64,
    /// Least number of bytes of the index.
    pub(crate) index_bytes: u64,
    /// Whether other content of the device, except a file system, may be lost.
    pub(crate) is_forced: bool,
    /// Whether a file system on the device may be lost.
    pub(crate) may_lose_file_system: bool,
}

/// The device of an image's index.
pub(crate) struct IndexDevice {
    disk: Arc<dyn Disk>,
    head: IndexHead,
}

impl IndexDevice {
    pub(crate) async fn read(disk: Arc<dyn Disk>) -> Result<Self, DeviceError> {
        let bytes = INDEX_HEAD_BYTES.min(disk.len_bytes());
        let head = disk.read(0, AlignedBuf::new(bytes as usize)).await?;
        let head = IndexHead::of(&head);
        Ok(Self { disk, head })
    }

    /// Returns the bytes behind the head.
    pub(crate) fn region_bytes(&self) -> u64 {
        self.disk.len_bytes().saturating_sub(INDEX_HEAD_BYTES)
    }

    pub(crate) fn region(&self, bytes: u64) -> Result<Region, DeviceError> {
        Region::new(Arc::clone(&self.disk), INDEX_HEAD_BYTES, bytes)
    }

    /// Checks that a new image may have its index on the device.
    ///
    /// [`IndexDeviceError`] if a new index cannot lie on it.
    pub(crate) fn check_new(&self, new: &NewIndex) -> Result<(), IndexDeviceError> {
        match self.head {
            IndexHead::Blank => {}
            IndexHead::Index(header) if new.is_forced || header.begun.get() == 0 => {}
            IndexHead::Index(header) => {
                let found = header.image.get();
                return Err(IndexDeviceError::InUse { found });
            }
            IndexHead::Other(IndexDeviceError::FileSystem { .. }) if new.may_lose_file_system => {}
            IndexHead::Other(why @ IndexDeviceError::FileSystem { .. }) => return Err(why),
            IndexHead::Other(_) if new.is_forced => {}
            IndexHead::Other(why) => return Err(why),
        }
        if self.region_bytes() < new.index_bytes {
            return Err(IndexDeviceError::TooSmall {
                device: self.disk.len_bytes(),
                image: new.image_bytes,
                needed: new.index_bytes + INDEX_HEAD_BYTES,
            });
        }
        Ok(())
    }

    /// Checks that the device has the index of the image of `superblock`, with `region_bytes`, as the last run left it.
    ///
    /// [`IndexDeviceError`] with the content that it has instead.
    pub(crate) fn check(
        &self,
        superblock: &Superblock,
        region_bytes: u64,
    ) -> Result<(), IndexDeviceError> {
        let image = superblock.shape().image_id;
        let header = match self.head {
            IndexHead::Blank => return Err(IndexDeviceError::Blank { image }),
            IndexHead::Other(why) => return Err(why),
            IndexHead::Index(header) => header,
        };
        let found = header.image.get();
        if found != image {
            return Err(IndexDeviceError::OtherImage { found, image });
        }
        if header.region_bytes != region_bytes {
            return Err(IndexDeviceError::Damaged);
        }
        let (run, has_run) = (superblock.run.get(), header.run.get());
        let is_next = run_number(has_run) == run_number(run) + 1 && header.begun != header.run;
        if has_run != run && !is_next {
            return Err(IndexDeviceError::OtherRun {
                image,
                found: run_number(has_run),
                run: run_number(run),
            });
        }
        if self.region_bytes() < region_bytes {
            return Err(IndexDeviceError::Truncated {
                device: self.disk.len_bytes(),
                needed: region_bytes + INDEX_HEAD_BYTES,
            });
        }
        Ok(())
    }

    /// Durably writes a header for the run that `superblock` is about to name; if `has_begun`, a header that says that
    /// this run has begun.
    pub(crate) async fn tell(
        &mut self,
        superblock: &Superblock,
        region_bytes: u64,
        has_begun: bool,
    ) -> Result<(), DeviceError> {
        let image = superblock.shape().image_id;
        let new = IndexHeader::new(image, region_bytes);
        let (mut header, generation) = match self.head {
            IndexHead::Index(header) if header.image == image => (header, header.generation),
            IndexHead::Index(header) => (new, header.generation),
            IndexHead::Blank | IndexHead::Other(_) => (new, new.generation),
        };
        header.generation = (generation.get() + 1).into();
        header.run = superblock.run;
        if has_begun {
            header.begun = header.run;
        }
        let mut page = AlignedBuf::new(INDEX_HEADER_BYTES);
        page.copy_from_slice(&header.encode());
        let copy = INDEX_HEADER_OFFSETS[header.generation.get() as usize % 2];
        self.disk.write(copy, page.into()).await?;
        self.disk.sync().await?;
        self.head = IndexHead::Index(header);
        Ok(())
    }
}
