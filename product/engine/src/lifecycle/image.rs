//! Finding the image on a medium, or laying out a new one.
//!
//! This file writes nothing: a new image is written when its first run begins.

use std::path::PathBuf;

use device::{Disk as _, Region};

use super::SEQUENCE_RESERVE;
use crate::background::VERSION_RESERVE;
use crate::config::EngineConfig;
use crate::config::check::check_image;
use crate::durability::error::{IndexDeviceError, OpenError};
use crate::durability::index_device::{IndexDevice, IndexDeviceNeed, NewIndex, OpenIndexDevice};
use crate::durability::journal_place;
use crate::durability::medium::Medium;
use crate::durability::superblocks::{Start, read_superblock};
use crate::format::index_device::INDEX_HEAD_BYTES;
use crate::format::segment::PAGE_BYTES;
use crate::format::superblock::{HashSeed, ImageShape, IndexRegion, Superblock, run_number};
use crate::placement::IndexSizes;
use crate::settings::{ConfigError, META_BYTES};

/// An image on which a run is about to begin.
///
/// The superblock fits the medium, the settings and the index device. The device of the index is open exactly if the
/// superblock says that the index is on a device of its own.
pub(super) struct Image {
    /// Region of both copies of the superblock.
    pub(super) meta: Region,
    /// The superblock. That of a new image is only in memory until the run begins.
    pub(super) superblock: Superblock,
    /// Path of the journal that the image names, if it names one.
    pub(super) journal_place: Option<PathBuf>,
    /// The device of the index, if the index has one of its own.
    pub(super) index_device: Option<IndexDevice>,
    /// Reason for a new image; `None` for an existing one.
    pub(super) new: Option<Start>,
}

impl Image {
    /// Finds the image on `medium`. Lays out a new one if there is none, or if the settings permit the loss of the
    /// content of the medium, or if it `overwrites` the image there. `open_index` opens the device of the index, if that is
    /// to have one.
    pub(super) async fn find(
        medium: &Medium,
        config: &EngineConfig,
        open_index: Option<OpenIndexDevice>,
        overwrites: bool,
    ) -> Result<Self, OpenError> {
        let meta = medium.meta()?;
        let finder = Finder { medium, config };
        let has_index_device = open_index.is_some();
        let found = match read_superblock(&meta).await {
            Ok(Some(found)) => finder
                .check_image(&found, has_index_device)
                .map(|()| Some(found)),
            other => other,
        };
        let (found, start) = match found {
            Ok(Some(_)) if overwrites => (None, Start::Forced),
            Ok(Some(found)) => (Some(found), Start::Forced),
            Ok(None) => (None, Start::New),
            Err(refused) => finder.is_forced(refused).map(|()| (None, Start::Forced))?,
        };
        let index_device = finder.open_index_device(open_index, found.as_ref()).await?;
        if let Some(found) = found {
            let checked = match (found.shape().index_region, &index_device) {
                (IndexRegion::Apart(bytes), Some(device)) => device.check(&found, bytes),
                _ => Ok(()),
            };
            match checked {
                Ok(()) => {
                    let journal_place = journal_place::read(&meta, found.shape().image_id).await?;
                    return Ok(Self {
                        meta,
                        superblock: found,
                        journal_place,
                        index_device,
                        new: None,
                    });
                }
                Err(refused) => finder.is_forced(refused.into())?,
            }
        }
        Ok(Self {
            meta,
            superblock: finder.new_image(index_device.as_ref())?,
            journal_place: None,
            index_device,
            new: Some(start),
        })
    }

    /// Returns whether the image is new.
    pub(super) fn is_new(&self) -> bool {
        self.new.is_some()
    }

    /// Refuses a flash, or a device of the index, that syncs nothing, before anything on it has changed.
    pub(super) async fn check_syncs(&self, medium: &Medium) -> Result<(), OpenError> {
        self.meta.sync().await.map_err(OpenError::NoSync)?;
        match self.index_region(medium)? {
            Some(region) => region.sync().await.map_err(OpenError::NoSync),
            None => Ok(()),
        }
    }

    /// Returns the region that the index overwrites in place, if it has one.
    pub(super) fn index_region(&self, medium: &Medium) -> Result<Option<Region>, OpenError> {
        Ok(
            match (self.superblock.shape().index_region, &self.index_device) {
                (IndexRegion::None, _) => None,
                (IndexRegion::Inside(bytes), _) => Some(medium.inside_index(bytes)?),
                (IndexRegion::Apart(bytes), Some(device)) => Some(device.region(bytes)?),
                (IndexRegion::Apart(_), None) => {
                    return Err(OpenError::IndexFlash { is_apart: true });
                }
            },
        )
    }
}

/// Medium and settings by which an image is checked or laid out.
struct Finder<'a> {
    medium: &'a Medium,
    config: &'a EngineConfig,
}

