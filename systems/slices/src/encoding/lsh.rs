//! Similarity indexes on slicetables: pages, vectors, and the words of the superblock that only they have.
//!
//! The checksum of a vector also covers the instance and the id. A vector left over from an earlier use of its place
//! therefore does not verify.

use std::ops::Range;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::table::SLICE_PAGE_HEAD_BYTES;
use format::FormatError;

/// Bytes of an entry: a tag of 4 bytes, then a vector's number within its generation, 4 bytes.
pub const LSH_ENTRY_BYTES: usize = 8;
/// Bytes in front of the components of a vector.
pub const VECTOR_HEAD_BYTES: usize = size_of::<VectorHead>();
/// Most entries of a bucket: their count is a byte.
const MOST_BUCKET_ENTRIES: usize = 255;

/// Division of a page of a similarity index. The page holds the slice of one slot.
///
/// Behind the head: a byte for each incarnation that counts its entries, then the buckets of the incarnations, then their
/// filters of overflowed entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LshPage {
    /// Bytes of the page.
    pub page_bytes: usize,
    /// Incarnations, each of which has a bucket.
    pub incarnations: usize,
    /// Entries of a bucket.
    pub bucket_entries: usize,
    /// Bytes of the filter of an incarnation.
    pub filter_bytes: usize,
}

impl LshPage {
    /// Divides a page into the largest buckets that leave at least four filter bits for each entry; `None` if none do.
    pub fn of(page_bytes: usize, incarnations: usize) -> Option<Self> {
        let bytes = page_bytes.checked_sub(SLICE_PAGE_HEAD_BYTES + incarnations)?;
        let each = bytes.checked_div(incarnations)?;
        let filter_of = |entries: usize| each.checked_sub(entries * LSH_ENTRY_BYTES);
        let bucket_entries = (1..=MOST_BUCKET_ENTRIES).rev().find(|&entries| {
            filter_of(entries).is_some_and(|bytes| bytes >= entries.div_ceil(2))
        })?;
        Some(Self {
            page_bytes,
            incarnations,
            bucket_entries,
            filter_bytes: filter_of(bucket_entries)?,
        })
    }

    /// Returns the offset of the count of an incarnation's entries.
    pub fn count(&self, incarnation: usize) -> usize {
        SLICE_PAGE_HEAD_BYTES + incarnation
    }

    /// Returns the bytes of the bucket of an incarnation.
    pub fn bucket(&self, incarnation: usize) -> Range<usize> {
        let bytes = self.bucket_entries * LSH_ENTRY_BYTES;
        let start = self.count(self.incarnations) + incarnation * bytes;
        start..start + bytes
    }

    /// Returns the bytes of the filter of an incarnation.
    pub fn filter(&self, incarnation: usize) -> Range<usize> {
        let start = self.bucket(self.incarnations).start + incarnation * self.filter_bytes;
        start..start + self.filter_bytes
    }
}

/// First bytes of a vector on a drive.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct VectorHead {
    checksum: U32,
    id: U64,
}

const _: () = assert!(size_of::<VectorHead>() == 12);

fn vector_checksum(instance: u64, id: u64, components: &[u8]) -> u32 {
    let seed = crc32c::crc32c(&instance.to_le_bytes());
    let seed = crc32c::crc32c_append(seed, &id.to_le_bytes());
    crc32c::crc32c_append(seed, components)
}

/// Writes the head of the vector `record`, whose components are complete.
pub fn seal_vector(instance: u64, id: u64, record: &mut [u8]) {
    let (head, components) = record.split_at_mut(VECTOR_HEAD_BYTES);
    let sealed = VectorHead {
        checksum: U32::new(vector_checksum(instance, id, components)),
        id: U64::new(id),
    };
    head.copy_from_slice(sealed.as_bytes());
}

/// Returns the components of the vector `record`, if it is vector `id`.
///
/// # Errors
/// [`FormatError::Checksum`], or [`FormatError::Identity`] if it is another vector.
pub fn verify_vector(instance: u64, id: u64, record: &[u8]) -> Result<&[u8], FormatError> {
    let (head, components) = VectorHead::ref_from_prefix(record).map_err(|_| FormatError::Range)?;
    if head.checksum.get() != vector_checksum(instance, head.id.get(), components) {
        return Err(FormatError::Checksum);
    }
    match head.id.get() == id {
        true => Ok(components),
        false => Err(FormatError::Identity),
    }
}

/// Settings in the superblock that only a similarity index has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LshOwn {
    /// Components of a vector.
    pub dimensions: u32,
    /// LSH tables of the index.
    pub tables: u16,
    /// Functions of each LSH table.
    pub functions: u16,
    /// 1 for cosine, 2 for Euclidean distance.
    pub family: u8,
    /// 1 if components are bytes, 4 if they are floats.
    pub component_bytes: u8,
    /// Parts of each table in a slicetable.
    pub sub_tables: u16,
    /// Width of the buckets of Euclidean distance, as the bits of a float.
    pub width_bits: u32,
    /// Most vectors of a generation.
    pub batch: u32,
    /// Slots of a sub-table.
    pub slots: u32,
    /// Bytes of a segment of vectors.
    pub segment_bytes: u32,
}

