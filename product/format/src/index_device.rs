//! The head of a device that holds nothing but the index of an image: names the image, and the run that uses the index.
//!
//! Two copies of a page are written in turn and synced; the valid copy with the higher generation counts. A torn write leaves
//! the other copy.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;
use crate::segment::PAGE_BYTES;
use crate::superblock::{IMAGE_FORMAT, check};

/// Bytes in front of the region. Bytes outside the copies are zero.
pub const INDEX_HEAD_BYTES: u64 = 1 << 20;
/// Offsets of the two copies.
pub const INDEX_HEADER_OFFSETS: [u64; 2] = [0, INDEX_HEAD_BYTES / 2];
/// Bytes of a copy: an [`IndexHeader`], and zeros.
pub const INDEX_HEADER_BYTES: usize = PAGE_BYTES as usize;

const MAGIC: u64 = u64::from_le_bytes(*b"flowINDX");

/// First bytes of a copy.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IndexHeader {
    magic: U64,
    format: U32,
    checksum: U32,
    /// The image that the index belongs to, by its id.
    pub image: U64,
    /// Bytes of the region behind the head.
    pub region_bytes: U64,
    /// Counts the writes of the header.
    pub generation: U64,
    /// The run of the image ([`next_run`](crate::superblock::next_run)): the run in the superblock, or the one after it.
    pub run: U64,
    /// The last run whose superblock has been written; 0 before the first.
    pub begun: U64,
}

const _: () = assert!(size_of::<IndexHeader>() == 56);

impl IndexHeader {
    /// Returns the header of an index that no image has used yet.
    pub fn new(image: u64, region_bytes: u64) -> Self {
        Self {
            magic: U64::new(MAGIC),
            format: U32::new(IMAGE_FORMAT),
            checksum: U32::new(0),
            image: U64::new(image),
            region_bytes: U64::new(region_bytes),
            generation: U64::new(0),
            run: U64::new(0),
            begun: U64::new(0),
        }
    }

    fn own_checksum(&self) -> u32 {
        let unsigned = Self {
            checksum: U32::new(0),
            ..*self
        };
        crc32c::crc32c(unsigned.as_bytes())
    }

    /// Returns the bytes of a copy.
    pub fn encode(&self) -> [u8; INDEX_HEADER_BYTES] {
        let signed = Self {
            checksum: U32::new(self.own_checksum()),
            ..*self
        };
        let mut page = [0; INDEX_HEADER_BYTES];
        page[..size_of::<Self>()].copy_from_slice(signed.as_bytes());
        page
    }

    /// Reads one of the two copies of a header.
    ///
    /// # Errors
    /// Any [`FormatError`] if the page is not a header of this format.
    pub fn decode(page: &[u8]) -> Result<Self, FormatError> {
        let (header, _) = Self::read_from_prefix(page).map_err(|_| FormatError::Range)?;
        check(header.magic.get() == MAGIC, header.format.get())?;
        if header.checksum.get() != header.own_checksum() {
            return Err(FormatError::Checksum);
        }
        Ok(Self {
            checksum: U32::new(0),
            ..header
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> IndexHeader {
        IndexHeader {
            generation: U64::new(7),
            run: U64::new(3 << 32),
            begun: U64::new(2 << 32),
            ..IndexHeader::new(0x1234, 8 << 20)
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let page = header().encode();
        assert_eq!(IndexHeader::decode(&page), Ok(header()));
        assert!(
            page[size_of::<IndexHeader>()..]
                .iter()
                .all(|&byte| byte == 0)
        );
    }

    #[test]
    fn a_damaged_header_is_refused() {
        for byte in 0..size_of::<IndexHeader>() {
            let mut page = header().encode();
            page[byte] ^= 1;
            assert!(IndexHeader::decode(&page).is_err(), "byte {byte}");
        }
        let nothing = [0; INDEX_HEADER_BYTES];
        assert_eq!(IndexHeader::decode(&nothing), Err(FormatError::Magic));
        assert_eq!(IndexHeader::decode(&[]), Err(FormatError::Range));
    }
}