impl Finder<'_> {
    /// Returns `Ok` if the settings permit a new image in spite of the error `refused`; otherwise returns the error.
    fn is_forced(&self, refused: OpenError) -> Result<(), OpenError> {
        let is_lost_if_asked = match refused {
            OpenError::Device(_) => false,
            OpenError::FileSystem { .. }
            | OpenError::IndexDevice(IndexDeviceError::FileSystem { .. }) => {
                self.config.overwrite_filesystem
            }
            _ => self.config.force,
        };
        if is_lost_if_asked {
            Ok(())
        } else {
            Err(refused)
        }
    }

    /// Opens the index device, of the existing image or of a new one.
    async fn open_index_device(
        &self,
        open: Option<OpenIndexDevice>,
        found: Option<&Superblock>,
    ) -> Result<Option<IndexDevice>, OpenError> {
        let Some(open) = open else {
            return Ok(None);
        };
        let region_bytes = match found.map(|found| found.shape().index_region) {
            Some(IndexRegion::Apart(bytes)) => bytes,
            _ => self.least_region_bytes()?,
        };
        if region_bytes == 0 {
            let placement = self.config.placement.describe().name;
            return Err(OpenError::IndexInMemory { placement });
        }
        let need = IndexDeviceNeed {
            may_be_new: found.is_none() || self.config.force,
            bytes: INDEX_HEAD_BYTES + region_bytes,
        };
        match open(need).map_err(OpenError::IndexFile)? {
            Some(disk) => Ok(Some(IndexDevice::read(disk).await?)),
            None => {
                let image = found.map_or(0, |found| found.shape().image_id);
                Err(IndexDeviceError::Missing { image }.into())
            }
        }
    }

    /// Returns the bytes that the index of a new image overwrites in place, on a device of its own.
    fn least_region_bytes(&self) -> Result<u64, ConfigError> {
        let bytes = self.index_sizes(0, None)?.region_bytes;
        Ok(bytes.next_multiple_of(PAGE_BYTES.into()))
    }

    /// Sizes of the index of an image on the medium, with segments of `flash_bytes` in all.
    fn index_sizes(
        &self,
        flash_bytes: u64,
        expected_items: Option<u64>,
    ) -> Result<IndexSizes, ConfigError> {
        let image_bytes = self.medium.image_bytes();
        let room = self
            .config
            .index_room(image_bytes, flash_bytes, expected_items);
        self.config.placement.sizes(&room)
    }

    /// Lays out a new image. Returns its superblock.
    fn new_image(&self, index_device: Option<&IndexDevice>) -> Result<Superblock, OpenError> {
        let (medium, config) = (self.medium, self.config);
        let image_bytes = medium.image_bytes();
        let wanted = self.index_sizes(0, None)?.region_bytes;
        let index_region = match (index_device, wanted) {
            (Some(device), _) => {
                device.check_new(&NewIndex {
                    image_bytes,
                    index_bytes: self.least_region_bytes()?,
                    is_forced: config.force,
                    may_lose_file_system: config.overwrite_filesystem,
                })?;
                IndexRegion::Apart(device.region_bytes())
            }
            (None, 0) => IndexRegion::None,
            (None, _) if matches!(medium, Medium::Flash { .. }) => {
                return Err(OpenError::IndexNeedsDevice);
            }
            (None, bytes) => IndexRegion::Inside(bytes.next_multiple_of(META_BYTES)),
        };
        let before_segments = META_BYTES + index_region.inside_bytes();
        let flash_bytes = image_bytes.saturating_sub(before_segments);
        let chosen = config.choose_segment_bytes(flash_bytes);
        let (segment_bytes, segments, channels) = medium.segments(chosen, flash_bytes);
        check_image(config, u64::from(segments), segment_bytes)?;
        let shape = ImageShape {
            image_id: runtime::random_id(),
            hash_seed: HashSeed::new(runtime::random_u64()),
            image_bytes,
            segment_bytes,
            segments,
            channels,
            partitions: 1 << config.partition_bits,
            expected_items: self.index_sizes(flash_bytes, None)?.expected_items,
            index_region,
        };
        let mut superblock = Superblock::new(&shape, config.placement.describe().name);
        // A random number, far from the numbers of an earlier image here: its segments, left by lost writes, must not
        // verify.
        superblock.sequence_limit = (1 + (runtime::random_u64() >> 8)).into();
        superblock.floor_sequence = superblock.sequence_limit;
        Ok(superblock)
    }

    /// Checks that an existing image fits the medium and the settings.
    fn check_image(
        &self,
        superblock: &Superblock,
        has_index_device: bool,
    ) -> Result<(), OpenError> {
        let shape = superblock.shape();
        self.medium.check(&shape)?;
        let expected = self.config.placement.describe().name;
        if superblock.placement() != expected {
            let found = superblock.placement().to_owned();
            return Err(OpenError::Placement { found, expected });
        }
        if !superblock.has_left(VERSION_RESERVE, SEQUENCE_RESERVE) {
            let starts = run_number(superblock.run.get());
            return Err(OpenError::UsedUp { starts });
        }
        let is_apart = matches!(shape.index_region, IndexRegion::Apart(_));
        if is_apart == has_index_device {
            Ok(())
        } else {
            Err(OpenError::IndexFlash { is_apart })
        }
    }
}
