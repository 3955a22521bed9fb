//! The device or devices of an image.

use std::sync::Arc;

use device::{
    DeviceError, Disk, DiskFlash, Flash, LimitedDisk, LimitedFlash, Region, WriteClass, WriteLimit,
};

use super::error::OpenError;
use super::superblocks::read_superblock;
use crate::format::superblock::ImageShape;
use crate::settings::META_BYTES;

/// The device or devices of an image.
#[derive(Clone)]
pub enum Medium {
    /// A drive: the superblock at its start, and behind it segments of any chosen size.
    Disk(Arc<dyn Disk>),
    /// Flash with one segment in each block.
    Flash {
        /// The segments.
        flash: Arc<dyn Flash>,
        /// Place for the superblock, which is overwritten: [`META_BYTES`] of it are used.
        meta: Arc<dyn Disk>,
    },
}

impl Medium {
    /// Returns the bytes of the whole image: superblock and segments.
    pub(crate) fn image_bytes(&self) -> u64 {
        match self {
            Self::Disk(disk) => disk.len_bytes(),
            Self::Flash { flash, .. } => {
                let geometry = flash.geometry();
                META_BYTES + u64::from(geometry.blocks()) * geometry.block_bytes()
            }
        }
    }

    /// Returns the default bytes of one program: few enough for reads to pass between two programs.
    pub(crate) fn usual_write_bytes(&self) -> u32 {
        match self {
            Self::Disk(_) => 256 << 10,
            Self::Flash { flash, .. } => flash.geometry().page_bytes,
        }
    }

    /// Returns the same medium with a limit on the writes to the disk that is overwritten in place. Those to segments are
    /// limited by [`limited_flash`].
    pub(crate) fn limited(&self, limit: Option<&Arc<WriteLimit>>, class: WriteClass) -> Self {
        let Some(limit) = limit else {
            return self.clone();
        };
        let limited = |disk: &Arc<dyn Disk>| {
            Arc::new(LimitedDisk::new(Arc::clone(disk), Arc::clone(limit), class))
        };
        match self {
            Self::Disk(disk) => Self::Disk(limited(disk)),
            Self::Flash { flash, meta } => Self::Flash {
                flash: Arc::clone(flash),
                meta: limited(meta),
            },
        }
    }

    /// Returns the disk that is overwritten in place: it holds the superblock, and behind it the index if a part of
    /// that is inside the image.
    fn overwritten(&self) -> &Arc<dyn Disk> {
        match self {
            Self::Disk(disk) => disk,
            Self::Flash { meta, .. } => meta,
        }
    }

    /// Returns the region of the superblock.
    pub(crate) fn meta(&self) -> Result<Region, DeviceError> {
        let disk = self.overwritten();
        Region::new(Arc::clone(disk), 0, META_BYTES.min(disk.len_bytes()))
    }

    /// Returns the shape of a new image with `flash_bytes` beside superblock and index: bytes of a segment, number of
    /// segments, number of channels.
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

    /// Checks that an image of this shape can lie on the medium.
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

    /// Returns the bytes of a segment of the image on the medium; `None` if there is none that an open would take.
    pub async fn image_segment_bytes(&self) -> Option<u32> {
        let superblock = read_superblock(&self.meta().ok()?).await.ok()??;
        let shape = superblock.shape();
        self.check(&shape).is_ok().then_some(shape.segment_bytes)
    }

    /// Returns the part of the image that its index overwrites in place.
    pub(crate) fn inside_index(&self, bytes: u64) -> Result<Region, DeviceError> {
        Region::new(Arc::clone(self.overwritten()), META_BYTES, bytes)
    }

    /// Returns the segments of an image of this shape.
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

/// Returns flash with a limit on its writes, all of which are of one class.
pub(crate) fn limited_flash(
    flash: &Arc<dyn Flash>,
    limit: Option<&Arc<WriteLimit>>,
    class: WriteClass,
) -> Arc<dyn Flash> {
    match limit {
        Some(limit) => Arc::new(LimitedFlash::new(
            Arc::clone(flash),
            Arc::clone(limit),
            class,
        )),
        None => Arc::clone(flash),
    }
}

impl From<Arc<dyn Disk>> for Medium {
    fn from(disk: Arc<dyn Disk>) -> Self {
        Self::Disk(disk)
    }
}
