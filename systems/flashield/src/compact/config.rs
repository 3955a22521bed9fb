//! Settings of a [`CompactTable`](super::CompactTable), and the errors in them.

use super::entry::FIXED_BITS;
use super::probes::{HASH_BITS_UNUSED, PROBES};

/// Most bits of a segment number.
pub const SEGMENT_BITS_HIGHEST: u32 = u32::BITS - FIXED_BITS;

/// Most hash bits that may have chosen the partition: 32 are left to tell keys apart.
pub const SKIP_BITS_HIGHEST: u32 = 32 - HASH_BITS_UNUSED;

/// Configuration of one partition's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactConfig {
    /// Number of slots, at least [`PROBES`]. The table never grows: a load beyond about 0.85 displaces entries.
    pub slots: usize,
    /// Bits of a segment number, 1 to [`SEGMENT_BITS_HIGHEST`]: all segments of the device are numbered below
    /// `2^segment_bits`.
    pub segment_bits: u32,
    /// Topmost hash bits that all keys of this table share, because the caller chose the partition by them. At most
    /// [`SKIP_BITS_HIGHEST`].
    pub skip_bits: u32,
}

impl CompactConfig {
    /// Returns the bits of a slot.
    pub const fn entry_bits(&self) -> u32 {
        self.segment_bits + FIXED_BITS
    }

    /// Returns the bytes of memory of the table.
    pub const fn memory_bytes(&self) -> u64 {
        (self.words() * size_of::<u64>()) as u64
    }

    /// Returns the bits of a segment number, given the number of segments.
    pub const fn segment_bits_for(segments: u64) -> u32 {
        let highest = segments.saturating_sub(1);
        let bits = u64::BITS - highest.leading_zeros();
        if bits == 0 { 1 } else { bits }
    }

    pub(super) const fn words(&self) -> usize {
        let bits = self.slots * self.entry_bits() as usize;
        bits.div_ceil(u64::BITS as usize)
    }

    pub(super) fn check(&self) -> Result<(), OutOfRange> {
        let Self {
            slots,
            segment_bits,
            skip_bits,
        } = *self;
        // The bits of all slots are counted in a usize.
        if !(PROBES..=usize::MAX / u32::BITS as usize).contains(&slots) {
            return Err(OutOfRange::Slots { slots });
        }
        if !(1..=SEGMENT_BITS_HIGHEST).contains(&segment_bits) {
            return Err(OutOfRange::SegmentBits { segment_bits });
        }
        if skip_bits > SKIP_BITS_HIGHEST {
            return Err(OutOfRange::SkipBits { skip_bits });
        }
        Ok(())
    }
}

/// Error in a [`CompactConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum OutOfRange {
    /// Fewer slots than a key has, or more than can be addressed.
    #[error("slots is {slots}; choose {PROBES} at least, and no more than memory has")]
    Slots { slots: usize },
    /// `segment_bits` out of range.
    #[error("segment_bits is {segment_bits}; choose 1 to {SEGMENT_BITS_HIGHEST}")]
    SegmentBits { segment_bits: u32 },
    /// `skip_bits` out of range.
    #[error("skip_bits is {skip_bits}; choose {SKIP_BITS_HIGHEST} at most")]
    SkipBits { skip_bits: u32 },
}
