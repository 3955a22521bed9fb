//! The 16 look-up functions of a key: double hashing, with strides so short that no two functions give the same slot.
//!
//! A table filled by double hashing reaches the same load before it refuses as one with independent functions (Lueker and
//! Molodowitch, STOC '88); the measurements in `docs/internals/indexes.md` confirm it. The functions do not use the
//! partition bits, which all hashes of a table share, nor the lowest bits, which a hash read from a journal lacks.

use on_flash::bloom::mix;

/// Slots of a key.
pub const PROBES: usize = 16;

/// Number of lowest bits of a hash that nothing here depends on.
pub(super) const HASH_BITS_UNUSED: u32 = 4;

/// Number of a slot of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub usize);

/// Returns the hash without the bits that a journal does not keep.
#[inline]
pub(super) const fn known_bits(hash: u64) -> u64 {
    hash >> HASH_BITS_UNUSED << HASH_BITS_UNUSED
}

/// Returns the [`PROBES`] different slots of a key in the order in which they are tried.
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

/// Returns a number below `limit`, evenly spread if `mixed` is.
#[inline]
pub(super) const fn scaled(mixed: u64, limit: usize) -> usize {
    ((mixed as u128 * limit as u128) >> u64::BITS) as usize
}
