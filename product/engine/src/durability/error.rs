//! Reasons for which an image cannot be opened, or is opened empty.

use std::path::PathBuf;

use device::{Bytes, DeviceError, Setting};

use super::journal::{JournalError, Unusable};
use crate::settings::ConfigError;

/// Reason for which an image cannot be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device cannot make its writes durable.
    #[error(
        "it cannot be made durable ({0}): nothing on it has been changed; the log of the system says why it fails"
    )]
    NoSync(DeviceError),
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The journal cannot be opened.
    #[error(transparent)]
    JournalFile(#[from] device::JournalError),
    /// The journal is not the one that the image names.
    #[error(
        "its journal is {}, and {} is not the journal of this cache: name the right one with {journal}, put it back, or use \
         {force} to start empty",
        expected.display(), given.display(),
        journal = Setting::Journal, force = Setting::Force
    )]
    JournalMoved { expected: PathBuf, given: PathBuf },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The index cannot be set up.
    #[error("the index cannot be set up: {0}")]
    Index(String),
    /// Flash cannot be overwritten in place.
    #[error(
        "the index of this placement is overwritten in place, which flash cannot be: give the index a device of \
         its own ({index_flash})",
        index_flash = Setting::IndexFlash
    )]
    IndexNeedsDevice,
    /// The device holds another program's data.
    #[error(
        "it holds something that is not a Flowstone image; name another path, or use {force} to \
         overwrite it",
        force = Setting::Force
    )]
    Foreign,
    /// The device holds a file system or the like, which somebody may miss.
    #[error(
        "it holds {what}; name another path, or use {overwrite_filesystem} to lose that",
        overwrite_filesystem = Setting::OverwriteFilesystem
    )]
    FileSystem { what: &'static str },
    /// An image of another format version.
    #[error(
        "it holds an image of format {found} and this program reads format {expected}: use the \
         program that made it, or {force} to start empty",
        force = Setting::Force
    )]
    Version { found: u32, expected: u32 },
    /// An image whose superblocks are both damaged.
    #[error(
        "both copies of its superblock are damaged; use {force} to start empty",
        force = Setting::Force
    )]
    Damaged,
    /// An image whose versions, segment sequence numbers or runs are used up.
    #[error(
        "it has been started {starts} times and has no numbers left for another run, as none may be given twice: use \
         {force} to start empty",
        force = Setting::Force
    )]
    UsedUp { starts: u32 },
    /// An image of another size than the device.
    #[error(
        "it holds an image of {} and {} are given: use {flash_size} {0}, or {force} to start empty",
        Bytes(*image), Bytes(*device),
        flash_size = Setting::FlashSize, force = Setting::Force
    )]
    Size { image: u64, device: u64 },
    /// An image on flash of another size.
    #[error(
        "it holds an image on {:.2} of flash and the device has {:.2}: give it the same device, or {force} to \
         start empty",
        Bytes(*image), Bytes(*device),
        force = Setting::Force
    )]
    FlashSize { image: u64, device: u64 },
    /// The device holds a superblock and no segments.
    #[error(
        "it is the superblock of an image on emulated flash: name the file with the flash, as \
         nand:PRESET,file=PATH; or a size was given at which nothing of an image on it is left: give it the size that it \
         was made with"
    )]
    SuperblockOnly,
    /// An image made on flash of another shape.
    #[error(
        "it holds an image with segments of {:.2} on {image_channels} channels and the device has blocks of {:.2} \
         on {device_channels}: give it the same device, or {force} to start empty",
        Bytes((*image).into()), Bytes(*device),
        force = Setting::Force
    )]
    Geometry {
        image: u32,
        image_channels: u32,
        device: u64,
        device_channels: u32,
    },
    /// The device of the index is missing, or is given for an image with its index inside.
    #[error(
        "the index of this cache is {}: start it {} one ({index_flash}), or {force} to start empty",
        if *is_apart { "on a device of its own" } else { "not on a device of its own" },
        if *is_apart { "with that" } else { "without" },
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    IndexFlash { is_apart: bool },
    /// The placement has no index on flash.
    #[error(
        "the `{placement}` placement keeps its whole index in memory: leave the index's device ({index_flash}) out, or \
         choose another preset",
        index_flash = Setting::IndexFlash
    )]
    IndexInMemory { placement: &'static str },
    /// The device of the index cannot be used.
    #[error(transparent)]
    IndexDevice(#[from] IndexDeviceError),
    /// The device of the index cannot be opened.
    #[error(transparent)]
    IndexFile(device::OpenError),
    /// The device is that of an index.
    #[error(
        "it is the device with the index of the cache {image:016x}: name it with {index_flash}, and here the one with \
         the items; {force} overwrites it",
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    IsIndexDevice { image: u64 },
    /// An image of another placement.
    #[error(
        "it holds an image of the `{found}` placement and this preset uses `{expected}`: use the \
         preset it was made with, or {force} to start empty",
        force = Setting::Force
    )]
    Placement {
        found: String,
        expected: &'static str,
    },
}

