//! The two copies of the superblock.

use device::{AlignedBuf, DeviceError, Disk, Region};

use super::OpenError;
use crate::config::META_BYTES;
use crate::format::FormatError;
use crate::format::superblock::{SUPERBLOCK_BYTES, Superblock};

/// Where they lie.
pub(super) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, META_BYTES / 2];

/// The valid copy with the higher generation; `None` on a device that holds nothing.
pub(super) async fn read_superblock(meta: &Region) -> Result<Option<Superblock>, OpenError> {
    if meta.len_bytes() < META_BYTES {
        return Ok(None);
    }
    let mut newest: Option<Superblock> = None;
    let mut refusal = OpenError::Foreign;
    // All of it is looked at: others have their first bytes elsewhere.
    let head = meta.read(0, AlignedBuf::new(META_BYTES as usize)).await?;
    let blank = head.iter().all(|&byte| byte == 0);
    for offset in SUPERBLOCK_OFFSETS {
        let bytes = &head[offset as usize..][..SUPERBLOCK_BYTES];
        if bytes.iter().all(|&byte| byte == 0) {
            continue;
        }
        match Superblock::decode(bytes) {
            Ok(found) => {
                let newer = newest.is_none_or(|known| found.generation > known.generation);
                if newer {
                    newest = Some(found);
                }
            }
            Err(FormatError::Version { found, expected }) => {
                refusal = OpenError::Version { found, expected };
            }
            // Others begin where the device does: what the second copy says is of no use then.
            Err(FormatError::Magic) if offset == 0 => return Err(OpenError::Foreign),
            Err(FormatError::Magic) => {}
            Err(_) => refusal = OpenError::Damaged,
        }
    }
    match newest {
        Some(found) => Ok(Some(found)),
        None if blank => Ok(None),
        None => Err(refusal),
    }
}

/// Writes the copy whose turn it is, and waits until it is durable.
pub(super) async fn write_superblock(
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