impl LshOwn {
    /// Encodes the four words of the superblock that belong to the kind.
    pub fn encode(&self) -> [U64; 4] {
        let first = u64::from(self.dimensions)
            | u64::from(self.tables) << 32
            | u64::from(self.functions) << 48;
        let second = u64::from(self.family)
            | u64::from(self.component_bytes) << 8
            | u64::from(self.sub_tables) << 16
            | u64::from(self.width_bits) << 32;
        let third = u64::from(self.batch) | u64::from(self.slots) << 32;
        [first, second, third, u64::from(self.segment_bytes)].map(U64::new)
    }

    /// Decodes the four words of the superblock that belong to the kind.
    pub fn decode(words: [U64; 4]) -> Self {
        let [first, second, third, fourth] = words.map(U64::get);
        Self {
            dimensions: first as u32,
            tables: (first >> 32) as u16,
            functions: (first >> 48) as u16,
            family: second as u8,
            component_bytes: (second >> 8) as u8,
            sub_tables: (second >> 16) as u16,
            width_bits: (second >> 32) as u32,
            batch: third as u32,
            slots: (third >> 32) as u32,
            segment_bytes: fourth as u32,
        }
    }
}

/// Number of vectors of a generation that are on the drives: a word of the log for each place of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredVectors {
    /// The generation at this place of the ring.
    pub generation: u32,
    /// Number of its first vectors that are on the drives.
    pub count: u32,
}

impl StoredVectors {
    /// Returns the word of the log.
    pub fn encode(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.count)
    }

    /// Decodes a word of the log.
    pub fn decode(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            count: word as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_page_lie_side_by_side() {
        let page = LshPage::of(4096, 32).expect("they fit");
        assert_eq!((page.bucket_entries, page.filter_bytes), (14, 14));
        assert_eq!(page.count(0), 24);
        assert_eq!(page.bucket(0), 56..168);
        assert_eq!(page.filter(0).start, page.bucket(31).end);
        assert!(page.filter(31).end <= 4096 && page.filter(31).end + 32 > 4096);
        let few = LshPage::of(4096, 1).expect("they fit");
        assert_eq!(few.bucket_entries, 255);
        assert_eq!(LshPage::of(4096, 500), None);
        assert_eq!(LshPage::of(4096, 5000), None);
        assert_eq!(LshPage::of(4096, 0), None);
    }

    #[test]
    fn a_vector_is_only_the_vector_it_was_sealed_as() {
        let mut record = vec![5; 40];
        seal_vector(9, 77, &mut record);
        assert_eq!(verify_vector(9, 77, &record), Ok(&[5; 28][..]));
        assert_eq!(verify_vector(9, 78, &record), Err(FormatError::Identity));
        assert_eq!(verify_vector(8, 77, &record), Err(FormatError::Checksum));
        for byte in 0..record.len() {
            record[byte] ^= 1;
            assert!(verify_vector(9, 77, &record).is_err(), "byte {byte}");
            record[byte] ^= 1;
        }
        assert_eq!(verify_vector(9, 77, &record[..4]), Err(FormatError::Range));
    }

    #[test]
    fn vectors_on_drives_stay_readable() {
        let mut record = [0; VECTOR_HEAD_BYTES + 3];
        record[VECTOR_HEAD_BYTES..].copy_from_slice(&[7, 8, 9]);
        seal_vector(0x0102_0304_0506_0708, 0x1112_1314, &mut record);
        let golden = [
            223, 142, 20, 158, 0x14, 0x13, 0x12, 0x11, 0, 0, 0, 0, 7, 8, 9,
        ];
        assert_eq!(record, golden);
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        let own = LshOwn {
            dimensions: 0x0102_0304,
            tables: 0x0506,
            functions: 0x0708,
            family: 0x09,
            component_bytes: 0x0a,
            sub_tables: 0x0b0c,
            width_bits: 0x0d0e_0f10,
            batch: 0x1112_1314,
            slots: 0x1516_1718,
            segment_bytes: 0x191a_1b1c,
        };
        assert_eq!(LshOwn::decode(own.encode()), own);
        let words = own.encode().map(U64::get);
        assert_eq!(words[0], 0x0708_0506_0102_0304);
        assert_eq!(words[1], 0x0d0e_0f10_0b0c_0a09);
        assert_eq!(words[2..], [0x1516_1718_1112_1314, 0x191a_1b1c]);
        let stored = StoredVectors {
            generation: 7,
            count: 9,
        };
        assert_eq!(stored.encode(), 7 << 32 | 9);
        assert_eq!(StoredVectors::decode(stored.encode()), stored);
    }
}
