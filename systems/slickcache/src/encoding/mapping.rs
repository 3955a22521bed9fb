//! Mapping blocks: content of the cascade's tiers on flash (SlickCache, SoCC '18, sections 4.1.2 and 4.1.3).
//!
//! ```text
//!  block: whole pages
//!   0       4          8       16       24        28             32
//!   │ magic │ checksum │ image │ number │ entries │ filter units │ entry │ … │ filter │ zero │
//!
//!  entry: hash 8 │ segment 4 │ position 4
//! ```
//!
//! Entries are sorted by hash, each hash once, so that a search is binary. A block verifies only as the block that was
//! asked for: a reused page may still hold an older block, or a block of another image.
//!
//! Failure: [`Block::decode`] returns the reason why bytes are not that block. A block that it accepts has the entries that
//! were encoded. It does not check that they are sorted; that is the writer's duty.

use std::mem::offset_of;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use format::segment::{PAGE_BYTES, Position};
use on_flash::bloom;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 16;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Unit of a filter's length: a line of a [Bloom filter](bloom).
pub const FILTER_UNIT_BYTES: usize = bloom::LINE_BYTES;
/// Bits an entry of a filter in a block. Blocks do not record it, so that another figure is another format.
pub const FILTER_BITS_PER_ENTRY: u32 = 16;
/// Segment number of an entry whose key has been deleted.
pub const TOMBSTONE: u32 = u32::MAX;

/// Bit of a position: a lower tier has the mapping, too. Segments have fewer than 2^30 units.
const CLEAN: u32 = 1 << 30;

const MAGIC: u32 = u32::from_le_bytes(*b"flMB");

/// Maps a hash to the place of its item, or to a tombstone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Entry {
    /// Hash of the key: the bits that the index keeps, then zeros.
    pub hash: U64,
    /// Dense number of the generation of a segment, or [`TOMBSTONE`].
    pub segment: U32,
    /// Bits of the [`Position`]; 0 in a tombstone.
    pub position: U32,
}

const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

impl Entry {
    /// Returns the entry of an item. The segment's number is below [`TOMBSTONE`].
    pub fn new(hash: u64, segment: u32, position: Position) -> Self {
        debug_assert_ne!(segment, TOMBSTONE);
        Self {
            hash: U64::new(hash),
            segment: U32::new(segment),
            position: U32::new(position.bits()),
        }
    }

    /// Returns the entry of a deleted key.
    pub fn tombstone(hash: u64) -> Self {
        Self {
            hash: U64::new(hash),
            segment: U32::new(TOMBSTONE),
            position: U32::new(0),
        }
    }

    /// Returns the hash, the sort and search key of entries.
    pub fn key(&self) -> u64 {
        self.hash.get()
    }

    /// Returns the entry, marked as one that a lower tier has, too.
    #[must_use]
    pub fn clean(self) -> Self {
        Self {
            position: U32::new(self.position.get() | CLEAN),
            ..self
        }
    }

    /// Returns whether a lower tier has the entry, too.
    pub fn is_clean(&self) -> bool {
        self.position.get() & CLEAN != 0
    }

    /// Returns the number of the segment's generation and the item's position; `None` for a tombstone.
    pub fn item(&self) -> Option<(u32, Position)> {
        let position = Position::from_bits(self.position.get() & !CLEAN);
        (self.segment.get() != TOMBSTONE).then_some((self.segment.get(), position))
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: U32,
    checksum: U32,
    image: U64,
    number: U64,
    entries: U32,
    filter_units: U32,
}

const CHECKSUM_OFFSET: usize = offset_of!(Header, checksum);
const CHECKSUM_END: usize = CHECKSUM_OFFSET + size_of::<U32>();

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(CHECKSUM_OFFSET == 4);
    assert!(offset_of!(Header, image) == 8);
    assert!(offset_of!(Header, number) == 16);
    assert!(offset_of!(Header, entries) == 24);
    assert!(offset_of!(Header, filter_units) == 28);
};

/// Reasons to reject bytes as the block that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum BlockError {
    /// No block has this length.
    #[error("{bytes} bytes are not a block of whole pages")]
    Size { bytes: usize },
    /// The magic number is not that of a mapping block.
    #[error("not a mapping block")]
    Magic,
    /// The checksum does not match the bytes: damaged, torn, or not all of the block.
    #[error("checksum mismatch")]
    Checksum,
    /// A block of another image.
    #[error("belongs to image {found:#x}, not {expected:#x}")]
    Image { found: u64, expected: u64 },
    /// Another block, which lay at this place earlier or is to lie there.
    #[error("is block {found}, not {expected}")]
    Number { found: u64, expected: u64 },
    /// The checksum is right and the lengths are wrong: a bug of the writer.
    #[error(
        "{entries} entries and {filter_units} units of filter do not fit a block of {bytes} bytes"
    )]
    Lengths {
        entries: u32,
        filter_units: u32,
        bytes: usize,
    },
}

