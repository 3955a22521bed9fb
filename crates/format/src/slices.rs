//! Slicetables: the superblock of a drive, the head of every page, the words of the log.
//!
//! A page is valid if its checksum, which also covers the instance, the partition, its number in the slicetable and the
//! generation, is; so what an earlier instance left, or what was written to another place, is no page.

use std::ops::Range;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;
use crate::segment::PAGE_BYTES;

/// The version of all that is in this file.
pub const SLICES_FORMAT: u32 = 1;
/// Bytes in front of what a page holds.
pub const SLICE_PAGE_HEAD_BYTES: usize = size_of::<PageHead>();
/// Bytes of an entry: key and value.
pub const ENTRY_BYTES: usize = 16;

const MAGIC: u64 = u64::from_le_bytes(*b"flowSLCE");
/// What a log begins with.
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"flowSLOG");
/// Words in front of the pointers of a log: magic number, format, instance, kind; the rest zero.
pub const LOG_HEAD_WORDS: usize = 8;
/// Words in front of the entries of a part of a log: the last count, two of which one has been synced ([`LogCount`]), and
/// whose entries they are ([`PartOwner`]).
pub const PART_HEAD_WORDS: usize = 4;
/// Parts begin at multiples of so many words: the head of one is within a cache line, whose stores stay in order.
pub const PART_ALIGN_WORDS: usize = 8;
/// Regions of a drive, at most: what a [`Pointer`] can name.
pub const MOST_REGIONS: u32 = 1 << 24;

/// What a structure is.
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
    /// What the kind of that number is called.
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

/// What a drive begins with; written once.
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
    /// Which structure it is: a [`SliceKind`].
    pub kind: U32,
    /// Which of the drives this is.
    pub drive: U32,
    /// How many drives there are.
    pub drives: U32,
    /// 1 where the slices of a partition are spread over all drives, 0 where each partition has one.
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
    /// What the kind has beside.
    pub own: [U64; 4],
}

const _: () = assert!(size_of::<SliceSuperblock>() == 116);

impl SliceSuperblock {
    /// A superblock in which everything is zero.
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

    /// Writes it to the start of `page`, the rest of which is set to zero.
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
    /// Whatever is no superblock of this format.
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

/// What a page of a slicetable begins with.
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

/// Words of a page of a log that lies within a disk.
pub const LOG_PAGE_WORDS: usize = (PAGE_BYTES as usize - 32) / 8;

/// A page of a log that lies within a disk, in one of its two places: that with more `writes` counts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LogPage {
    magic: U64,
    checksum: U32,
    page: U32,
    instance: U64,
    /// How often the page has been written.
    pub writes: U64,
    /// What it holds; zeros behind the last.
    pub words: [U64; LOG_PAGE_WORDS],
}

const _: () = assert!(size_of::<LogPage>() == PAGE_BYTES as usize);
const _: () = assert!(std::mem::offset_of!(LogPage, checksum) == 8);

const LOG_PAGE_MAGIC: u64 = u64::from_le_bytes(*b"flowSLPG");

impl LogPage {
    fn checksum_of(bytes: &[u8]) -> u32 {
        let unsigned = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &[0; 4]);
        crc32c::crc32c_append(unsigned, &bytes[12..])
    }

    /// Writes a page, in its turn, to `bytes`.
    pub fn encode(
        bytes: &mut [u8],
        instance: u64,
        (page, writes): (u32, u64),
        words: impl Iterator<Item = u64>,
    ) {
        let mut new = Self {
            magic: LOG_PAGE_MAGIC.into(),
            checksum: 0.into(),
            page: page.into(),
            instance: instance.into(),
            writes: writes.into(),
            words: [0.into(); LOG_PAGE_WORDS],
        };
        for (word, value) in new.words.iter_mut().zip(words) {
            word.set(value);
        }
        bytes.copy_from_slice(new.as_bytes());
        let checksum = Self::checksum_of(bytes);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The page that lies there, if it is this one.
    pub fn decode(bytes: &[u8], instance: u64, page: u32) -> Option<&Self> {
        let found = Self::ref_from_bytes(bytes).ok()?;
        let is_it = found.magic.get() == LOG_PAGE_MAGIC
            && found.checksum.get() == Self::checksum_of(bytes)
            && (found.instance.get(), found.page.get()) == (instance, page);
        is_it.then_some(found)
    }
}

