//! Answers of an index without keys, and of a cache that learns which items deserve flash, against those of a plain map.

use std::sync::Arc;
use std::time::Duration;

use flowstone_flashield::Learning;

use crate::filter::filtered;
use crate::hashed::hashed_media;
use crate::model::{Misses, run, run_on};
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

#[test]
fn answers_behind_a_filter_that_learns_are_the_maps_or_misses() {
    for_each_seed("answers_behind_a_filter", 14, |seed| {
        let learning = Learning {
            window: Duration::from_secs(60),
            ..Learning::default()
        };
        let config = filtered(Arc::new(learning), tight());
        let flash_mib = if seed % 2 == 0 { 41 } else { 9 };
        run(seed, config, flash_mib << 20, Misses::Allowed, 4000);
    });
}
