//! The place of the journal, beside each copy of the superblock: the absolute path of the file.
//!
//! Both copies are written when the place changes. One that does not verify tells nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::segment::PAGE_BYTES;
use crate::superblock::SUPERBLOCK_BYTES;

/// Bytes of a copy.
pub const JOURNAL_PLACE_BYTES: usize = PAGE_BYTES as usize;
/// Bytes between the beginning of a copy of the superblock and that of the place beside it.
pub const JOURNAL_PLACE_OFFSET: u64 = SUPERBLOCK_BYTES as u64;

const MAGIC: u64 = u64::from_le_bytes(*b"flowJPLC");
const CHECKSUM_AT: usize = 8;
const HEAD_BYTES: usize = size_of::<PlaceHead>();
/// Bytes of the longest path that a copy holds.
const MAX_PATH_BYTES: usize = JOURNAL_PLACE_BYTES - HEAD_BYTES;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PlaceHead {
    magic: U64,
    checksum: U32,
    path_bytes: U32,
    image: U64,
}

const _: () = assert!(HEAD_BYTES == 24);

/// Returns a copy with the path of the journal of an image. A path that is too long is left out: the place is not known then.
pub fn encode_journal_place(image: u64, path: &Path) -> [u8; JOURNAL_PLACE_BYTES] {
    let path = path.as_os_str().as_bytes();
    let path = if path.len() <= MAX_PATH_BYTES {
        path
    } else {
        &[]
    };
    let head = PlaceHead {
        magic: U64::new(MAGIC),
        checksum: U32::new(0),
        path_bytes: U32::new(path.len() as u32),
        image: U64::new(image),
    };
    let mut page = [0; JOURNAL_PLACE_BYTES];
    page[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    page[HEAD_BYTES..][..path.len()].copy_from_slice(path);
    let checksum = crc32c::crc32c(&page);
    page[CHECKSUM_AT..][..4].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// Returns the path that a copy holds; `None` if it does not verify, is that of another image, or holds none.
pub fn decode_journal_place(page: &[u8], image: u64) -> Option<PathBuf> {
    let mut page: [u8; JOURNAL_PLACE_BYTES] = page.try_into().ok()?;
    let (head, _) = PlaceHead::read_from_prefix(&page).ok()?;
    page[CHECKSUM_AT..][..4].fill(0);
    let is_sound = head.magic.get() == MAGIC
        && head.image.get() == image
        && head.checksum.get() == crc32c::crc32c(&page);
    let path = page[HEAD_BYTES..].get(..head.path_bytes.get() as usize)?;
    (is_sound && !path.is_empty()).then(|| OsStr::from_bytes(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_for_its_image_alone() {
        let page = encode_journal_place(7, Path::new("/srv/cache.journal"));
        let path = Some(PathBuf::from("/srv/cache.journal"));
        assert_eq!(decode_journal_place(&page, 7), path);
        assert_eq!(decode_journal_place(&page, 8), None);
        for at in [0, 9, 13, 17, 30, 4000] {
            let mut damaged = page;
            damaged[at] ^= 4;
            assert_eq!(decode_journal_place(&damaged, 7), None, "byte {at}");
        }
        assert_eq!(decode_journal_place(&[0; JOURNAL_PLACE_BYTES], 0), None);
        assert_eq!(decode_journal_place(&page[1..], 7), None);
    }

    #[test]
    fn a_path_that_is_too_long_is_left_out() {
        let of = |bytes: usize| "/".repeat(bytes);
        let longest = of(MAX_PATH_BYTES);
        let page = encode_journal_place(7, Path::new(&longest));
        assert_eq!(decode_journal_place(&page, 7), Some(longest.into()));
        let page = encode_journal_place(7, Path::new(&of(MAX_PATH_BYTES + 1)));
        assert_eq!(decode_journal_place(&page, 7), None);
    }
}
