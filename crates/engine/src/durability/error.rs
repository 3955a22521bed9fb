//! Why an image cannot be opened, and why one that can starts empty.

use device::{Bytes, DeviceError};

use super::journal::{JournalError, Unusable};
use crate::config::ConfigError;

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The journal cannot be opened.
    #[error(transparent)]
    JournalFile(#[from] device::JournalError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The index cannot be set up.
    #[error("the index cannot be set up: {0}")]
    Index(String),
    /// Flash cannot be overwritten in place.
    #[error(
        "the index of this placement is overwritten in place, which flash cannot be: give the index a device of \
         its own"
    )]
    IndexNeedsDevice,
    /// The device holds another program's data.
    #[error(
        "it holds something that is not a Flowstone image; name another path, or use --force to \
         overwrite it"
    )]
    Foreign,
    /// The device holds what somebody may miss.
    #[error("it holds {what}; name another path, or use --overwrite-filesystem to lose that")]
    FileSystem { what: &'static str },
    /// An image of another format version.
    #[error(
        "it holds an image of format {found} and this program reads format {expected}: use the \
         program that made it, or --force to start empty"
    )]
    Version { found: u32, expected: u32 },
    /// An image whose superblocks are both damaged.
    #[error("both copies of its superblock are damaged; use --force to start empty")]
    Damaged,
    /// An image of another size than the device.
    #[error(
        "it holds an image of {} and {} are given: use --flash-size {0}, or --force to start empty",
        Bytes(*image), Bytes(*device)
    )]
    Size { image: u64, device: u64 },
    /// An image on flash of another size.
    #[error(
        "it holds an image on {:.2} of flash and the device has {:.2}: give it the same device, or --force to \
         start empty",
        Bytes(*image), Bytes(*device)
    )]
    FlashSize { image: u64, device: u64 },
    /// The superblock alone.
    #[error(
        "it is the superblock of an image on emulated flash: name the file with the flash, as \
         nand:PRESET,file=PATH; or a size was given at which nothing of an image on it is left: give it the size that it \
         was made with"
    )]
    SuperblockOnly,
    /// An image made on flash of another shape.
    #[error(
        "it holds an image with segments of {:.2} on {image_channels} channels and the device has blocks of {:.2} \
         on {device_channels}: give it the same device, or --force to start empty",
        Bytes((*image).into()), Bytes(*device)
    )]
    Geometry {
        image: u32,
        image_channels: u32,
        device: u64,
        device_channels: u32,
    },
    /// The device of the index is another image's, or holds something else.
    #[error(
        "the index's device does not hold the index of this image: give it the one that the image was made with, or \
         --force to start empty"
    )]
    IndexDevice,
    /// The device of the index is missing, or the image has its index inside.
    #[error(
        "the image was made {made} a device of its own for the index: start it the same way, or --force to start \
         empty"
    )]
    IndexFlash { made: &'static str },
    /// An image of another placement.
    #[error(
        "it holds an image of the `{found}` placement and this preset uses `{expected}`: use the \
         preset it was made with, or --force to start empty"
    )]
    Placement {
        found: String,
        expected: &'static str,
    },
}

/// Why an image starts empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The journal cannot be used to tell what has died.
    #[error("its journal cannot be used: {0}")]
    Journal(#[from] Unusable),
    /// Records that were durable are not in the journal any more.
    #[error("part of its journal is missing or damaged")]
    JournalGap,
    /// The checkpoint does not verify.
    #[error("its checkpoint does not verify")]
    Checkpoint,
    /// The index that it tells cannot be read, or is larger than there is memory for.
    #[error("the index of its checkpoint cannot be read")]
    Index,
    /// Too many segments cannot be read.
    #[error("its flash cannot be read")]
    Unreadable,
    /// There is no memory for the keys that its journal and its checkpoint declare dead.
    #[error("more has died while it was recovering than there is memory to tell")]
    Memory,
    /// The cache was down for longer than allowed.
    #[error("it was down for longer than max_downtime")]
    Downtime,
}
