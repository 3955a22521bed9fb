//! Slicetables: the superblock of a drive, and the head of every page. The words of their log are in
//! [`log`](super::log).
//!
//! The checksum of a page also covers the instance, the partition, the page's number in the slicetable and the
//! generation. A page of an earlier instance, or one written for another place, therefore does not verify.

use std::ops::Range;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use format::FormatError;

/// Version of every structure of slicetables, on drives and in logs.
pub const SLICES_FORMAT: u32 = 1;
/// Bytes of the head of a page.
pub const SLICE_PAGE_HEAD_BYTES: usize = size_of::<PageHead>();
/// Bytes of an entry: key and value.
pub const ENTRY_BYTES: usize = 16;

const MAGIC: u64 = u64::from_le_bytes(*b"flowSLCE");
/// Kind of a structure on slicetables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SliceKind {
    /// A hash table of 8-byte keys and values.
    Hash = 1,
    /// A Bloom filter of strings of bytes.
    Bloom = 2,
    /// A similarity index of vectors.
    Lsh = 3,
    /// A map of strings of bytes, whose values lie beside a hash table.
    Map = 4,
}

impl SliceKind {
    /// Returns the name of the kind with this number.
    pub fn name_of(kind: u32) -> &'static str {
        const NAMES: [(SliceKind, &str); 4] = [
            (SliceKind::Hash, "hash table"),
            (SliceKind::Bloom, "Bloom filter"),
            (SliceKind::Lsh, "similarity index"),
            (SliceKind::Map, "map"),
        ];
        let named = NAMES.iter().find(|(known, _)| *known as u32 == kind);
        named.map_or("structure that this program does not know", |(_, name)| {
            name
        })
    }
}

/// First bytes of a drive; written once.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SliceSuperblock {
    magic: U64,
    format: U32,
    checksum: U32,
    /// Tells this structure from every other.
    pub instance: U64,
    /// Seed of the hash functions.
    pub hash_seed: U64,
    /// Kind of the structure: a [`SliceKind`].
    pub kind: U32,
    /// Number of this drive.
    pub drive: U32,
    /// Number of drives.
    pub drives: U32,
    /// 1 if the slices of a partition are spread over all drives, 0 if each partition has one drive.
    pub spread: U32,
    /// Partitions of the structure.
    pub partitions: U32,
    /// Pages of a slicetable.
    pub pages: U32,
    /// Bytes of a page.
    pub page_bytes: U32,
    /// Incarnations in a slicetable.
    pub incarnations: U32,
    /// Slices in a page.
    pub slots_per_page: U32,
    /// Entries of a bucket.
    pub bucket_entries: U32,
    /// Bytes of the filter of an incarnation in a page.
    pub filter_bytes: U32,
    /// Channels of a drive.
    pub channels: U32,
    /// Consecutive bytes on one channel.
    pub chunk_bytes: U32,
    /// Settings of the kind itself.
    pub own: [U64; 4],
}

const _: () = assert!(size_of::<SliceSuperblock>() == 116);

impl SliceSuperblock {
    /// Returns a superblock of a kind with all other fields zero.
    pub fn new(kind: SliceKind) -> Self {
        let mut new = Self::new_zeroed();
        new.magic = U64::new(MAGIC);
        new.format = U32::new(SLICES_FORMAT);
        new.kind = U32::new(kind as u32);
        new
    }

    fn new_zeroed() -> Self {
        Self::read_from_bytes(&[0; size_of::<Self>()]).expect("any bytes are one")
    }

    fn own_checksum(&self) -> u32 {
        let unsigned = Self {
            checksum: U32::new(0),
            ..*self
        };
        crc32c::crc32c(unsigned.as_bytes())
    }

    /// Writes the superblock to the start of `page`, and zeros behind it.
    pub fn encode(&self, page: &mut [u8]) {
        let signed = Self {
            checksum: U32::new(self.own_checksum()),
            ..*self
        };
        page.fill(0);
        page[..size_of::<Self>()].copy_from_slice(signed.as_bytes());
    }

