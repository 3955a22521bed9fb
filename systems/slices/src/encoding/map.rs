//! Maps on slicetables: records of keys and values in a log of their own, and the word of a hash table that addresses one.
//!
//! A record is valid if its checksum, which also covers the instance, matches, and if it names the position at which it was
//! read. A record left over from an earlier round of the log is therefore rejected.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::log::crc8;
use format::FormatError;

/// Records begin at multiples of this many bytes.
pub const RECORD_ALIGN_BYTES: usize = 16;
/// Bytes in front of the key of a record.
pub const RECORD_HEAD_BYTES: usize = size_of::<RecordHead>();
/// Most bytes of a record: the limit of a [`RecordAddress`].
pub const MOST_RECORD_BYTES: usize = RECORD_ALIGN_BYTES * LENGTH_MASK as usize;
/// Most bytes of a key.
pub const MOST_KEY_BYTES: usize = u16::MAX as usize;

const LENGTH_BITS: u32 = 16;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const POSITION_BITS: u32 = 64 - LENGTH_BITS;
/// Value length of a record whose key has been deleted.
const DELETED: u32 = u32::MAX;

/// First bytes of a record.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RecordHead {
    checksum: U32,
    value_bytes: U32,
    position: U64,
    epoch: U32,
    key_bytes: U16,
    reserved: U16,
}

const _: () = assert!(size_of::<RecordHead>() == 24);

/// A record: a key that has been set or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of the start of the map that wrote the record.
    pub epoch: u32,
    /// The whole key.
    pub key: &'a [u8],
    /// Value of the key; `None` if it has been deleted.
    pub value: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Returns the bytes of a record with a key and a value of these lengths.
    pub fn bytes_of(key_bytes: usize, value_bytes: usize) -> usize {
        let bytes = RECORD_HEAD_BYTES + key_bytes + value_bytes;
        bytes.next_multiple_of(RECORD_ALIGN_BYTES)
    }

    /// Returns the bytes of this record.
    pub fn len(&self) -> usize {
        Self::bytes_of(self.key.len(), self.value.map_or(0, <[u8]>::len))
    }

    /// Returns whether the record has neither key nor value.
    pub fn is_empty(&self) -> bool {
        self.key.is_empty() && self.value.is_none_or(<[u8]>::is_empty)
    }

    /// Encodes the record for `position` of the log; fills all of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is not as long as the record, or the key is longer than [`MOST_KEY_BYTES`].
    pub fn encode(&self, instance: u64, position: u64, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.len(), "a record takes its bytes");
        let value = self.value.unwrap_or_default();
        let mut head = RecordHead {
            checksum: U32::new(0),
            value_bytes: U32::new(self.value.map_or(DELETED, |value| value.len() as u32)),
            position: U64::new(position),
            epoch: U32::new(self.epoch),
            key_bytes: U16::new(u16::try_from(self.key.len()).expect("keys are short")),
            reserved: U16::new(0),
        };
        let (to_head, body) = bytes.split_at_mut(RECORD_HEAD_BYTES);
        let (to_key, rest) = body.split_at_mut(self.key.len());
        let (to_value, padding) = rest.split_at_mut(value.len());
        to_key.copy_from_slice(self.key);
        to_value.copy_from_slice(value);
        padding.fill(0);
        head.checksum = U32::new(head.checksum_with(instance, body));
        to_head.copy_from_slice(head.as_bytes());
    }

    /// Decodes the record at the start of `bytes`, if it is the record of this position.
    ///
    /// # Errors
    /// [`FormatError::Checksum`], or [`FormatError::Identity`] if it names another position.
    pub fn decode(instance: u64, position: u64, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (head, rest) = RecordHead::ref_from_prefix(bytes).map_err(|_| FormatError::Range)?;
        // Checked before the checksum, which costs more: a start tries every place at which a record may begin.
        if head.position.get() != position {
            return Err(FormatError::Identity);
        }
        let is_deleted = head.value_bytes.get() == DELETED;
        let value_bytes = if is_deleted {
            0
        } else {
            head.value_bytes.get() as usize
        };
        let key_bytes = usize::from(head.key_bytes.get());
        let body_bytes = Self::bytes_of(key_bytes, value_bytes) - RECORD_HEAD_BYTES;
        let body = rest.get(..body_bytes).ok_or(FormatError::Checksum)?;
        if head.checksum.get() != head.checksum_with(instance, body) {
            return Err(FormatError::Checksum);
        }
        let (key, value) = body[..key_bytes + value_bytes].split_at(key_bytes);
        Ok(Self {
            epoch: head.epoch.get(),
            key,
            value: (!is_deleted).then_some(value),
        })
    }
}

impl RecordHead {
    fn checksum_with(&self, instance: u64, body: &[u8]) -> u32 {
        let unsigned = Self {
            checksum: U32::new(0),
            ..*self
        };
        let seed = crc32c::crc32c(&instance.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(seed, unsigned.as_bytes()), body)
    }
}

/// Address of a record: the value of its key in the hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAddress {
    /// Offset of the record in the log, in bytes.
    pub position: u64,
    /// Bytes of the record.
    pub bytes: usize,
}

