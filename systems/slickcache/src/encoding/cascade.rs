//! The checkpoint of a cascade: the tables in memory that describe its tiers on flash, and the entries that are only in memory.
//!
//! ```text
//!  section of the engine's checkpoint:  Header │ extent: first page u32 │ pages u32 │ …
//!  those pages, each:
//!   0       4          8       16       24      28      32
//!   │ magic │ checksum │ image │ number │ bytes │ 0     │ a part of the stream │ zero │
//!
//!  stream: for each partition:
//!            blocks u32 │ newest first, each: BlockHead │ page u32 │ … │ page of its filter u32 │ … │ fence u16 │ …
//!            for each list:
//!              blocks, as above
//!              buckets with pages u32 │ each: bucket u32 │ pages u32 │ oldest first, each: BucketPage
//!              entries u32 │ in its buffer: Entry │ …
//!            entries u32 │ of Tier 1, and on their way from it: Entry │ …
//!          segments with numbers u32 │ NumberedSegment │ … │ the next number u32
//! ```

use std::mem::offset_of;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use format::FormatError;
use format::segment::PAGE_BYTES;

/// Version of the section.
pub const VERSION: u32 = 4;

/// First bytes of the section. All fields except the last three are settings that must not change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Topmost bits of a hash that all tiers keep.
    pub kept_bits: U32,
    /// Number of partitions, as a power of two.
    pub partition_bits: U32,
    /// Number of lists of each partition, as a power of two.
    pub list_bits: U32,
    /// Number of buckets of each list.
    pub ratio: U32,
    /// Number of the first page of the stream; the numbers of the other pages follow it.
    pub first_number: U64,
    /// Lowest page number that has not been given out.
    pub next_number: U64,
    /// Bytes of the stream.
    pub bytes: U64,
}

/// A block of Tier 2, or of an active list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct BlockHead {
    /// Number of the block's first page; the numbers of its other pages follow.
    pub number: U64,
    /// The highest segment number in the block.
    pub newest: U32,
    /// Entries of all its pages.
    pub entries: U32,
    /// Number of blocks that the jump filter behind the block covers: this block and older ones of its list. 0 without a filter.
    pub jump_blocks: U32,
    /// Pages of the jump filter. Their numbers follow those of the block.
    pub jump_pages: U32,
}

/// A page of an inactive bucket.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct BucketPage {
    /// Number of the page. It tells the page from earlier content of the same place.
    pub number: U64,
    /// Place of the page in the region.
    pub page: U32,
    /// The highest segment number in the page.
    pub newest: U32,
    /// Entries in the page.
    pub entries: U32,
}

const MAGIC: u32 = u32::from_le_bytes(*b"flMC");

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PageHeader {
    magic: U32,
    checksum: U32,
    image: U64,
    number: U64,
    bytes: U32,
    zero: U32,
}

const PAGE_HEADER_BYTES: usize = 32;
const CHECKSUM: std::ops::Range<usize> = 4..8;

const _: () = {
    assert!(size_of::<Header>() == 40);
    assert!(size_of::<BlockHead>() == 24);
    assert!(size_of::<BucketPage>() == 20);
    assert!(size_of::<PageHeader>() == PAGE_HEADER_BYTES);
    assert!(offset_of!(PageHeader, checksum) == CHECKSUM.start);
};

/// Bytes of the stream in one page.
pub const STREAM_BYTES: usize = PAGE_BYTES as usize - PAGE_HEADER_BYTES;

fn checksum(page: &[u8]) -> u32 {
    let before = crc32c::crc32c(&page[..CHECKSUM.start]);
    crc32c::crc32c_append(before, &page[CHECKSUM.end..])
}

/// Writes a page with the next bytes of the stream, [`STREAM_BYTES`] at most.
///
/// # Panics
/// When `page` is not as long as a page, or `stream` is longer than [`STREAM_BYTES`].
pub fn encode_page(page: &mut [u8], image: u64, number: u64, stream: &[u8]) {
    assert_eq!(page.len(), PAGE_BYTES as usize);
    let header = PageHeader {
        magic: U32::new(MAGIC),
        checksum: U32::new(0),
        image: U64::new(image),
        number: U64::new(number),
        bytes: U32::new(stream.len() as u32),
        zero: U32::new(0),
    };
    page.fill(0);
    page[..PAGE_HEADER_BYTES].copy_from_slice(header.as_bytes());
    page[PAGE_HEADER_BYTES..][..stream.len()].copy_from_slice(stream);
    let checksum = checksum(page);
    page[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the bytes of the stream in a page.
///
/// # Errors
/// [`FormatError`] when it is not this page of this image.
pub fn decode_page(page: &[u8], image: u64, number: u64) -> Result<&[u8], FormatError> {
    let (header, content) = PageHeader::ref_from_prefix(page).map_err(|_| FormatError::Range)?;
    if header.magic.get() != MAGIC {
        return Err(FormatError::Magic);
    }
    if header.checksum.get() != checksum(page) {
        return Err(FormatError::Checksum);
    }
    if (header.image.get(), header.number.get()) != (image, number) {
        return Err(FormatError::Identity);
    }
    content
        .get(..header.bytes.get() as usize)
        .ok_or(FormatError::Range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_page_gives_back_its_part_and_a_flipped_bit_is_noticed(
            stream in proptest::collection::vec(any::<u8>(), 0..=STREAM_BYTES),
            bit in 0..8 * PAGE_BYTES as usize,
        ) {
            let mut page = vec![0xee; PAGE_BYTES as usize];
            encode_page(&mut page, 3, 4, &stream);
            prop_assert_eq!(decode_page(&page, 3, 4), Ok(&stream[..]));
            prop_assert_eq!(decode_page(&page, 3, 5), Err(FormatError::Identity));
            prop_assert_eq!(decode_page(&page, 2, 4), Err(FormatError::Identity));
            page[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode_page(&page, 3, 4).is_err());
        }

        #[test]
        fn any_bytes_are_a_page_or_refused(page in proptest::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(decode_page(&page, 0, 0).is_err());
        }
    }
}