    /// Reads the superblock at the start of `page`.
    ///
    /// # Errors
    /// Any [`FormatError`] if the bytes are not a superblock of this format.
    pub fn decode(page: &[u8]) -> Result<Self, FormatError> {
        let (found, _) = Self::read_from_prefix(page).map_err(|_| FormatError::Range)?;
        if found.magic.get() != MAGIC {
            return Err(FormatError::Magic);
        }
        if found.format.get() != SLICES_FORMAT {
            return Err(FormatError::Version {
                found: found.format.get(),
                expected: SLICES_FORMAT,
            });
        }
        if found.checksum.get() != found.own_checksum() {
            return Err(FormatError::Checksum);
        }
        Ok(Self {
            checksum: U32::new(0),
            ..found
        })
    }
}

/// Head of a page of a slicetable.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct PageHead {
    checksum: U32,
    partition: U32,
    page: U32,
    generation: U32,
    floor: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<PageHead>() == 24);

/// Division of a page of a hash table.
///
/// Behind the head: a bitmap of the entries present, a bitmap of the deletes, the entries, and a filter of `filter_bytes` for
/// each incarnation. Entry `i` of the bucket that incarnation `n` has for a slot has number
/// `(slot * incarnations + n) * bucket_entries + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPage {
    /// Bytes of the page.
    pub page_bytes: usize,
    /// Incarnations, each of which has a bucket for each slot.
    pub incarnations: usize,
    /// Slots whose slices lie in the page.
    pub slots: usize,
    /// Entries of a bucket.
    pub bucket_entries: usize,
    /// Bytes of the filter of an incarnation.
    pub filter_bytes: usize,
}

impl EntryPage {
    /// Divides a page with `slots` slots. The filters share the remaining bytes; `None` if no byte is left for each.
    pub fn of(
        page_bytes: usize,
        incarnations: usize,
        slots: usize,
        bucket_entries: usize,
    ) -> Option<Self> {
        let bare = Self {
            page_bytes,
            incarnations,
            slots,
            bucket_entries,
            filter_bytes: 0,
        };
        let filter_bytes = page_bytes.checked_sub(bare.filters().start)? / incarnations;
        (filter_bytes > 0 && slots > 0 && bucket_entries > 0).then_some(Self {
            filter_bytes,
            ..bare
        })
    }

    /// Returns the number of entries that a page has places for.
    pub fn entries(&self) -> usize {
        self.slots * self.incarnations * self.bucket_entries
    }

    fn bitmap_bytes(&self) -> usize {
        self.entries().div_ceil(64) * 8
    }

    /// Returns the bytes of the bitmap of entries present.
    pub fn present(&self) -> Range<usize> {
        SLICE_PAGE_HEAD_BYTES..SLICE_PAGE_HEAD_BYTES + self.bitmap_bytes()
    }

    /// Returns the bytes of the bitmap of deletes.
    pub fn deletes(&self) -> Range<usize> {
        let start = self.present().end;
        start..start + self.bitmap_bytes()
    }

    /// Returns the bytes of entry number `entry`.
    pub fn entry(&self, entry: usize) -> Range<usize> {
        let start = self.deletes().end + entry * ENTRY_BYTES;
        start..start + ENTRY_BYTES
    }

    fn filters(&self) -> Range<usize> {
        let start = self.entry(self.entries()).start;
        start..start + self.incarnations * self.filter_bytes
    }

    /// Returns the bytes of the filter of an incarnation.
    pub fn filter(&self, incarnation: usize) -> Range<usize> {
        let start = self.filters().start + incarnation * self.filter_bytes;
        start..start + self.filter_bytes
    }

    /// Returns the number of the first entry of a bucket.
    pub fn bucket(&self, slot: usize, incarnation: usize) -> usize {
        (slot * self.incarnations + incarnation) * self.bucket_entries
    }
}

/// Division of a page of a Bloom filter.
///
/// Behind the head: the slices of the slots in order, each of [`slice_bytes`](Self::slice_bytes). Bit `n` of a slice (bit `n % 8`
/// of its byte `n / 8`) is the bit that incarnation `n` has for the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitPage {
    /// Bytes of the page.
    pub page_bytes: usize,
    /// Incarnations, each of which has a bit for each slot.
    pub incarnations: usize,
    /// Slots whose slices lie in the page.
    pub slots: usize,
}

