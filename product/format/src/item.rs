//! Items: the same body in the DRAM tier and on flash.
//!
//! ```text
//!  flash only │ body
//!  crc32c u32 │ version u64 │ value_bytes u32 │ client_flags u32 │ expiry u32 │ last_access u32
//!             │ key_bytes u8 │ state u8 │ reads u8 │ updates u8 │ cas u64, if HAS_CAS │ key │ value
//! ```
//!
//! The checksum covers the body. Its seed is the segment's sequence number and the item's offset, so that an item
//! that is read from the wrong place, or from an earlier generation of its segment, does not verify.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;

/// Bytes of an item's fixed header.
pub const HEADER_BYTES: usize = 28;
/// Bytes of the checksum in front of an item on flash.
pub const CHECKSUM_BYTES: usize = 4;
/// Bytes of the optional CAS unique.
pub const CAS_BYTES: usize = 8;
/// Longest key, in bytes, as in memcached.
pub const MAX_KEY_BYTES: usize = 250;

/// Bits of [`ItemHeader::state`].
pub mod state {
    /// Read at least once since it was written.
    pub const FETCHED: u8 = 1;
    /// Marked stale (meta protocol).
    pub const STALE: u8 = 2;
    /// A client has been told to recache it (meta protocol).
    pub const WON: u8 = 4;
    /// A CAS unique other than the version follows the header.
    pub const HAS_CAS: u8 = 8;
    /// The key came base64-encoded and may hold any bytes.
    pub const BINARY_KEY: u8 = 16;
    /// In memory only: there is no flash copy of this version.
    pub const DIRTY: u8 = 32;
    /// In memory only: read since the CLOCK hand last passed; the higher bit of the CLOCK value.
    pub const REFERENCED: u8 = 64;
    /// In memory only: overwritten or removed; its space is free once the log passes it.
    pub const DEAD: u8 = 128;
    /// The bits that are written to flash.
    pub const ON_FLASH: u8 = FETCHED | STALE | WON | HAS_CAS | BINARY_KEY;
}

/// The lower bit of the CLOCK value, in [`ItemHeader::reads`] of an item in memory. [`state::REFERENCED`] is the higher bit.
const CLOCK_LOW: u8 = 128;
/// Bit of [`ItemHeader::reads`] set for an item in memory that has outdated a copy of its key on flash.
const OUTDATES: u8 = 64;
/// Bit of [`ItemHeader::reads`] set for an item in memory that waits until the items near it in the order of hashes are placed.
const COLLECTED: u8 = 32;
/// The most reads that [`ItemHeader::reads`] counts.
pub const MOST_READS: u8 = 31;
/// The highest CLOCK value.
pub const CLOCK_HIGHEST: u8 = 3;
/// Bit of [`ItemHeader::updates`] set for an item in memory whose value lies outside the item.
pub const BESIDE: u8 = 128;
/// The most updates that [`ItemHeader::updates`] counts, in its low bits; the count of earlier reads is above them.
pub const MOST_UPDATES: u8 = 15;
/// The most reads from before the item came into memory that [`ItemHeader::updates`] counts.
pub const MOST_READS_BEFORE: u8 = 7;
const BEFORE_SHIFT: u32 = MOST_UPDATES.count_ones();

/// The fixed part of an item.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ItemHeader {
    /// Monotone within its partition; the CAS unique unless `HAS_CAS` is set.
    pub version: U64,
    /// Bytes of the value.
    pub value_bytes: U32,
    /// The client's own flags.
    pub client_flags: U32,
    /// Unix second from which on the item is gone; 0 for never.
    pub expiry: U32,
    /// Unix second of the last access.
    pub last_access: U32,
    /// Bytes of the key, 1 to 250.
    pub key_bytes: u8,
    /// Bits of [`state`].
    pub state: u8,
    /// In memory: reads since the item was first stored, a bit of the CLOCK value, whether the item has outdated a copy on
    /// flash, and whether it is collected. Zero on flash.
    pub reads: u8,
    /// In memory: [`BESIDE`], reads of the key before the item came into memory, and updates since. Zero on flash.
    pub updates: u8,
}

const _: () = assert!(size_of::<ItemHeader>() == HEADER_BYTES);

impl ItemHeader {
    /// Returns the bytes of the body: header, CAS unique, key and value.
    pub fn body_bytes(&self) -> usize {
        HEADER_BYTES
            + self.cas_bytes()
            + usize::from(self.key_bytes)
            + self.value_bytes.get() as usize
    }

    /// Returns the bytes of the CAS unique that follows the header.
    pub fn cas_bytes(&self) -> usize {
        usize::from(self.has(state::HAS_CAS)) * CAS_BYTES
    }

    /// Returns whether any of `bits` is set.
    pub fn has(&self, bits: u8) -> bool {
        self.state & bits != 0
    }

