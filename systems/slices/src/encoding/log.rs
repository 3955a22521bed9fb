//! Words of the log of slicetables: pointers to slicetables, and the heads of parts, which name the owner and count the entries.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use format::FormatError;
use format::segment::PAGE_BYTES;

/// First word of a log.
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"flowSLOG");
/// Words in front of the pointers of a log: magic number, format, instance, kind; the rest zero.
pub const LOG_HEAD_WORDS: usize = 8;
/// Words in front of the entries of a part of a log: the latest count, two synced counts of which one is durable
/// ([`LogCount`]), and the owner of the entries ([`PartOwner`]).
pub const PART_HEAD_WORDS: usize = 4;
/// Parts begin at multiples of this many words, so that a head lies within a cache line, whose stores stay in order.
pub const PART_ALIGN_WORDS: usize = 8;
/// Most regions of a drive: the limit of a [`Pointer`].
pub const MOST_REGIONS: u32 = 1 << 24;

/// Words of a page of a log on a disk.
pub const LOG_PAGE_WORDS: usize = (PAGE_BYTES as usize - 32) / 8;

/// A page of a log on a disk. It has two places; the copy with more `writes` counts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LogPage {
    magic: U64,
    checksum: U32,
    page: U32,
    instance: U64,
    /// Number of times that the page has been written.
    pub writes: U64,
    /// Words of the log, then zeros.
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

    /// Writes `page`, in its write number `writes`, to `bytes`.
    pub fn encode(
        bytes: &mut [u8],
        instance: u64,
        page: u32,
        writes: u64,
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

    /// Decodes the page in `bytes`, if it is this page.
    pub fn decode(bytes: &[u8], instance: u64, page: u32) -> Option<&Self> {
        let found = Self::ref_from_bytes(bytes).ok()?;
        let is_it = found.magic.get() == LOG_PAGE_MAGIC
            && found.checksum.get() == Self::checksum_of(bytes)
            && (found.instance.get(), found.page.get()) == (instance, page);
        is_it.then_some(found)
    }
}

/// Location of the slicetable of a partition: a word of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// The flush that wrote this slicetable, counted for each partition; 0 if there is no slicetable.
    pub generation: u32,
    /// The region that the slicetable lies in.
    pub region: u32,
}

/// Owner of a [`Pointer`]. The pointer's checksum depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerOwner {
    /// The structure that the pointer belongs to.
    pub instance: u64,
    /// The partition whose slicetable it points to.
    pub partition: u32,
    /// Number of the slicetable among those of the partition.
    pub drive: u32,
}

impl PointerOwner {
    /// Returns the seed of the checksum, never 0, so that a word of zeros is no pointer.
    fn seed(self) -> u8 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.instance.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.partition.to_le_bytes());
        bytes[12..].copy_from_slice(&self.drive.to_le_bytes());
        (crc32c::crc32c(&bytes) % 255) as u8 + 1
    }
}

impl Pointer {
    /// Encodes generation, checksum and region in a word.
    ///
    /// # Panics
    /// If the region is not one of the first [`MOST_REGIONS`].
    pub fn encode(self, owner: PointerOwner) -> u64 {
        assert!(self.region < MOST_REGIONS, "a drive has no more regions");
        let payload = u64::from(self.generation) << 32 | u64::from(self.region);
        payload | u64::from(owner.seed() ^ crc8(payload)) << 24
    }

    /// Decodes a word of the log.
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

/// Returns the CRC-8 with the polynomial x^8 + x^2 + x + 1, which detects up to three flipped bits of a word.
pub(crate) fn crc8(word: u64) -> u8 {
    word.to_be_bytes().iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| match sum & 0x80 {
            0 => sum << 1,
            _ => sum << 1 ^ 7,
        })
    })
}

/// Owner of the entries in a part of a log: a word of the part's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartOwner {
    /// The flush that will write the entries; 0 if the part has never been used.
    pub generation: u32,
    /// The partition that they belong to.
    pub partition: u32,
}

impl PartOwner {
    /// Returns a seed that no pointer has: no slicetable has so high a number.
    fn seed(instance: u64, part: u32) -> PointerOwner {
        PointerOwner {
            instance,
            partition: part,
            drive: u32::MAX,
        }
    }

    /// Encodes generation, checksum and partition in a word of a part's head, as a [`Pointer`] does.
    ///
    /// # Panics
    /// If the partition is not one of the first [`MOST_REGIONS`].
    pub fn encode(self, instance: u64, part: u32) -> u64 {
        let word = Pointer {
            generation: self.generation,
            region: self.partition,
        };
        word.encode(Self::seed(instance, part))
    }

    /// Decodes a word of a part's head.
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

/// Returns the word that names the segment of a generation that has begun in a half of a similarity index's log.
pub fn half_mark(instance: u64, segment: u32, generation: u32) -> u64 {
    let none = LogCount::none(instance, segment, generation);
    u64::from(generation) << 32 | u64::from(none.checksum)
}

/// Number of entries of a part of a log, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCount {
    /// Number of entries of the part.
    pub entries: u32,
    /// Checksum of the words of all entries, in order.
    pub checksum: u32,
}

impl LogCount {
    /// Returns the count of a part without entries. Its checksum depends on instance, partition and generation.
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

    /// Returns the count with one entry more.
    #[must_use]
    pub fn and(self, words: &[u64]) -> Self {
        let append = |sum, word: &u64| crc32c::crc32c_append(sum, &word.to_le_bytes());
        Self {
            entries: self.entries + 1,
            checksum: words.iter().fold(self.checksum, append),
        }
    }

    /// Returns the word of the log.
    pub fn encode(self) -> u64 {
        u64::from(self.entries) << 32 | u64::from(self.checksum)
    }

    /// Decodes a word of the log.
    pub fn decode(word: u64) -> Self {
        Self {
            entries: (word >> 32) as u32,
            checksum: word as u32,
        }
    }
}

/// Word of the log that describes a half of a Bloom filter's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterHead {
    /// The flush that will write the filter.
    pub generation: u32,
    /// Number of keys added to the filter.
    pub keys: u32,
}

impl FilterHead {
    /// Returns the word of the log.
    pub fn encode(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.keys)
    }

    /// Decodes a word of the log.
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
    fn words_are_these_bytes() {
        let instance = 0x0102_0304_0506_0708;
        let owner = PointerOwner {
            instance,
            partition: 0x1112_1314,
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
        assert_eq!(part.encode(instance, 5), 0xfeed_beef_9fab_cdef);
        let count = LogCount::none(instance, 2, 3).and(&[4, 5, 0]);
        assert_eq!(count.encode(), 0x0000_0001_8d1c_d03d);
        assert_eq!(half_mark(instance, 2, 3), 0x3_1829_7a59);
    }

    #[test]
    fn a_page_of_a_log_is_these_bytes() {
        let mut page = [1; 4096];
        LogPage::encode(&mut page, 0x0102, 3, 5, [7, 8].into_iter());
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