impl BitPage {
    /// Divides a page into as many slots as fit; `None` if none fits.
    pub fn of(page_bytes: usize, incarnations: usize) -> Option<Self> {
        let bytes = page_bytes.checked_sub(SLICE_PAGE_HEAD_BYTES)?;
        let slots = bytes.checked_div(incarnations.div_ceil(8))?;
        (slots > 0).then_some(Self {
            page_bytes,
            incarnations,
            slots,
        })
    }

    /// Returns the bytes of a slot's slice.
    pub fn slice_bytes(&self) -> usize {
        self.incarnations.div_ceil(8)
    }

    /// Returns the bytes of the page that hold a slot's slice.
    pub fn slice(&self, slot: usize) -> Range<usize> {
        let start = SLICE_PAGE_HEAD_BYTES + slot * self.slice_bytes();
        start..start + self.slice_bytes()
    }
}

/// Identity of a page: its checksum covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageIdentity {
    /// The structure that the page belongs to.
    pub instance: u64,
    /// The partition of the slicetable.
    pub partition: u32,
    /// The page's number in the slicetable.
    pub page: u32,
    /// The flush that wrote the page.
    pub generation: u32,
}

impl PageIdentity {
    fn head(&self, floor: u32) -> PageHead {
        PageHead {
            checksum: U32::new(0),
            partition: U32::new(self.partition),
            page: U32::new(self.page),
            generation: U32::new(self.generation),
            floor: U32::new(floor),
            reserved: U32::new(0),
        }
    }

    fn checksum(&self, head: &PageHead, body: &[u8]) -> u32 {
        let unsigned = PageHead {
            checksum: U32::new(0),
            ..*head
        };
        let seed = crc32c::crc32c(&self.instance.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(seed, unsigned.as_bytes()), body)
    }

    /// Writes the head of `page`, whose body is complete. A look-up ignores entries that generations up to `floor` wrote in
    /// the other slicetables of the partition.
    pub fn seal(&self, floor: u32, page: &mut [u8]) {
        let (head_bytes, body) = page.split_at_mut(SLICE_PAGE_HEAD_BYTES);
        let mut head = self.head(floor);
        head.checksum = U32::new(self.checksum(&head, body));
        head_bytes.copy_from_slice(head.as_bytes());
    }