/// Returns the number of entries that fit a block of `pages` pages with a filter of `filter_units` [units](FILTER_UNIT_BYTES).
pub const fn capacity(pages: usize, filter_units: usize) -> usize {
    let taken = HEADER_BYTES + filter_units * FILTER_UNIT_BYTES;
    (pages * PAGE_BYTES as usize).saturating_sub(taken) / ENTRY_BYTES
}

/// Writes a block over all of `bytes`: the entries, sorted by hash, each hash once, and the filter, which may be empty.
///
/// # Panics
///
/// If `bytes` are not whole pages, `filter` is not whole units, or entries and filter do not fit. With debug assertions,
/// also if the entries are not sorted or a hash occurs twice, since a search would miss some.
pub fn encode(bytes: &mut [u8], image: u64, number: u64, entries: &[Entry], filter: &[u8]) {
    assert!(is_whole_pages(bytes), "{} bytes", bytes.len());
    assert!(filter.len().is_multiple_of(FILTER_UNIT_BYTES));
    let used = HEADER_BYTES + size_of_val(entries) + filter.len();
    assert!(
        used <= bytes.len(),
        "{used} bytes in a block of {}",
        bytes.len()
    );
    debug_assert!(
        entries.is_sorted_by(|before, after| before.hash.get() < after.hash.get()),
        "entries in order of hashes, each hash once"
    );
    let header = Header {
        magic: U32::new(MAGIC),
        checksum: U32::new(0),
        image: U64::new(image),
        number: U64::new(number),
        entries: U32::new(entries.len() as u32),
        filter_units: U32::new((filter.len() / FILTER_UNIT_BYTES) as u32),
    };
    let mut rest = &mut *bytes;
    for part in [header.as_bytes(), entries.as_bytes(), filter] {
        let (to, behind) = rest.split_at_mut(part.len());
        to.copy_from_slice(part);
        rest = behind;
    }
    rest.fill(0);
    let checksum = checksum(bytes);
    bytes[CHECKSUM_OFFSET..CHECKSUM_END].copy_from_slice(&checksum.to_le_bytes());
}

fn is_whole_pages(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len().is_multiple_of(PAGE_BYTES as usize)
}

/// Returns the checksum of all bytes of a block except the checksum itself.
fn checksum(block: &[u8]) -> u32 {
    let before = crc32c::crc32c(&block[..CHECKSUM_OFFSET]);
    crc32c::crc32c_append(before, &block[CHECKSUM_END..])
}

/// A verified block.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    entries: &'a [Entry],
    filter: &'a [u8],
}

impl<'a> Block<'a> {
    /// Verifies that `bytes` are the whole of block `number` of an image.
    ///
    /// # Errors
    ///
    /// The [`BlockError`] of the check that fails.
    pub fn decode(bytes: &'a [u8], image: u64, number: u64) -> Result<Self, BlockError> {
        let size = BlockError::Size { bytes: bytes.len() };
        if !is_whole_pages(bytes) {
            return Err(size);
        }
        let (header, content) = Header::ref_from_prefix(bytes).map_err(|_| size)?;
        if header.magic.get() != MAGIC {
            return Err(BlockError::Magic);
        }
        if header.checksum.get() != checksum(bytes) {
            return Err(BlockError::Checksum);
        }
        if header.image.get() != image {
            return Err(BlockError::Image {
                found: header.image.get(),
                expected: image,
            });
        }
        if header.number.get() != number {
            return Err(BlockError::Number {
                found: header.number.get(),
                expected: number,
            });
        }
        let (entries, filter_units) = (header.entries.get(), header.filter_units.get());
        Self::split(content, entries as usize, filter_units as usize).ok_or(BlockError::Lengths {
            entries,
            filter_units,
            bytes: bytes.len(),
        })
    }

    fn split(content: &'a [u8], entries: usize, filter_units: usize) -> Option<Self> {
        let (entries, rest) = <[Entry]>::ref_from_prefix_with_elems(content, entries).ok()?;
        let filter = rest.get(..filter_units.checked_mul(FILTER_UNIT_BYTES)?)?;
        Some(Self { entries, filter })
    }

