//! Answers of an index without keys against those of a plain map.

use crate::hashed::hashed_media;
use crate::model::{Misses, run_on};
use crate::support::{for_each_seed, tight};

/// Compares the answers of an index without keys: laid out for all items, or so small that it loses some and its entries
/// lead to old copies of other keys.
#[test]
fn answers_of_an_index_without_keys_are_the_maps_or_misses() {
    for_each_seed("answers_of_an_index_without_keys", 40, |seed| {
        let (flash_mib, items, misses) = match seed % 4 {
            0 => (257, 200_000, Misses::Never),
            1 => (9, 20_000, Misses::MayComeBack),
            2 => (9, 500, Misses::MayComeBack),
            _ => (33, 16, Misses::MayComeBack),
        };
        run_on(
            seed,
            tight(),
            hashed_media(flash_mib << 20, items),
            misses,
            2500,
        );
    });
}