/// How the pages of a hash table are divided.
///
/// Behind the head: a bit for each entry that is there, a bit for each that says its key has been deleted, the entries, and a
/// filter of `filter_bytes` for each incarnation. Entry `i` of the bucket that incarnation `n` has for a slot has number
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
    /// A page of so many slots, with filters of what is left; `None` where not a byte is left for each.
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

    /// Entries that a page has places for.
    pub fn entries(&self) -> usize {
        self.slots * self.incarnations * self.bucket_entries
    }

    fn bitmap_bytes(&self) -> usize {
        self.entries().div_ceil(64) * 8
    }

    /// The bits of those that are there.
    pub fn present(&self) -> Range<usize> {
        SLICE_PAGE_HEAD_BYTES..SLICE_PAGE_HEAD_BYTES + self.bitmap_bytes()
    }

    /// The bits of those that are deletes.
    pub fn deletes(&self) -> Range<usize> {
        let start = self.present().end;
        start..start + self.bitmap_bytes()
    }

    /// The bytes of the entry with a number.
    pub fn entry(&self, entry: usize) -> Range<usize> {
        let start = self.deletes().end + entry * ENTRY_BYTES;
        start..start + ENTRY_BYTES
    }

    fn filters(&self) -> Range<usize> {
        let start = self.entry(self.entries()).start;
        start..start + self.incarnations * self.filter_bytes
    }

    /// The filter of an incarnation.
    pub fn filter(&self, incarnation: usize) -> Range<usize> {
        let start = self.filters().start + incarnation * self.filter_bytes;
        start..start + self.filter_bytes
    }

    /// Number of the first entry of a bucket.
    pub fn bucket(&self, slot: usize, incarnation: usize) -> usize {
        (slot * self.incarnations + incarnation) * self.bucket_entries
    }
}

/// How the pages of a Bloom filter are divided.
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
    /// A page of as many slots as fit; `None` where not one does.
    pub fn of(page_bytes: usize, incarnations: usize) -> Option<Self> {
        let bytes = page_bytes.checked_sub(SLICE_PAGE_HEAD_BYTES)?;
        let slots = bytes.checked_div(incarnations.div_ceil(8))?;
        (slots > 0).then_some(Self {
            page_bytes,
            incarnations,
            slots,
        })
    }

    /// Bytes of the slice of a slot.
    pub fn slice_bytes(&self) -> usize {
        self.incarnations.div_ceil(8)
    }

    /// The slice of a slot.
    pub fn slice(&self, slot: usize) -> Range<usize> {
        let start = SLICE_PAGE_HEAD_BYTES + slot * self.slice_bytes();
        start..start + self.slice_bytes()
    }
}

/// Which page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageIdentity {
    /// The structure that the page or pointer belongs to.
    pub instance: u64,
    /// The partition whose slicetable it is of.
    pub partition: u32,
    /// Its number in the slicetable.
    pub page: u32,
    /// The flush that wrote it.
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

    /// Writes the head of `page`, whose body is complete. What generations up to `floor` have written in other slicetables
    /// of the partition does not count against it.
    pub fn seal(&self, floor: u32, page: &mut [u8]) {
        let (head_bytes, body) = page.split_at_mut(SLICE_PAGE_HEAD_BYTES);
        let mut head = self.head(floor);
        head.checksum = U32::new(self.checksum(&head, body));
        head_bytes.copy_from_slice(head.as_bytes());
    }

    /// Whether `page` is this page; its floor.
    ///
    /// # Errors
    /// [`FormatError::Checksum`], or [`FormatError::Identity`] where it is another page.
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

/// Where the slicetable of a partition lies: a word of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// The flush that wrote this slicetable, counted for each partition; 0 where there is none.
    pub generation: u32,
    /// The region that the slicetable lies in.
    pub region: u32,
}

/// Whose a [`Pointer`] is: its checksum depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerOwner {
    /// The structure that the page or pointer belongs to.
    pub instance: u64,
    /// The partition whose slicetable it points to.
    pub partition: u32,
    /// Which of the partition's slicetables.
    pub drive: u32,
}