    /// Returns the entry of a hash. All 64 bits must equal those of the entry.
    pub fn find(&self, hash: u64) -> Option<Entry> {
        let at = self
            .entries
            .binary_search_by_key(&hash, |entry| entry.hash.get())
            .ok()?;
        Some(self.entries[at])
    }

    /// Returns all entries, sorted by hash.
    pub fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// Returns the [Bloom filter](bloom), with [`FILTER_BITS_PER_ENTRY`]; empty if the block has none.
    pub fn filter(&self) -> &'a [u8] {
        self.filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const IMAGE: u64 = 0x1234_5678_9abc_def0;
    const NUMBER: u64 = 77;
    const PAGE: usize = PAGE_BYTES as usize;

    /// Segment and position of each hash.
    type Model = BTreeMap<u64, (u32, u32)>;

    /// Hashes near each other and far apart, tombstones among them.
    fn any_model(most: usize) -> impl Strategy<Value = Model> {
        let hash = prop_oneof![any::<u64>(), 0..600u64, Just(u64::MAX)];
        let segment = prop_oneof![9 => any::<u32>(), 1 => Just(TOMBSTONE)];
        proptest::collection::btree_map(
            hash,
            (segment, any::<u32>().prop_map(|position| position & !CLEAN)),
            0..most,
        )
    }

    fn entries_of(model: &Model) -> Vec<Entry> {
        let entry = |(&hash, &(segment, position)): (&u64, &(u32, u32))| match segment {
            TOMBSTONE => Entry::tombstone(hash),
            _ => Entry::new(hash, segment, Position::from_bits(position)),
        };
        model.iter().map(entry).collect()
    }

    fn encoded(pages: usize, entries: &[Entry], filter: &[u8]) -> Vec<u8> {
        // Old bytes of the buffer must not show.
        let mut bytes = vec![0xee; pages * PAGE];
        encode(&mut bytes, IMAGE, NUMBER, entries, filter);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Block<'_>, BlockError> {
        Block::decode(bytes, IMAGE, NUMBER)
    }

