//! The place of the journal that an image names, beside each copy of its superblock.

use std::path::{Path, PathBuf};

use device::{AlignedBuf, DeviceError, Disk, Region};

use super::superblocks::SUPERBLOCK_OFFSETS;
use crate::format::journal_place::{
    JOURNAL_PLACE_BYTES, JOURNAL_PLACE_OFFSET, decode_journal_place, encode_journal_place,
};

/// Returns the path of the journal of an image, if a copy of it verifies.
pub(crate) async fn read(meta: &Region, image: u64) -> Result<Option<PathBuf>, DeviceError> {
    for offset in SUPERBLOCK_OFFSETS {
        let page = AlignedBuf::new(JOURNAL_PLACE_BYTES);
        let page = meta.read(offset + JOURNAL_PLACE_OFFSET, page).await?;
        if let Some(path) = decode_journal_place(&page, image) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Durably writes both copies, one after the other.
pub(crate) async fn write(meta: &Region, image: u64, path: &Path) -> Result<(), DeviceError> {
    for offset in SUPERBLOCK_OFFSETS {
        let mut page = AlignedBuf::new(JOURNAL_PLACE_BYTES);
        page.copy_from_slice(&encode_journal_place(image, path));
        meta.write(offset + JOURNAL_PLACE_OFFSET, page.into())
            .await?;
        meta.sync().await?;
    }
    Ok(())
}