impl PointerOwner {
    /// Never 0, so that a word of zeros is no pointer.
    fn seed(self) -> u8 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.instance.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.partition.to_le_bytes());
        bytes[12..].copy_from_slice(&self.drive.to_le_bytes());
        (crc32c::crc32c(&bytes) % 255) as u8 + 1
    }
}

impl Pointer {
    /// The word: generation, checksum, region.
    ///
    /// # Panics
    /// Where the region is not one of the first [`MOST_REGIONS`].
    pub fn encode(self, owner: PointerOwner) -> u64 {
        assert!(self.region < MOST_REGIONS, "a drive has no more regions");
        let payload = u64::from(self.generation) << 32 | u64::from(self.region);
        payload | u64::from(owner.seed() ^ crc8(payload)) << 24
    }

    /// Reads a word of the log.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    pub fn decode(word: u64, owner: PointerOwner) -> Result<Self, FormatError> {
        let pointer = Self {
            generation: (word >> 32) as u32,
            region: word as u32 % MOST_REGIONS,
        };
        match pointer.encode(owner) == word {
            true => Ok(pointer),
            false => Err(FormatError::Checksum),
        }
    }
}

/// CRC-8 with the polynomial x^8 + x^2 + x + 1: finds out up to three flipped bits of a word.
pub(crate) fn crc8(word: u64) -> u8 {
    word.to_be_bytes().iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| match sum & 0x80 {
            0 => sum << 1,
            _ => sum << 1 ^ 7,
        })
    })
}

/// Whose entries a part of a log has: a word of its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartOwner {
    /// The flush that will write the entries; 0 where the part has never been used.
    pub generation: u32,
    /// The partition that they belong to.
    pub partition: u32,
}

impl PartOwner {
    /// No pointer is that of a slicetable of so high a number.
    fn seed(instance: u64, part: u32) -> PointerOwner {
        PointerOwner {
            instance,
            partition: part,
            drive: u32::MAX,
        }
    }

    /// The word of the head of a part: generation, checksum, partition, as a [`Pointer`] has them.
    ///
    /// # Panics
    /// Where the partition is not one of the first [`MOST_REGIONS`].
    pub fn encode(self, instance: u64, part: u32) -> u64 {
        let word = Pointer {
            generation: self.generation,
            region: self.partition,
        };
        word.encode(Self::seed(instance, part))
    }

    /// Reads a word of the head of a part.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    pub fn decode(word: u64, instance: u64, part: u32) -> Result<Self, FormatError> {
        let found = Pointer::decode(word, Self::seed(instance, part))?;
        Ok(Self {
            generation: found.generation,
            partition: found.region,
        })
    }
}

/// The word of the head of a half of a similarity index's log that says which segment of a generation has begun there.
pub fn half_mark(instance: u64, segment: u32, generation: u32) -> u64 {
    let none = LogCount::none(instance, segment, generation);
    u64::from(generation) << 32 | u64::from(none.checksum)
}

/// How many entries a part of the log has, and the checksum of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCount {
    /// How many entries the part of a log has.
    pub entries: u32,
    /// The checksum of the words of all of them, in order.
    pub checksum: u32,
}

impl LogCount {
    /// Of a part without entries. The checksum depends on whose it is, and of which generation.
    pub fn none(instance: u64, partition: u32, generation: u32) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&instance.to_le_bytes());
        bytes[8..12].copy_from_slice(&partition.to_le_bytes());
        bytes[12..].copy_from_slice(&generation.to_le_bytes());
        Self {
            entries: 0,
            checksum: crc32c::crc32c(&bytes),
        }
    }

    /// With one entry more.
    #[must_use]
    pub fn and(self, words: &[u64]) -> Self {
        let append = |sum, word: &u64| crc32c::crc32c_append(sum, &word.to_le_bytes());
        Self {
            entries: self.entries + 1,
            checksum: words.iter().fold(self.checksum, append),
        }
    }

    /// The word of the log that says it.
    pub fn encode(self) -> u64 {
        u64::from(self.entries) << 32 | u64::from(self.checksum)
    }

    /// Reads a word of the log.
    pub fn decode(word: u64) -> Self {
        Self {
            entries: (word >> 32) as u32,
            checksum: word as u32,
        }
    }
}

/// The word of the log that says what a half of a Bloom filter's holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterHead {
    /// The flush that will write it.
    pub generation: u32,
    /// Keys that have gone in.
    pub keys: u32,
}