impl RecordAddress {
    /// Encodes the address in 8 bytes: position / 16 mod 2^48 in bits 63 to 16, bytes / 16 in bits 15 to 0.
    ///
    /// # Panics
    /// If position or length is not a multiple of [`RECORD_ALIGN_BYTES`], or the record is too long.
    pub fn encode(self) -> u64 {
        let align = RECORD_ALIGN_BYTES as u64;
        let (position, len) = (self.position / align, self.bytes as u64 / align);
        assert!(
            position * align == self.position && len * align == self.bytes as u64,
            "records are aligned"
        );
        assert!(len <= LENGTH_MASK, "records are short");
        position << LENGTH_BITS | len
    }

    /// Decodes an address, given the `end` of the log in bytes; `None` if the record would lie in front of the log's start.
    pub fn decode(word: u64, end: u64) -> Option<Self> {
        let align = RECORD_ALIGN_BYTES as u64;
        let mask = (1 << POSITION_BITS) - 1;
        let behind = (end / align).wrapping_sub(word >> LENGTH_BITS) & mask;
        Some(Self {
            position: (end / align).checked_sub(behind)? * align,
            bytes: (word & LENGTH_MASK) as usize * RECORD_ALIGN_BYTES,
        })
    }
}

/// Encodes a number of less than 56 bits in a word of a log, with a checksum.
pub fn seal_number(number: u64, salt: u8) -> u64 {
    assert!(number >> 56 == 0, "it has less than 56 bits");
    // Never 0, so that a word of zeros is no number.
    let word = number << 8;
    word | u64::from(crc8(word) ^ (salt | 1))
}

/// Decodes a number encoded by [`seal_number`].
///
/// # Errors
/// [`FormatError::Checksum`].
pub fn unseal_number(word: u64, salt: u8) -> Result<u64, FormatError> {
    let number = word >> 8;
    match seal_number(number, salt) == word {
        true => Ok(number),
        false => Err(FormatError::Checksum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record<'_> = Record {
        epoch: 7,
        key: b"key",
        value: Some(b"a value longer than eight bytes"),
    };

    #[test]
    fn a_record_is_read_as_it_was_written_and_only_where_it_lies() {
        for value in [RECORD.value, Some(&b""[..]), None] {
            let record = Record { value, ..RECORD };
            let mut bytes = vec![9; record.len()];
            record.encode(5, 4096, &mut bytes);
            assert_eq!(Record::decode(5, 4096, &bytes), Ok(record));
            assert_eq!(Record::decode(5, 4112, &bytes), Err(FormatError::Identity));
            assert_eq!(Record::decode(6, 4096, &bytes), Err(FormatError::Checksum));
            for byte in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[byte] ^= 1;
                assert!(Record::decode(5, 4096, &damaged).is_err(), "byte {byte}");
            }
            assert!(Record::decode(5, 4096, &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(Record::decode(5, 0, &[0; 64]).is_err());
        assert!(Record::decode(5, 0, &[0xff; 64]).is_err());
    }

    #[test]
    fn records_addresses_and_numbers_are_these_bytes() {
        let record = Record {
            epoch: 0x2122_2324,
            key: b"key",
            value: Some(b"value"),
        };
        let mut bytes = [9; 32];
        record.encode(0x0102_0304_0506_0708, 0x1112_1314_1516_1710, &mut bytes);
        let golden = [
            0xd6, 0xb2, 0x19, 0x9e, 5, 0, 0, 0, 0x10, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0x24, 0x23, 0x22, 0x21, 3, 0, 0, 0, b'k', b'e', b'y', b'v', b'a', b'l', b'u', b'e',
        ];
        assert_eq!(bytes, golden);
        let address = RecordAddress {
            position: 0x000a_bcde_f012_3450,
            bytes: 0x0f_fff0,
        };
        assert_eq!(address.encode(), 0xabcd_ef01_2345_ffff);
        assert_eq!(seal_number(0x00ab_cdef, 0x35), 0xabcd_efdc);
        assert_eq!(seal_number(0, 0x5b), 0x5b);
    }

    #[test]
    fn an_address_is_read_against_the_end_of_the_log() {
        let round = 1 << (POSITION_BITS + 4);
        for position in [0, 4096, round - 16, round, 5 * round + 32] {
            let address = RecordAddress {
                position,
                bytes: MOST_RECORD_BYTES,
            };
            for end in [position, position + 16, position + round - 16] {
                assert_eq!(RecordAddress::decode(address.encode(), end), Some(address));
            }
        }
        let ahead = RecordAddress {
            position: 4096,
            bytes: 64,
        };
        assert_eq!(RecordAddress::decode(ahead.encode(), 4080), None);
    }

    #[test]
    fn numbers_are_read_as_they_were_sealed() {
        for number in [0, 1, 1 << 40, (1 << 56) - 1] {
            let word = seal_number(number, 3);
            assert_eq!(unseal_number(word, 3), Ok(number));
            assert!(unseal_number(word, 5).is_err());
            assert!((0..64).all(|bit| unseal_number(word ^ 1 << bit, 3).is_err()));
        }
        assert!(unseal_number(0, 3).is_err());
    }
}
