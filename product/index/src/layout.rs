//! Bit layout: the fields of a hash, and the packing of an entry into 64 bits.
//!
//! ```text
//! hash   | skip | sub-table k | home bits f = log2(min_buckets) + tag bits | unused |
//!                             | <------------ position x ----------------> |
//!                                              | <------- tag -----------> |
//!
//! entry  | (spare) | tag | displacement 3 | rank 1..3 | value + 1 |      0 = empty slot
//! ```
//!
//! The home bucket of position `x` among `B` buckets is `floor(x * B / 2^f)`, which keeps the order of positions for any
//! `B`. All positions of one bucket are successive integers, at most `ceil(2^f / B) <= 2^tag_bits`, since `B >=
//! min_buckets`. So the low `tag_bits` of `x` differ for all positions of a bucket, and bucket plus tag give `x` back
//! (quotienting). The tag does not depend on `B`: a rebuild copies it.
//!
//! Invariant: `value + 1 > 0` in every entry, hence no entry is 0.

/// Buckets in which an entry may lie: its home and the 7 that follow, circularly.
pub(crate) const WINDOW: u32 = 8;
const DISPLACEMENT_BITS: u32 = WINDOW.trailing_zeros();
const _: () = assert!(1 << DISPLACEMENT_BITS == WINDOW);

/// Widest position; keeps `2^f` and sums of positions inside a `u64`.
const HOME_BITS_HIGHEST: u32 = 60;

/// An unpacked entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value inserted, a packed flash location.
    pub value: u64,
    /// Rank that reads have given the entry since it was inserted; 0 if it was not read.
    pub rank: u8,
}

impl Entry {
    /// Whether the entry has been read since it was inserted.
    pub fn is_recent(&self) -> bool {
        self.rank > 0
    }
}

/// Shifts and masks of one configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    value_bits: u32,
    /// Number of lowest bits that value and rank take together.
    low_bits: u32,
    tag_bits: u32,
    skip_bits: u32,
    pub(crate) sub_bits: u32,
    home_bits: u32,
    /// Tag and displacement of an entry: the bits that a search compares.
    pub(crate) key_mask: u64,
}

/// The part of a hash that a sub-table needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Position, shifted to the top of the word, zeros below.
    position_high: u64,
    /// The entry's tag field, displacement 0.
    pub(crate) key: u64,
}

impl Layout {
    /// Creates a layout from checked settings. `hash_bits_left` are the hash bits available to the tag.
    pub(crate) fn new(
        value_bits: u32,
        rank_bits: u32,
        skip_bits: u32,
        sub_bits: u32,
        bucket_bits: u32,
        hash_bits_left: u32,
    ) -> Self {
        let low_bits = value_bits + rank_bits;
        let tag_bits = (u64::BITS - low_bits - DISPLACEMENT_BITS)
            .min(hash_bits_left)
            .min(HOME_BITS_HIGHEST - bucket_bits);
        Layout {
            value_bits,
            low_bits,
            tag_bits,
            skip_bits,
            sub_bits,
            home_bits: bucket_bits + tag_bits,
            key_mask: u64::MAX << low_bits,
        }
    }

    pub(crate) fn sub_tables(&self) -> usize {
        1 << self.sub_bits
    }

    pub(crate) fn fingerprint_bits(&self) -> u32 {
        self.sub_bits + self.home_bits
    }

    pub(crate) fn max_value(&self) -> u64 {
        (1 << self.value_bits) - 2
    }

    /// Splits a hash into the sub-table's number and a probe.
    #[inline]
    pub(crate) fn split(&self, hash: u64) -> (usize, Probe) {
        let ours = hash << self.skip_bits;
        // Two shifts: a shift by 64 (one sub-table) would not be zero.
        let sub_table = (ours >> 1) >> (u64::BITS - 1 - self.sub_bits);
        let position = (ours << self.sub_bits) >> (u64::BITS - self.home_bits);
        (sub_table as usize, self.probe(position))
    }