impl FilterHead {
    /// The word of the log that says it.
    pub fn encode(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.keys)
    }

    /// Reads a word of the log.
    pub fn decode(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            keys: word as u32,
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
    fn heads_and_words_are_these_bytes() {
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
        let owner = PointerOwner {
            instance: identity.instance,
            partition: identity.partition,
            drive: 3,
        };
        let pointer = Pointer {
            generation: 0xfeed_beef,
            region: 0x00ab_cdef,
        };
        assert_eq!(pointer.encode(owner), 0xfeed_beef_73ab_cdef);
        let part = PartOwner {
            generation: 0xfeed_beef,
            partition: 0x00ab_cdef,
        };
        assert_eq!(part.encode(identity.instance, 5), 0xfeed_beef_9fab_cdef);
        let count = LogCount::none(identity.instance, 2, 3).and(&[4, 5, 0]);
        assert_eq!(count.encode(), 0x0000_0001_8d1c_d03d);
        assert_eq!(half_mark(identity.instance, 2, 3), 0x3_1829_7a59);
    }

    #[test]
    fn a_page_of_a_log_is_these_bytes() {
        let mut page = [1; 4096];
        LogPage::encode(&mut page, 0x0102, (3, 5), [7, 8].into_iter());
        let head: [u64; 6] = std::array::from_fn(|word| {
            u64::from_le_bytes(page[8 * word..][..8].try_into().expect("8 bytes"))
        });
        assert_eq!(&page[..8], b"flowSLPG");
        assert_eq!(head[1] >> 32, 3);
        assert_eq!(head[2..], [0x0102, 5, 7, 8]);
        assert!(page[48..].iter().all(|&byte| byte == 0));
        let found = LogPage::decode(&page, 0x0102, 3).expect("it is one");
        assert_eq!(found.words[1].get(), 8);
        assert!(LogPage::decode(&page, 0x0103, 3).is_none());
        assert!(LogPage::decode(&page, 0x0102, 4).is_none());
        for byte in [0, 8, 12, 16, 24, 32, 4095] {
            let mut damaged = page;
            damaged[byte] ^= 1;
            assert!(
                LogPage::decode(&damaged, 0x0102, 3).is_none(),
                "byte {byte}"
            );
        }
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
    fn words_are_read_as_they_were_written() {
        let pointer = Pointer {
            generation: 0xfeed_beef,
            region: 0x00ab_cdef,
        };
        let owner = PointerOwner {
            instance: 1,
            partition: 2,
            drive: 3,
        };
        let word = pointer.encode(owner);
        assert_eq!(Pointer::decode(word, owner), Ok(pointer));
        let other = PointerOwner { drive: 4, ..owner };
        assert!(Pointer::decode(word, other).is_err());
        assert!(Pointer::decode(0, owner).is_err());
        for bit in 0..64 {
            for second in 0..64 {
                let flipped = word ^ (1 << bit) ^ (1 << second);
                assert_eq!(Pointer::decode(flipped, owner).is_ok(), bit == second);
            }
            assert!(Pointer::decode(word ^ (1 << bit), owner).is_err());
        }
        let head = FilterHead {
            generation: 0xfeed_beef,
            keys: 0x00ab_cdef,
        };
        assert_eq!(FilterHead::decode(head.encode()), head);
        assert_eq!(head.encode(), 0xfeed_beef_00ab_cdef);
        let part = PartOwner {
            generation: 0xfeed_beef,
            partition: 0x00ab_cdef,
        };
        assert_eq!(PartOwner::decode(part.encode(1, 2), 1, 2), Ok(part));
        assert!(PartOwner::decode(part.encode(1, 2), 1, 3).is_err());
        assert!(PartOwner::decode(part.encode(1, 2) ^ 1 << 33, 1, 2).is_err());
        assert!(PartOwner::decode(0, 1, 2).is_err());
        let count = LogCount::none(1, 2, 3).and(&[4, 5]);
        assert_eq!(LogCount::decode(count.encode()), count);
        assert_ne!(count, LogCount::none(1, 2, 4).and(&[4, 5]));
        assert_ne!(count, LogCount::none(1, 2, 3).and(&[4, 6]));
    }
}