    /// Verifies that `page` is this page, and returns its floor.
    ///
    /// # Errors
    /// [`FormatError::Checksum`], or [`FormatError::Identity`] if it is another page.
    pub fn verify(&self, page: &[u8]) -> Result<u32, FormatError> {
        let (head, body) = PageHead::read_from_prefix(page).map_err(|_| FormatError::Range)?;
        if head.checksum.get() != self.checksum(&head, body) {
            return Err(FormatError::Checksum);
        }
        let expected = PageHead {
            checksum: head.checksum,
            ..self.head(head.floor.get())
        };
        match head == expected {
            true => Ok(head.floor.get()),
            false => Err(FormatError::Identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_is_read_as_it_was_written_and_a_damaged_one_is_not() {
        let mut superblock = SliceSuperblock::new(SliceKind::Bloom);
        superblock.instance = U64::new(77);
        superblock.own[3] = U64::new(5);
        let mut page = [1; 4096];
        superblock.encode(&mut page);
        assert_eq!(SliceSuperblock::decode(&page), Ok(superblock));
        for byte in 0..size_of::<SliceSuperblock>() {
            let mut damaged = page;
            damaged[byte] ^= 1;
            assert!(SliceSuperblock::decode(&damaged).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn a_superblock_is_these_bytes() {
        let mut superblock = SliceSuperblock::new(SliceKind::Map);
        superblock.instance = U64::new(0x0102_0304_0506_0708);
        superblock.hash_seed = U64::new(0x1112_1314_1516_1718);
        let numbers = [
            &mut superblock.drive,
            &mut superblock.drives,
            &mut superblock.spread,
            &mut superblock.partitions,
            &mut superblock.pages,
            &mut superblock.page_bytes,
            &mut superblock.incarnations,
            &mut superblock.slots_per_page,
            &mut superblock.bucket_entries,
            &mut superblock.filter_bytes,
            &mut superblock.channels,
            &mut superblock.chunk_bytes,
        ];
        for (number, value) in numbers.into_iter().zip(0xa000_0000..) {
            *number = U32::new(value);
        }
        superblock.own = [1, 2, 3, 4].map(|number| U64::new(number << 56));
        let mut page = [1; 4096];
        superblock.encode(&mut page);
        let mut golden = b"flowSLCE\x01\0\0\0\0\0\0\0".to_vec();
        golden.extend([8, 7, 6, 5, 4, 3, 2, 1]);
        golden.extend([0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        golden.extend([4, 0, 0, 0]);
        golden.extend((0..12).flat_map(|number| [number, 0, 0, 0xa0]));
        golden.extend((1..5).flat_map(|number| [0, 0, 0, 0, 0, 0, 0, number]));
        golden[12..16].copy_from_slice(&[0x4c, 0x7a, 0x23, 0xc7]);
        assert_eq!(page[..116], golden);
        assert_eq!(page[116..], [0; 4096 - 116]);
    }

    #[test]
    fn a_page_is_only_the_page_it_was_sealed_as() {
        let identity = PageIdentity {
            instance: 9,
            partition: 3,
            page: 5,
            generation: 8,
        };
        let mut page = vec![7; 4096];
        identity.seal(2, &mut page);
        assert_eq!(identity.verify(&page), Ok(2));
        for byte in [0, 4, 16, 20, 24, 4095] {
            page[byte] ^= 1;
            assert_eq!(identity.verify(&page), Err(FormatError::Checksum));
            page[byte] ^= 1;
        }
        let others = [
            PageIdentity {
                partition: 4,
                ..identity
            },
            PageIdentity {
                page: 6,
                ..identity
            },
            PageIdentity {
                generation: 9,
                ..identity
            },
        ];
        for other in others {
            assert_eq!(other.verify(&page), Err(FormatError::Identity));
        }
        let stranger = PageIdentity {
            instance: 10,
            ..identity
        };
        assert_eq!(stranger.verify(&page), Err(FormatError::Checksum));
    }

    #[test]
    fn the_parts_of_a_page_lie_side_by_side() {
        let page = EntryPage::of(4096, 32, 2, 3).expect("they fit");
        assert_eq!(page.present(), 24..48);
        assert_eq!(page.deletes(), 48..72);
        assert_eq!(page.entry(0), 72..88);
        assert_eq!(page.bucket(1, 31) + 3, page.entries());
        assert_eq!(page.filter(0).start, page.entry(page.entries()).start);
        assert!(page.filter(31).end <= 4096 && page.filter(31).end + 32 > 4096);
        assert_eq!(EntryPage::of(4096, 32, 3, 3), None);
        assert_eq!(EntryPage::of(4096, 85, 1, 3), None);
    }

    #[test]
    fn slices_of_bits_lie_side_by_side() {
        let page = BitPage::of(4096, 256).expect("they fit");
        assert_eq!((page.slots, page.slice_bytes()), (127, 32));
        assert_eq!((page.slice(0), page.slice(1)), (24..56, 56..88));
        assert!(page.slice(126).end <= 4096 && page.slice(127).end > 4096);
        let page = BitPage::of(4096, 3).expect("they fit");
        assert_eq!((page.slots, page.slice(4071)), (4072, 4095..4096));
        assert_eq!(BitPage::of(4096, 32_577), None);
        assert_eq!(BitPage::of(4096, 0), None);
    }

    #[test]
    fn the_head_of_a_page_is_these_bytes() {
        let identity = PageIdentity {
            instance: 0x0102_0304_0506_0708,
            partition: 0x1112_1314,
            page: 0x2122_2324,
            generation: 0x3132_3334,
        };
        let mut page = [7; 32];
        identity.seal(0x4142_4344, &mut page);
        let golden = [
            0x74, 0xce, 0x21, 0x00, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33,
            0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7,
        ];
        assert_eq!(page, golden);
    }
}
