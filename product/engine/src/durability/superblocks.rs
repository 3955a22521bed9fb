//! The two copies of the superblock, written in turn, and what a running engine keeps of its image.

use device::{AlignedBuf, DeviceError, Disk, Region};
use runtime::sync::{Notify, Semaphore};

use super::error::{Distrust, OpenError};
use super::index_device::IndexHead;
use crate::counter::counters;
use crate::format::FormatError;
use crate::format::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::settings::META_BYTES;
use crate::store::{SavedCheckpoint, SegmentId};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;

/// Where they lie.
pub(crate) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, META_BYTES / 2];

/// What one copy of the superblock holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockCopy {
    /// Zeros.
    Blank,
    /// A superblock that verifies.
    Valid(Box<Superblock>),
    /// Something else.
    Invalid(FormatError),
}

/// Both copies of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    pub(crate) copies: [SuperblockCopy; 2],
    /// There is nothing but zeros, in all that belongs to the superblock.
    is_blank: bool,
    /// What another program has there.
    file_system: Option<&'static str>,
    /// It is the device of the index of an image.
    index_of: Option<u64>,
}

impl Copies {
    pub(crate) async fn read(meta: &Region) -> Result<Self, DeviceError> {
        // All of the region is looked at: other programs have their first bytes elsewhere.
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

    /// The valid copy with the higher generation; `None` on a device that holds nothing.
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
                // Another program's data begins where the device does: the second copy says nothing more.
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

/// The valid copy with the higher generation; `None` on a device that holds nothing.
pub(crate) async fn read_superblock(meta: &Region) -> Result<Option<Superblock>, OpenError> {
    if meta.len_bytes() < META_BYTES {
        return Ok(None);
    }
    Copies::read(meta).await?.newest()
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

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There was no image: a new one was made.
    New,
    /// What the last run has left on flash.
    Warm {
        /// Items in live segments, dead ones among them.
        items: u64,
        /// The image was stopped orderly: what was in memory is there, too.
        orderly: bool,
    },
    /// Nothing that can be trusted.
    Empty(Distrust),
    /// Something else that `force` overwrote.
    Forced,
}

/// What an engine keeps of its image: where the superblock lies and what it says, and what is under way.
pub(crate) struct Persistence {
    pub(crate) meta: Region,
    pub(crate) superblock: Mutex<Superblock>,
    /// Held while the superblock is changed and written.
    pub(crate) superblock_turn: Semaphore,
    /// The checkpoint that the superblock names.
    pub(crate) checkpoint: Mutex<Option<SavedCheckpoint>>,
    /// Segments of checkpoints of which it is not known whether the superblock names them.
    pub(crate) perhaps_named: Mutex<Vec<SegmentId>>,
    pub(crate) stopped: AtomicBool,
    /// The stop has saved all that it is going to save.
    pub(crate) saved: AtomicBool,
    /// Notified when `stopped` is set, and again when `saved` is.
    pub(crate) stopping: Notify,
    /// A checkpoint is being written.
    pub(crate) checkpointing: AtomicBool,
    /// Notified when a checkpoint is not being written any more.
    pub(crate) checkpointed: Notify,
    pub(crate) start: Start,
    pub(crate) counters: CheckpointCounters,
}

counters! {
    CheckpointCounters, read as
    /// What has been done to survive a crash; only grows.
    CheckpointStats {
        /// Checkpoints that were written and named by the superblock.
        written,
        /// Bytes of the checkpoints written, on flash.
        bytes,
        /// Checkpoints that could not be written.
        failed,
        /// Times that the journal was synced.
        syncs,
        /// Times that the journal could not be synced.
        sync_errors,
    }
}