/// Reason for which the device of an index cannot be used. An image is named by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum IndexDeviceError {
    /// There is no such device.
    #[error(
        "no such file, and without it nothing in the cache {image:016x} can be found: give it back, or use {force} to \
         start empty",
        force = Setting::Force
    )]
    Missing { image: u64 },
    /// The device holds nothing.
    #[error(
        "it holds nothing, and the cache {image:016x} has its index on another device: name that with {index_flash}, or \
         use {force} to start empty",
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    Blank { image: u64 },
    /// The device holds the index of another image.
    #[error(
        "it holds the index of the cache {found:016x}, not of {image:016x}: name the device of that with {index_flash}, \
         or use {force} to overwrite it and start empty",
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    OtherImage { found: u64, image: u64 },
    /// The device for a new image holds the index of another one.
    #[error(
        "it holds the index of the cache {found:016x}, and there is a new one to be made: name another with \
         {index_flash}, or use {force} to overwrite it",
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    InUse { found: u64 },
    /// The index is of another run: an older copy.
    #[error(
        "it holds the index of the cache {image:016x} as of run {found}, and the cache has come to run {run}: one of \
         the two is an older copy; give it the right one, or use {force} to start empty",
        force = Setting::Force
    )]
    OtherRun { image: u64, found: u32, run: u32 },
    /// The device holds the superblock of an image.
    #[error(
        "it holds a cache, {image:016x}, not the index of one; name another with {index_flash}, or use {force} to \
         overwrite it",
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    IsImage { image: u64 },
    /// The device holds another program's data.
    #[error(
        "it holds something that is not an index of Flowstone; name another with {index_flash}, or use {force} to \
         overwrite it",
        index_flash = Setting::IndexFlash, force = Setting::Force
    )]
    Foreign,
    /// The device holds a file system or the like, which somebody may miss.
    #[error(
        "it holds {what}; name another with {index_flash}, or use {overwrite_filesystem} to lose that",
        index_flash = Setting::IndexFlash, overwrite_filesystem = Setting::OverwriteFilesystem
    )]
    FileSystem { what: &'static str },
    /// The index has another format version.
    #[error(
        "it holds an index of format {found} and this program reads format {expected}: use the program that made it, or \
         {force} to start empty",
        force = Setting::Force
    )]
    Version { found: u32, expected: u32 },
    /// Neither copy of the header verifies.
    #[error(
        "both copies of its header are damaged; use {force} to start empty",
        force = Setting::Force
    )]
    Damaged,
    /// The device is too small for the index.
    #[error(
        "it has {:.2} and the index of a cache on {:.2} needs {:.2}: name a larger one, or a smaller {flash_size}",
        Bytes(*device), Bytes(*image), Bytes(*needed),
        flash_size = Setting::FlashSize
    )]
    TooSmall {
        device: u64,
        image: u64,
        needed: u64,
    },
    /// The device has fewer bytes than the index was made with.
    #[error(
        "it has {:.2} of an index of {:.2}: give it back the rest, or use {force} to start empty", Bytes(*device), Bytes(*needed),
        force = Setting::Force
    )]
    Truncated { device: u64, needed: u64 },
}

/// Reason for which an image starts empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The journal cannot be used to tell which items are dead.
    #[error("its journal cannot be used: {0}")]
    Journal(#[from] Unusable),
    /// Durable records are missing from the journal.
    #[error("part of its journal is missing or damaged")]
    JournalGap,
    /// The checkpoint does not verify.
    #[error("its checkpoint does not verify")]
    Checkpoint,
    /// The index in the checkpoint cannot be read, or does not fit in memory.
    #[error("the index of its checkpoint cannot be read")]
    Index,
    /// Too many segments cannot be read.
    #[error("its flash cannot be read")]
    Unreadable,
    /// The dead keys of journal and checkpoint do not fit in memory.
    #[error("more has died while it was recovering than there is memory to tell")]
    Memory,
    /// The clock cannot be right, and the cache may not be down for longer than allowed.
    #[error("the clock cannot be right, and it may have been down for longer than max_downtime")]
    Clock,
    /// The cache was down for longer than allowed.
    #[error("it was down for longer than max_downtime")]
    Downtime,
}
