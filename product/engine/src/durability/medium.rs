//! What an image lies on.

use std::sync::Arc;

use device::{DeviceError, Disk, DiskFlash, Flash, LimitedDisk, LimitedFlash, Region, WriteLimit};

use super::error::OpenError;
use super::superblocks::read_superblock;
use crate::format::superblock::ImageShape;
use crate::settings::META_BYTES;

/// What an image lies on.
#[derive(Clone)]
pub enum Medium {
    /// A drive: the superblock at its start, behind it segments of whatever size is chosen.
    Disk(Arc<dyn Disk>),
    /// Flash each of whose blocks is a segment.
    Flash {
        /// The segments.
        flash: Arc<dyn Flash>,
        /// A place for the superblock, which is overwritten: [`META_BYTES`] of it are used.
        meta: Arc<dyn Disk>,
    },
}

impl Medium {
    /// Bytes of the whole image: the superblock's and the segments'.
    pub(crate) fn image_bytes(&self) -> u64 {
        match self {
            Self::Disk(disk) => disk.len_bytes(),
            Self::Flash { flash, .. } => {
                let geometry = flash.geometry();
                META_BYTES + u64::from(geometry.blocks()) * geometry.block_bytes()
            }
        }
    }

    /// Bytes of one program where nothing else is said: few enough for reads to pass between two.
    pub(crate) fn usual_write_bytes(&self) -> u32 {
        match self {
            Self::Disk(_) => 256 << 10,
            Self::Flash { flash, .. } => flash.geometry().page_bytes,
        }
    }

    /// The same, written to within a limit.
    pub(crate) fn limited(self, limit: &Arc<WriteLimit>) -> Self {
        let disk = |disk| Arc::new(LimitedDisk::new(disk, Arc::clone(limit)));
        match self {
            Self::Disk(inner) => Self::Disk(disk(inner)),
            Self::Flash { flash, meta } => Self::Flash {
                flash: Arc::new(LimitedFlash::new(flash, Arc::clone(limit))),
                meta: disk(meta),
            },
        }
    }

    /// What is overwritten in place: the superblock, and behind it the index if it has a part inside the image.
    fn overwritten(&self) -> &Arc<dyn Disk> {
        match self {
            Self::Disk(disk) => disk,
            Self::Flash { meta, .. } => meta,
        }
    }

    /// Where the superblock lies.
    pub(crate) fn meta(&self) -> Result<Region, DeviceError> {
        let disk = self.overwritten();
        Region::new(Arc::clone(disk), 0, META_BYTES.min(disk.len_bytes()))
    }

    /// Segments of a new image on `flash_bytes` beside superblock and index: bytes of one, how many, and on how many
    /// channels.
    /// On a disk a segment has `segment_bytes`.
    pub(crate) fn segments(&self, segment_bytes: u32, flash_bytes: u64) -> (u32, u32, u32) {
        match self {
            Self::Disk(_) => {
                let all = flash_bytes / u64::from(segment_bytes.max(1));
                (segment_bytes, u32::try_from(all).unwrap_or(u32::MAX), 1)
            }
            Self::Flash { flash, .. } => {
                let geometry = flash.geometry();
                let bytes = u32::try_from(geometry.block_bytes()).unwrap_or(u32::MAX);
                (bytes, geometry.blocks(), geometry.channels)
            }
        }
    }

    /// Whether an image of this shape can lie on it.
    pub(crate) fn check(&self, shape: &ImageShape) -> Result<(), OpenError> {
        let (image, device) = (shape.image_bytes, self.image_bytes());
        let Self::Flash { flash, .. } = self else {
            return if image == device {
                Ok(())
            } else if device == META_BYTES {
                Err(OpenError::SuperblockOnly)
            } else {
                Err(OpenError::Size { image, device })
            };
        };
        let geometry = flash.geometry();
        let of_device = (geometry.block_bytes(), geometry.channels);
        if (u64::from(shape.segment_bytes), shape.channels) != of_device {
            return Err(OpenError::Geometry {
                image: shape.segment_bytes,
                image_channels: shape.channels,
                device: geometry.block_bytes(),
                device_channels: geometry.channels,
            });
        }
        if image != device {
            return Err(OpenError::FlashSize {
                image: image.saturating_sub(META_BYTES),
                device: device - META_BYTES,
            });
        }
        Ok(())
    }

    /// Bytes of a segment of the image that lies on it; `None` where there is none that an open would
    /// take.
    pub async fn image_segment_bytes(&self) -> Option<u32> {
        let superblock = read_superblock(&self.meta().ok()?).await.ok()??;
        let shape = superblock.shape();
        self.check(&shape).is_ok().then_some(shape.segment_bytes)
    }

    /// The part of the image that its index overwrites in place.
    pub(crate) fn inside_index(&self, bytes: u64) -> Result<Region, DeviceError> {
        Region::new(Arc::clone(self.overwritten()), META_BYTES, bytes)
    }

    /// The segments of an image of this shape.
    pub(crate) fn flash(
        self,
        shape: &ImageShape,
        discard: bool,
    ) -> Result<Arc<dyn Flash>, DeviceError> {
        match self {
            Self::Disk(disk) => {
                let start = META_BYTES + shape.index_region.inside_bytes();
                let len = shape.image_bytes.saturating_sub(start);
                let region = Region::new(disk, start, len)?;
                let (bytes, channels) = (shape.segment_bytes, shape.channels);
                Ok(Arc::new(DiskFlash::new(region, bytes, channels, discard)?))
            }
            Self::Flash { flash, .. } => Ok(flash),
        }
    }
}

impl From<Arc<dyn Disk>> for Medium {
    fn from(disk: Arc<dyn Disk>) -> Self {
        Self::Disk(disk)
    }
}