    /// Returns whether the item is in memory with its value outside the item.
    pub fn is_beside(&self) -> bool {
        self.updates & BESIDE != 0
    }

    /// Returns the reads of an item in memory since it was first stored, up to [`MOST_READS`].
    pub fn reads(&self) -> u8 {
        self.reads & MOST_READS
    }

    /// Sets the reads of an item in memory since it was first stored.
    pub fn set_reads(&mut self, reads: u8) {
        self.reads = self.reads & !MOST_READS | reads.min(MOST_READS);
    }

    /// Returns the CLOCK value of an item in memory, 0 to [`CLOCK_HIGHEST`].
    pub fn clock(&self) -> u8 {
        u8::from(self.has(state::REFERENCED)) << 1 | u8::from(self.reads & CLOCK_LOW != 0)
    }

    /// Sets the CLOCK value of an item in memory.
    pub fn set_clock(&mut self, clock: u8) {
        debug_assert!(clock <= CLOCK_HIGHEST, "two bits");
        self.state = self.state & !state::REFERENCED | ((clock >> 1) * state::REFERENCED);
        self.reads = self.reads & !CLOCK_LOW | ((clock & 1) * CLOCK_LOW);
    }

    /// Returns the updates of an item in memory since it was first stored, up to [`MOST_UPDATES`].
    pub fn updates(&self) -> u8 {
        self.updates & MOST_UPDATES
    }

    /// Returns the known reads of the key from before the item came into memory, up to [`MOST_READS_BEFORE`].
    pub fn reads_before(&self) -> u8 {
        self.updates >> BEFORE_SHIFT & MOST_READS_BEFORE
    }

    /// Returns whether an item in memory has outdated a copy of its key on flash.
    pub fn outdates(&self) -> bool {
        self.reads & OUTDATES != 0
    }

    /// Notes that an item in memory has outdated a copy of its key on flash.
    pub fn note_outdated(&mut self) {
        self.reads |= OUTDATES;
    }

    /// Returns whether an item in memory waits until the items near it in the order of hashes are placed.
    pub fn is_collected(&self) -> bool {
        self.reads & COLLECTED != 0
    }

    /// Sets whether an item in memory waits until the items near it in the order of hashes are placed.
    pub fn set_collected(&mut self, yes: bool) {
        self.reads = self.reads & !COLLECTED | (u8::from(yes) * COLLECTED);
    }

    /// Counts a read of an item in memory.
    pub fn count_read(&mut self) {
        self.set_reads(self.reads() + 1);
    }

    /// Takes over the counts of `old`, the item in memory that this one replaces, and counts an update.
    pub fn count_update_of(&mut self, old: &Self) {
        self.set_reads(old.reads());
        self.reads |= old.reads & OUTDATES;
        self.count_on(old.reads_before(), old.updates() + 1);
    }

    /// Sets the reads of the key from before the item came into memory, and its updates.
    pub fn count_on(&mut self, reads_before: u8, updates: u8) {
        let before = reads_before.min(MOST_READS_BEFORE) << BEFORE_SHIFT;
        self.updates = self.updates & BESIDE | before | updates.min(MOST_UPDATES);
    }

    /// Returns whether the item is past its expiry at Unix second `now`.
    pub fn is_expired(&self, now: u32) -> bool {
        is_expired(self.expiry.get(), now)
    }
}

/// Returns whether `expiry` (0 for never) has come at Unix second `now`.
pub fn is_expired(expiry: u32, now: u32) -> bool {
    expiry != 0 && expiry <= now
}

