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

/// Packs positions that rise strictly.
#[must_use]
pub fn pack_positions(positions: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(positions.len() * 3 / 2);
    let mut before = 0;
    for &position in positions {
        let mut rest = position - before;
        before = position;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// Unpacks what [`pack_positions`] made.
///
/// # Errors
/// [`FormatError::Range`] for what it cannot have made.
pub fn unpack_positions(bytes: &[u8]) -> Result<Vec<u32>, FormatError> {
    let mut positions: Vec<u32> = Vec::new();
    let (mut value, mut shift) = (0u64, 0);
    for &byte in bytes {
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 != 0 {
            if shift > 28 {
                return Err(FormatError::Range);
            }
            continue;
        }
        let before = positions.last().copied();
        if before.is_some() && value == 0 {
            return Err(FormatError::Range);
        }
        let position = u64::from(before.unwrap_or(0)) + value;
        positions.push(u32::try_from(position).map_err(|_| FormatError::Range)?);
        (value, shift) = (0, 0);
    }
    if shift != 0 {
        return Err(FormatError::Range);
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_come_back(positions in proptest::collection::btree_set(any::<u32>(), 0..200)) {
            let positions: Vec<u32> = positions.into_iter().collect();
            prop_assert_eq!(unpack_positions(&pack_positions(&positions)), Ok(positions));
        }

        #[test]
        fn any_bytes_unpack_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            if let Ok(positions) = unpack_positions(&bytes) {
                prop_assert!(positions.is_sorted_by(|a, b| a < b));
            }
        }
    }

    #[test]
    fn neighbours_take_a_byte_each() {
        let positions: Vec<u32> = (0..1000).map(|n| n * 21).collect();
        assert_eq!(pack_positions(&positions).len(), 1000);
    }
}
