//! Settings of a [`DirectTable`](crate::DirectTable), and the errors in them.
//!
//! Invariant: a table is made only of a [`DirectConfig`] whose bit fields fit a 64-bit entry and whose fingerprint fits
//! the 64-bit hash. Any other one is refused with a [`ConfigError`] that names the field to change.

use crate::layout::Layout;
use crate::sub_table::{SubTable, heap_bytes};

/// Most entries of a sub-table when the table holds `max_entries_hint`.
///
/// It bounds the pause of one rebuild, which moves one sub-table.
pub const SUB_TABLE_ENTRIES: u64 = 16 * 1024;

/// Fewest buckets a sub-table may start with: an entry may lie in any of 8 successive buckets.
pub const MIN_BUCKETS_LOWEST: u32 = 8;

/// Most buckets a sub-table may start with.
pub const MIN_BUCKETS_HIGHEST: u32 = 4096;

/// Widest value, in bits.
pub const VALUE_BITS_HIGHEST: u32 = 44;

/// Most bits of a rank.
pub const RANK_BITS_HIGHEST: u32 = 3;

/// Fewest tag bits a table accepts; below this, collisions would be common.
const TAG_BITS_LOWEST: u32 = 12;

/// Configuration of one partition's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectConfig {
    /// Bits of a value, 1 to [`VALUE_BITS_HIGHEST`]. Values run from 0 to `2^value_bits - 2`.
    /// Every bit given here is taken from the tag.
    pub value_bits: u32,
    /// Bits that remember reads, 1 to [`RANK_BITS_HIGHEST`]: one bit tells whether there were any. Every further bit is
    /// taken from the tag.
    pub rank_bits: u32,
    /// Entries this partition is expected to hold when the flash is full. It fixes the number of
    /// sub-tables; more entries than this still work, with longer rebuilds.
    pub max_entries_hint: u64,
    /// Topmost hash bits that all keys of this table share, because the caller chose the partition by them.
    pub skip_bits: u32,
    /// Buckets of an empty sub-table: a power of two from [`MIN_BUCKETS_LOWEST`] to
    /// [`MIN_BUCKETS_HIGHEST`]. Doubling it adds one bit to the fingerprint and doubles the
    /// memory of an empty table.
    pub min_buckets: u32,
}

impl DirectConfig {
    /// Returns the number `F` of hash bits that tell keys apart, the skipped ones included. Two keys that agree in these
    /// displace each other. Of `n` keys spread over all partitions, about `n^2 / 2^(F+1)` pairs do.
    ///
    /// # Errors
    ///
    /// The first [`ConfigError`] found; each names the field.
    pub fn fingerprint_bits(&self) -> Result<u32, ConfigError> {
        let layout = self.layout()?;
        Ok(self.skip_bits + layout.fingerprint_bits())
    }

    /// Returns the bytes of memory of an empty table.
    pub fn least_bytes(&self) -> u64 {
        let sub_table = size_of::<SubTable>() as u64 + heap_bytes(self.min_buckets as usize);
        sub_table.saturating_mul(1 << sub_bits(self.max_entries_hint))
    }

    pub(crate) fn layout(&self) -> Result<Layout, ConfigError> {
        if !(1..=VALUE_BITS_HIGHEST).contains(&self.value_bits) {
            return Err(ConfigError::ValueBits {
                value_bits: self.value_bits,
            });
        }
        if !(1..=RANK_BITS_HIGHEST).contains(&self.rank_bits) {
            return Err(ConfigError::RankBits {
                rank_bits: self.rank_bits,
            });
        }
        if !self.min_buckets.is_power_of_two()
            || !(MIN_BUCKETS_LOWEST..=MIN_BUCKETS_HIGHEST).contains(&self.min_buckets)
        {
            return Err(ConfigError::MinBuckets {
                min_buckets: self.min_buckets,
            });
        }
        let sub_bits = sub_bits(self.max_entries_hint);
        let bucket_bits = self.min_buckets.trailing_zeros();
        let used = self
            .skip_bits
            .saturating_add(sub_bits)
            .saturating_add(bucket_bits);
        if used.saturating_add(TAG_BITS_LOWEST) > u64::BITS {
            return Err(ConfigError::HashBits {
                skip_bits: self.skip_bits,
                sub_bits,
            });
        }
        Ok(Layout::new(
            self.value_bits,
            self.rank_bits,
            self.skip_bits,
            sub_bits,
            bucket_bits,
            u64::BITS - used,
        ))
    }
}

/// Returns the number of bits that choose the sub-table, for an expected number of entries.
fn sub_bits(max_entries_hint: u64) -> u32 {
    let sub_tables = max_entries_hint.div_ceil(SUB_TABLE_ENTRIES).max(1);
    // At most 2^50 sub-tables, so the next power of two exists.
    sub_tables.next_power_of_two().trailing_zeros()
}

/// Error in a [`DirectConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum ConfigError {
    /// `value_bits` out of range.
    #[error("value_bits is {value_bits}; choose 1 to {VALUE_BITS_HIGHEST}")]
    ValueBits { value_bits: u32 },
    /// `rank_bits` out of range.
    #[error("rank_bits is {rank_bits}; choose 1 to {RANK_BITS_HIGHEST}")]
    RankBits { rank_bits: u32 },
    /// `min_buckets` not a power of two, or out of range.
    #[error(
        "min_buckets is {min_buckets}; choose a power of two from {MIN_BUCKETS_LOWEST} to \
         {MIN_BUCKETS_HIGHEST}"
    )]
    MinBuckets { min_buckets: u32 },
    /// Partition, sub-table and bucket leave too little of the hash for a tag.
    #[error(
        "{skip_bits} partition bits and {sub_bits} sub-table bits leave too little of a 64-bit \
         hash; lower skip_bits or max_entries_hint"
    )]
    HashBits { skip_bits: u32, sub_bits: u32 },
}