    #[inline]
    pub(crate) fn probe(&self, position: u64) -> Probe {
        let tag = position & self.tag_mask();
        Probe {
            position_high: position << (u64::BITS - self.home_bits),
            key: tag << self.tag_shift(),
        }
    }

    /// Returns the hash bits of a sub-table and position in their places, zeros elsewhere.
    pub(crate) fn hash_prefix(&self, sub_table: usize, position: u64) -> u64 {
        let fingerprint = ((sub_table as u64) << self.home_bits) | position;
        (fingerprint << (u64::BITS - self.fingerprint_bits())) >> self.skip_bits
    }

    /// Packs an entry with displacement 0 and rank 0.
    #[inline]
    pub(crate) fn pack(&self, probe: Probe, value: u64) -> u64 {
        debug_assert!(value <= self.max_value());
        probe.key | (value + 1)
    }

    #[inline]
    pub(crate) fn unpack(&self, entry: u64) -> Entry {
        let value = (entry & ((1 << self.value_bits) - 1)) - 1;
        Entry {
            value,
            rank: ((entry & self.rank_mask()) >> self.value_bits) as u8,
        }
    }

    /// Mask of the rank in an entry.
    #[inline]
    pub(crate) fn rank_mask(&self) -> u64 {
        !self.key_mask >> self.value_bits << self.value_bits
    }

    /// Returns the entry with another rank, cut to the highest possible.
    #[inline]
    pub(crate) fn with_rank(&self, entry: u64, rank: u8) -> u64 {
        let rank = u64::from(rank.min(self.max_rank()));
        entry & !self.rank_mask() | rank << self.value_bits
    }

    #[inline]
    pub(crate) fn max_rank(&self) -> u8 {
        (self.rank_mask() >> self.value_bits) as u8
    }

    #[inline]
    pub(crate) fn displacement(&self, entry: u64) -> u32 {
        (entry >> self.low_bits) as u32 & (WINDOW - 1)
    }

    /// Returns the amount to add to an entry to move it one bucket further from home.
    #[inline]
    pub(crate) fn one_displacement(&self) -> u64 {
        1 << self.low_bits
    }

    /// Returns the entry with displacement 0.
    #[inline]
    pub(crate) fn without_displacement(&self, entry: u64) -> u64 {
        entry & !(u64::from(WINDOW - 1) << self.low_bits)
    }

    #[inline]
    fn tag_shift(&self) -> u32 {
        self.low_bits + DISPLACEMENT_BITS
    }

    #[inline]
    fn tag_mask(&self) -> u64 {
        (1 << self.tag_bits) - 1
    }
}

impl Probe {
    /// Returns the home bucket among `buckets`.
    #[inline]
    pub(crate) fn home(self, buckets: usize) -> usize {
        ((u128::from(self.position_high) * buckets as u128) >> u64::BITS) as usize
    }
}

/// Restores positions from home bucket and tag, for one number of buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    buckets: u64,
    /// `2^f` divided by the number of buckets, and the remainder.
    quotient: u64,
    rest: u64,
    tag_shift: u32,
    tag_mask: u64,
}

impl Positions {
    pub(crate) fn new(layout: &Layout, buckets: usize) -> Self {
        let span = 1u64 << layout.home_bits;
        let buckets = buckets as u64;
        Positions {
            buckets,
            quotient: span / buckets,
            rest: span % buckets,
            tag_shift: layout.tag_shift(),
            tag_mask: layout.tag_mask(),
        }
    }

    /// Returns the first position whose home is `home`: `ceil(home * 2^f / B)`, without the wide product.
    #[inline]
    pub(crate) fn first(&self, home: usize) -> u64 {
        let home = home as u64;
        home * self.quotient + (home * self.rest).div_ceil(self.buckets)
    }

    /// Returns the position of an entry, given the first position of its home.
    #[inline]
    pub(crate) fn position(&self, first: u64, entry: u64) -> u64 {
        let tag = (entry >> self.tag_shift) & self.tag_mask;
        first + (tag.wrapping_sub(first) & self.tag_mask)
    }
}
