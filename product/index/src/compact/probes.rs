//! The 16 look-up functions of a key: double hashing, with strides so short that no two functions give the same slot.
//!
//! A table that is filled by double hashing is as full when it refuses as one with independent functions (Lueker and
//! Molodowitch, STOC '88); what `docs/internals/indexes.md` reports confirms it. The functions depend on no partition bits, which are
//! the same in all hashes of a table, nor on the lowest bits, which a hash that was read from a journal does not have.

use format::mapping::bloom::mix;

/// Slots of a key.
pub const PROBES: usize = 16;

/// Lowest bits of a hash that nothing here depends on.
pub(super) const HASH_BITS_UNUSED: u32 = 4;

/// A slot of a table, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub usize);

/// A hash without what is not always known of it.
#[inline]
pub(super) const fn known_bits(hash: u64) -> u64 {
    hash >> HASH_BITS_UNUSED << HASH_BITS_UNUSED
}

/// The slots of a key in the order in which they are tried, [`PROBES`] different ones.
#[inline]
pub(super) fn slots_of(hash: u64, skip_bits: u32, slots: usize) -> [SlotId; PROBES] {
    let mixed = mix(known_bits(hash) << skip_bits);
    let first = scaled(mixed, slots);
    // The last slot is less than a round from the first.
    let stride = 1 + scaled(mix(!mixed), (slots - 1) / (PROBES - 1));
    let mut next = first;
    std::array::from_fn(|_| {
        let slot = next;
        next += stride;
        if next >= slots {
            next -= slots;
        }
        SlotId(slot)
    })
}

/// A number below `limit`, evenly spread if `mixed` is.
#[inline]
pub(super) const fn scaled(mixed: u64, limit: usize) -> usize {
    ((mixed as u128 * limit as u128) >> u64::BITS) as usize
}
