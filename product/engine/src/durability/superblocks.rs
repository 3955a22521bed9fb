//! The two copies of the superblock, written in turn, and the counters of checkpoints.

use device::{AlignedBuf, DeviceError, Disk, Region};

use super::error::{Distrust, OpenError};
use super::index_device::IndexHead;
use crate::counter::counters;
use crate::format::FormatError;
use crate::format::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::settings::META_BYTES;

/// Offsets of the two copies.
pub(crate) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, META_BYTES / 2];

/// Content of one copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockCopy {
    /// Zeros.
    Blank,
    /// A superblock that verifies.
    Valid(Box<Superblock>),
    /// Other data.
    Invalid(FormatError),
}

/// Both copies of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    pub(crate) copies: [SuperblockCopy; 2],
    /// Whether the whole region of the superblock is zero.
    is_blank: bool,
    /// Name of another program's file system in the region.
    file_system: Option<&'static str>,
    /// The image whose index lies on the device.
    index_of: Option<u64>,
}

impl Copies {
    pub(crate) async fn read(meta: &Region) -> Result<Self, DeviceError> {
        // Reads the whole region: other programs have their first bytes elsewhere.
        let head = meta.read(0, AlignedBuf::new(META_BYTES as usize)).await?;
        let copies = SUPERBLOCK_OFFSETS.map(|offset| {
            let bytes = &head[offset as usize..][..SUPERBLOCK_BYTES];
            if bytes.iter().all(|&byte| byte == 0) {
                return SuperblockCopy::Blank;
            }
            match Superblock::decode(bytes) {
                Ok(found) => SuperblockCopy::Valid(Box::new(found)),
                Err(error) => SuperblockCopy::Invalid(error),
            }
        });
        let is_blank = head.iter().all(|&byte| byte == 0);
        Ok(Self {
            copies,
            is_blank,
            file_system: device::file_system_in(&head),
            index_of: match IndexHead::of(&head) {
                IndexHead::Index(header) => Some(header.image.get()),
                IndexHead::Blank | IndexHead::Other(_) => None,
            },
        })
    }

    /// Returns the valid copy with the higher generation; `None` on a device that holds only zeros.
    pub(crate) fn newest(&self) -> Result<Option<Superblock>, OpenError> {
        let mut newest: Option<Superblock> = None;
        let foreign = || match (self.file_system, self.index_of) {
            (Some(what), _) => OpenError::FileSystem { what },
            (None, Some(image)) => OpenError::IsIndexDevice { image },
            (None, None) => OpenError::Foreign,
        };
        let mut refusal = foreign();
        for (number, copy) in self.copies.iter().enumerate() {
            match copy {
                SuperblockCopy::Valid(found)
                    if newest.is_none_or(|known| found.generation > known.generation) =>
                {
                    newest = Some(**found);
                }
                SuperblockCopy::Valid(_) | SuperblockCopy::Blank => {}
                &SuperblockCopy::Invalid(FormatError::Version { found, expected }) => {
                    refusal = OpenError::Version { found, expected };
                }
                // Another program's data begins where the device does: the second copy tells nothing more.
                SuperblockCopy::Invalid(FormatError::Magic) if number == 0 => {
                    return Err(foreign());
                }
                SuperblockCopy::Invalid(FormatError::Magic) => {}
                SuperblockCopy::Invalid(_) => refusal = OpenError::Damaged,
            }
        }
        match newest {
            Some(found) => Ok(Some(found)),
            None if self.is_blank => Ok(None),
            None => Err(refusal),
        }
    }
}

/// Returns the valid copy with the higher generation; `None` on a device that holds only zeros.
pub(crate) async fn read_superblock(meta: &Region) -> Result<Option<Superblock>, OpenError> {
    if meta.len_bytes() < META_BYTES {
        return Ok(None);
    }
    Copies::read(meta).await?.newest()
}

/// Returns the bytes of the image in a file that begins with these bytes; `None` without a superblock that verifies.
pub fn image_bytes(beginning: &[u8]) -> Option<u64> {
    let copy = |offset: u64| {
        let bytes = beginning.get(offset as usize..)?;
        Superblock::decode(bytes.get(..SUPERBLOCK_BYTES)?).ok()
    };
    let found = SUPERBLOCK_OFFSETS.into_iter().find_map(copy)?;
    Some(found.shape().image_bytes)
}

/// Writes the copy whose turn it is, and waits until it is durable.
pub(crate) async fn write_superblock(
    meta: &Region,
    superblock: &mut Superblock,
) -> Result<(), DeviceError> {
    let generation = superblock.generation.get() + 1;
    superblock.generation = generation.into();
    let mut bytes = AlignedBuf::new(SUPERBLOCK_BYTES);
    bytes.copy_from_slice(&superblock.encode());
    meta.write(SUPERBLOCK_OFFSETS[generation as usize % 2], bytes.into())
        .await?;
    meta.sync().await
}

/// Result of opening an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There was no image: a new one has been made.
    New,
    /// The items that the last run left on flash.
    Warm {
        /// Items in live segments, dead ones included; `None` where they lie in runs, whose headers are read later.
        items: Option<u64>,
        /// The image was stopped orderly: the items in memory were saved, too.
        orderly: bool,
    },
    /// The content of the image could not be trusted.
    Empty(Distrust),
    /// Other data, which `force` overwrote.
    Forced,
}

counters! {
    /// Counts of the work done to survive a crash; they only grow.
    pub struct CheckpointStats {
        /// Checkpoints written and named by the superblock.
        written,
        /// Bytes of the checkpoints written, on flash.
        bytes,
        /// Checkpoints that could not be written.
        failed,
        /// Syncs of the journal.
        syncs,
        /// Syncs of the journal that failed.
        sync_errors,
    }
    from pub(crate) struct CheckpointCounters of std::sync::atomic::AtomicU64
}
