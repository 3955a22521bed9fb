//! The bits of a key: its partition, and the slots of its functions.
//!
//! A key is a string of bytes, hashed to 128 bits by XXH3 with the structure's seed. The partition, and a hash for each function,
//! follow from these 128 bits.

use crate::encoding::table::BitPage;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::settings::{BitPlacement, MOST_FUNCTIONS};
use crate::keys::{mixed, spread};

/// The hash functions of a structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitKeys {
    pub(super) seed: u64,
    pub(super) partitions: u32,
    pub(super) pages: u32,
    pub(super) page: BitPage,
    pub(super) functions: u32,
    pub(super) placement: BitPlacement,
}

/// The partition of a key, and the slots that its functions have chosen. Slots count from the start of the slicetable.
pub(super) struct KeyBits {
    pub(super) partition: u32,
    slots: [u32; MOST_FUNCTIONS as usize],
    len: usize,
}

impl KeyBits {
    /// Returns the slots in ascending order. Two functions may have chosen the same slot.
    pub(super) fn slots(&self) -> &[u32] {
        &self.slots[..self.len]
    }
}

impl BitKeys {
    pub(super) fn bits(&self, key: &[u8]) -> KeyBits {
        let hash = xxh3_128_with_seed(key, self.seed);
        let (high, low) = ((hash >> 64) as u64, hash as u64);
        // Within a partition the high half takes only some of its values. Mixing spreads it over all.
        let step = mixed(high) | 1;
        let function = |number: u64| mixed(low.wrapping_add(number.wrapping_mul(step)));
        let mut bits = KeyBits {
            partition: spread(high >> 32, self.partitions),
            slots: [0; MOST_FUNCTIONS as usize],
            len: self.functions as usize,
        };
        let per_page = self.page.slots as u32;
        match self.placement {
            BitPlacement::Spread => {
                let slots = self.pages * per_page;
                for (number, slot) in (0..).zip(&mut bits.slots[..bits.len]) {
                    *slot = spread(function(number), slots);
                }
                bits.slots[..bits.len].sort_unstable();
            }
            BitPlacement::OnePage => {
                let first = spread(mixed(high ^ low.rotate_left(32)), self.pages) * per_page;
                for chosen in 0..self.functions {
                    let slot = spread(function(chosen.into()), per_page - chosen);
                    insert_distinct(&mut bits.slots[..=chosen as usize], slot);
                }
                for slot in &mut bits.slots[..bits.len] {
                    *slot += first;
                }
            }
        }
        bits
    }
}

/// Inserts the number `slot`, counted among the slots that are not in `slots` yet. All but the last of `slots` must be in order;
/// then all are.
fn insert_distinct(slots: &mut [u32], mut slot: u32) {
    let last = slots.len() - 1;
    let mut at = 0;
    while at < last && slots[at] <= slot {
        slot += 1;
        at += 1;
    }
    slots[at..].rotate_right(1);
    slots[at] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(placement: BitPlacement, functions: u32) -> BitKeys {
        BitKeys {
            seed: 3,
            partitions: 4,
            pages: 6,
            page: BitPage::of(4096, 256).expect("it fits"),
            functions,
            placement,
        }
    }

    #[test]
    fn every_slot_is_chosen_equally_often() {
        for placement in [BitPlacement::Spread, BitPlacement::OnePage] {
            let keys = keys(placement, 5);
            let mut counts = vec![0_u32; 4 * 6 * 127];
            for key in 0..100_000_u32 {
                let bits = keys.bits(&key.to_le_bytes());
                assert!(bits.slots().is_sorted());
                for &slot in bits.slots() {
                    counts[(bits.partition * 6 * 127 + slot) as usize] += 1;
                }
            }
            let mean = 100_000.0 * 5.0 / counts.len() as f64;
            let squares = counts
                .iter()
                .map(|&count| (f64::from(count) - mean).powi(2));
            let variance = squares.sum::<f64>() / counts.len() as f64;
            assert!((0.8..1.2).contains(&(variance / mean)), "{placement:?}");
        }
    }

    #[test]
    fn on_one_page_the_slots_of_a_key_are_different_ones_of_a_page() {
        let keys = keys(BitPlacement::OnePage, 16);
        for key in 0..2_000_u32 {
            let bits = keys.bits(&key.to_le_bytes());
            let slots = bits.slots();
            assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{slots:?}");
            assert_eq!(slots[0] / 127, slots[15] / 127);
        }
        let mut slots = [2, 3, 7, 0];
        insert_distinct(&mut slots, 2);
        assert_eq!(slots, [2, 3, 4, 7]);
        let mut slots = [2, 3, 7, 0];
        insert_distinct(&mut slots, 5);
        assert_eq!(slots, [2, 3, 7, 8]);
    }
}
