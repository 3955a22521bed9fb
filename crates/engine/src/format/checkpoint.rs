//! Checkpoints: what has died in every living segment, and the counters. A stream of bytes in
//! checkpoint segments.
//!
//! ```text
//!  "flowCKPT" │ clock u32 │ flush deadline u32, 0 for none │ partitions u32
//!  per partition: flush cutoff u64
//!  next segment sequence number u64
//!  retired segments u32, each: number u32
//!  living segments u32, each, in rising number:
//!     number u32 │ sequence number u64 │ bytes of dead u32 │ bytes of recent u32 │ dead │ recent
//! ```
//!
//! `dead` and `recent` are lists of positions in rising order: varints (LEB128) of the differences,
//! the first from 0. `recent` are the items read since they were written.

use super::FormatError;

/// Opens the stream.
pub const MAGIC: u64 = u64::from_le_bytes(*b"flowCKPT");

/// Appends to a stream.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes appended.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, taken out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Appends packed positions one by one.
#[derive(Debug, Default)]
pub struct Packer {
    bytes: Vec<u8>,
    before: u32,
}

impl Packer {
    /// Appends a position, above all before it.
    pub fn push(&mut self, position: u32) {
        let mut rest = position - self.before;
        self.before = position;
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// What has been appended.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts anew.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.before = 0;
    }
}

/// The positions that a [`Packer`] has packed, rising. Ends after an error.
#[derive(Clone, Debug)]
pub struct Positions<'a> {
    rest: std::slice::Iter<'a, u8>,
    before: Option<u32>,
}

impl<'a> Positions<'a> {
    /// The positions in `bytes`.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes.iter(),
            before: None,
        }
    }

    /// [`FormatError::Range`] for what no [`Packer`] has made; `None` at the end.
    fn read(&mut self) -> Result<Option<u32>, FormatError> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let Some(&byte) = self.rest.next() else {
                return if shift == 0 {
                    Ok(None)
                } else {
                    Err(FormatError::Range)
                };
            };
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(FormatError::Range);
            }
        }
        if self.before.is_some() && value == 0 {
            return Err(FormatError::Range);
        }
        let position = u64::from(self.before.unwrap_or(0)) + value;
        let position = u32::try_from(position).map_err(|_| FormatError::Range)?;
        self.before = Some(position);
        Ok(Some(position))
    }
}

impl Iterator for Positions<'_> {
    type Item = Result<u32, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            self.rest = [].iter();
        }
        read.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(positions: &[u32]) -> Vec<u8> {
        let mut packer = Packer::default();
        positions.iter().for_each(|&position| packer.push(position));
        packer.bytes().to_vec()
    }

    proptest! {
        #[test]
        fn positions_come_back(positions in proptest::collection::btree_set(any::<u32>(), 0..200)) {
            let positions: Vec<u32> = positions.into_iter().collect();
            let packed = pack(&positions);
            let unpacked: Result<Vec<u32>, _> = Positions::of(&packed).collect();
            prop_assert_eq!(unpacked, Ok(positions));
        }

        #[test]
        fn any_bytes_unpack_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let positions: Vec<_> = Positions::of(&bytes).collect();
            prop_assert!(positions.iter().rev().skip(1).all(Result::is_ok));
            let positions: Vec<u32> = positions.into_iter().flatten().collect();
            prop_assert!(positions.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn neighbours_take_a_byte_each() {
        let positions: Vec<u32> = (0..1000).map(|n| n * 21).collect();
        assert_eq!(pack(&positions).len(), 1000);
    }
}