    fn seal(bytes: &mut [u8]) {
        let checksum = checksum(bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_found(
            model in any_model(1000),
            filter in proptest::collection::vec(any::<[u8; FILTER_UNIT_BYTES]>(), 0..6),
            others in proptest::collection::vec(prop_oneof![any::<u64>(), 0..600u64], 100),
        ) {
            let entries = entries_of(&model);
            let filter = filter.concat();
            let bytes = encoded(4, &entries, &filter);
            let block = decode(&bytes).unwrap();
            prop_assert_eq!(block.entries(), &entries[..]);
            prop_assert_eq!(block.filter(), &filter[..]);
            for hash in model.keys().copied().chain(others) {
                let item = block.find(hash).map(|entry| entry.item());
                let expected = model.get(&hash).map(|&(segment, position)| {
                    (segment != TOMBSTONE).then_some((segment, Position::from_bits(position)))
                });
                prop_assert_eq!(item, expected);
            }
            let used = HEADER_BYTES + entries.len() * ENTRY_BYTES + filter.len();
            prop_assert!(bytes[used..].iter().all(|&byte| byte == 0));
        }

        #[test]
        fn a_flipped_bit_is_noticed(
            model in any_model(500),
            units in 0..4usize,
            bit in 0..2 * PAGE * 8,
        ) {
            let filter = vec![0xa5; units * FILTER_UNIT_BYTES];
            let mut bytes = encoded(2, &entries_of(&model)[..model.len().min(480)], &filter);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn a_part_of_a_block_is_refused(model in any_model(500), len in 0..2 * PAGE) {
            let bytes = encoded(2, &entries_of(&model)[..model.len().min(500)], &[]);
            prop_assert!(decode(&bytes[..len]).is_err());
            prop_assert!(decode(&bytes[..PAGE]).is_err());
        }

        /// Lengths may be anything if the checksum is right.
        #[test]
        fn any_bytes_decode_or_are_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), 2 * PAGE),
            entries in prop_oneof![0..600u32, any::<u32>()],
            filter_units in prop_oneof![0..200u32, any::<u32>()],
            hash in any::<u64>(),
        ) {
            let header = Header {
                magic: U32::new(MAGIC),
                checksum: U32::new(0),
                image: U64::new(IMAGE),
                number: U64::new(NUMBER),
                entries: U32::new(entries),
                filter_units: U32::new(filter_units),
            };
            prop_assert!(decode(&bytes).is_err());
            bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            seal(&mut bytes);
            let fits = entries as usize <= capacity(2, filter_units as usize);
            match decode(&bytes) {
                Ok(block) => {
                    prop_assert!(fits);
                    prop_assert_eq!(block.entries().len(), entries as usize);
                    prop_assert_eq!(block.filter().len(), filter_units as usize * FILTER_UNIT_BYTES);
                    let _ = block.find(hash);
                }
                Err(error) => {
                    let bytes = bytes.len();
                    prop_assert!(!fits || entries == 0);
                    prop_assert_eq!(error, BlockError::Lengths { entries, filter_units, bytes });
                }
            }
        }
    }

    /// Every bit of a small block, header and zeros included.
    #[test]
    fn each_flipped_bit_is_noticed() {
        let entries = [
            Entry::tombstone(3),
            Entry::new(5, 1, Position::from_bits(9)),
        ];
        let mut bytes = encoded(1, &entries, &[0x5a; FILTER_UNIT_BYTES]);
        for bit in 0..PAGE * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode(&bytes).is_ok());
    }

    #[test]
    fn bytes_lie_where_the_document_says() {
        let hash = 0x0102_0304_0506_0708;
        let entries = [
            Entry::tombstone(hash - 1),
            Entry::new(hash, 0x0a0b_0c0d, Position::from_bits(0x8000_0021)),
        ];
        let bytes = encoded(1, &entries, &[0xf1; FILTER_UNIT_BYTES]);
        let expected = [
            &b"flMB"[..],
            &[0x4c, 0xb6, 0x34, 0x00],
            &[0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12],
            &[77, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0],
            &[1, 0, 0, 0],
            &[7, 7, 6, 5, 4, 3, 2, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            &[
                8, 7, 6, 5, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a, 0x21, 0, 0, 0x80,
            ],
            &[0xf1; 64],
        ];
        assert_eq!(bytes[..128], expected.concat());
        assert_eq!(bytes[128..], [0; PAGE - 128]);
    }

    #[test]
    fn a_block_is_believed_only_where_it_was_looked_for() {
        let bytes = encoded(2, &[], &[]);
        let decode = |bytes, image, number| Block::decode(bytes, image, number).map(drop);
        assert_eq!(decode(&bytes, IMAGE, NUMBER), Ok(()));
        for (bytes, image, number, expected) in [
            (
                &bytes[..],
                1,
                NUMBER,
                BlockError::Image {
                    found: IMAGE,
                    expected: 1,
                },
            ),
            (
                &bytes[..],
                IMAGE,
                78,
                BlockError::Number {
                    found: NUMBER,
                    expected: 78,
                },
            ),
            (&bytes[..PAGE], IMAGE, NUMBER, BlockError::Checksum),
            (
                &bytes[..5000],
                IMAGE,
                NUMBER,
                BlockError::Size { bytes: 5000 },
            ),
            (&[], IMAGE, NUMBER, BlockError::Size { bytes: 0 }),
            (&[0; PAGE], IMAGE, NUMBER, BlockError::Magic),
        ] {
            assert_eq!(decode(bytes, image, number), Err(expected));
        }
    }

    #[test]
    fn a_full_block_has_all_its_entries() {
        assert_eq!(capacity(4, 0), 1022);
        assert_eq!(capacity(1, 0), 254);
        assert_eq!(capacity(32, 0), 8190);
        assert_eq!(capacity(64, 2048), 8190);
        assert_eq!((capacity(1, 64), capacity(0, 0)), (0, 0));
        for (pages, units) in [(1, 0), (1, 5), (4, 3), (4, 254)] {
            let position = Position::from_bits(1);
            let entries: Vec<Entry> = (0..capacity(pages, units) as u64)
                .map(|n| Entry::new(n << 20, 1, position))
                .collect();
            let bytes = encoded(pages, &entries, &vec![1; units * FILTER_UNIT_BYTES]);
            assert_eq!(decode(&bytes).unwrap().entries(), entries);
        }
    }

    #[test]
    #[should_panic(expected = "in a block of 4096")]
    fn too_many_entries_are_a_programmers_error() {
        let entries: Vec<Entry> = (0..255).map(Entry::tombstone).collect();
        encoded(1, &entries, &[]);
    }

    #[test]
    #[should_panic(expected = "each hash once")]
    #[cfg(debug_assertions)]
    fn a_hash_twice_is_a_programmers_error() {
        encoded(1, &[Entry::tombstone(5), Entry::tombstone(5)], &[]);
    }
}