/// A read-only view of an item in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct ItemRef<'a> {
    /// The fixed part.
    pub header: &'a ItemHeader,
    /// The CAS unique that clients see.
    pub cas_unique: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> ItemRef<'a> {
    /// Parses the item whose body is at the start of `bytes`; `None` when it does not fit.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = ItemHeader::ref_from_prefix(bytes).ok()?;
        let (cas_unique, rest) = if header.has(state::HAS_CAS) {
            let (cas, rest) = U64::read_from_prefix(rest).ok()?;
            (cas.get(), rest)
        } else {
            (header.version.get(), rest)
        };
        let (key, rest) = rest.split_at_checked(usize::from(header.key_bytes))?;
        let value = rest.get(..header.value_bytes.get() as usize)?;
        Some(Self {
            header,
            cas_unique,
            key,
            value,
        })
    }

    /// Returns the bytes of the item on flash, before alignment.
    pub fn flash_bytes(&self) -> usize {
        CHECKSUM_BYTES + self.header.body_bytes()
    }

    /// Encodes the item for flash, at the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`ItemRef::flash_bytes`].
    pub fn encode(&self, out: &mut [u8], sequence: u64, offset: u32) {
        let out = &mut out[..self.flash_bytes()];
        let (checksum, body) = out.split_at_mut(CHECKSUM_BYTES);
        let mut header = *self.header;
        header.state &= state::ON_FLASH;
        (header.reads, header.updates) = (0, 0);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            body[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(header.as_bytes());
        if header.has(state::HAS_CAS) {
            put(&self.cas_unique.to_le_bytes());
        }
        put(self.key);
        put(self.value);
        checksum.copy_from_slice(&item_checksum(body, sequence, offset).to_le_bytes());
    }

    /// Reads and verifies the item on flash at the start of `bytes`, which were read from `offset` of the segment with
    /// sequence number `sequence`.
    ///
    /// # Errors
    /// [`FormatError::Range`] when lengths do not fit, [`FormatError::Checksum`] when the bytes do not match their checksum.
    pub fn decode(bytes: &'a [u8], sequence: u64, offset: u32) -> Result<Self, FormatError> {
        let (checksum, body) = U32::read_from_prefix(bytes).map_err(|_| FormatError::Range)?;
        let item = Self::parse(body).ok_or(FormatError::Range)?;
        if item.key.is_empty() || item.key.len() > MAX_KEY_BYTES {
            return Err(FormatError::Range);
        }
        let body = &body[..item.header.body_bytes()];
        if item_checksum(body, sequence, offset) != checksum.get() {
            return Err(FormatError::Checksum);
        }
        Ok(item)
    }
}

/// Fills the rest of a page, from `offset` of the segment on, in which the next item does not fit: the checksum of no bytes at
/// this place, and zeros. A page end that is read elsewhere, or in place of an item, does not verify.
pub fn end_page(rest: &mut [u8], sequence: u64, offset: u32) {
    rest.fill(0);
    if let Some(checksum) = rest.first_chunk_mut() {
        *checksum = item_checksum(&[], sequence, offset).to_le_bytes();
    }
}

/// Returns whether the `rest` of a page, from `offset` of the segment on, is the [end](end_page) of the page.
pub fn is_page_end(rest: &[u8], sequence: u64, offset: u32) -> bool {
    let end = item_checksum(&[], sequence, offset).to_le_bytes();
    let key_bytes = rest.get(CHECKSUM_BYTES + KEY_BYTES_AT);
    rest.starts_with(&end) && key_bytes.is_none_or(|&bytes| bytes == 0)
}

/// Offset of the key's length in the header.
const KEY_BYTES_AT: usize = std::mem::offset_of!(ItemHeader, key_bytes);

fn item_checksum(body: &[u8], sequence: u64, offset: u32) -> u32 {
    let mut place = [0; 12];
    place[..8].copy_from_slice(&sequence.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    fn header(value: &[u8], bits: u8) -> ItemHeader {
        ItemHeader {
            version: U64::new(77),
            value_bytes: U32::new(value.len() as u32),
            client_flags: U32::new(0xdead_beef),
            expiry: U32::new(0),
            last_access: U32::new(5),
            key_bytes: KEY.len() as u8,
            state: bits,
            reads: 0,
            updates: 0,
        }
    }

    #[test]
    fn an_item_verifies_only_where_it_was_written() {
        let bits = state::HAS_CAS | state::DIRTY | state::REFERENCED;
        let item = ItemRef {
            header: &header(b"value", bits),
            cas_unique: 9,
            key: KEY,
            value: b"value",
        };
        let mut bytes = vec![0; 64];
        item.encode(&mut bytes, 5, 128);
        let read = ItemRef::decode(&bytes, 5, 128).unwrap();
        assert_eq!((read.key, read.value), (KEY, &b"value"[..]));
        assert_eq!(read.cas_unique, 9);
        let kept = read.header.state;
        assert_eq!(kept, state::HAS_CAS, "in-memory bits stay in memory");
        for (sequence, offset) in [(6, 128), (5, 144)] {
            let elsewhere = ItemRef::decode(&bytes, sequence, offset);
            assert_eq!(elsewhere.err(), Some(FormatError::Checksum));
        }
        for flipped in 0..item.flash_bytes() {
            let mut torn = bytes.clone();
            torn[flipped] ^= 1;
            assert!(ItemRef::decode(&torn, 5, 128).is_err(), "byte {flipped}");
        }
    }

    #[test]
    fn a_length_beyond_the_buffer_is_refused() {
        let item = ItemRef {
            header: &header(&[1; 100], 0),
            cas_unique: 77,
            key: KEY,
            value: &[1; 100],
        };
        let mut bytes = vec![0; item.flash_bytes()];
        item.encode(&mut bytes, 1, 0);
        for len in 0..bytes.len() {
            assert!(ItemRef::decode(&bytes[..len], 1, 0).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn expiry_is_absolute_and_zero_is_never() {
        assert!(!is_expired(0, u32::MAX));
        assert!(!is_expired(11, 10));
        assert!(is_expired(10, 10));
    }
}
