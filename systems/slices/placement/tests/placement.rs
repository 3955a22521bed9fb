//! The crash simulation with the placement `sliced`: no item that was overwritten, deleted, expired or flushed comes back,
//! whatever the moment of the crash.

use std::sync::Arc;

extern crate checker as flowstone_checker;

use flowstone_sliced::SlicedSettings;

#[path = "../../../../check/checker/tests/seeds/mod.rs"]
mod seeds;

use seeds::simulate_each;

/// The index has tables of a few entries.
#[test]
fn dead_keys_stay_dead_where_the_index_is_sliced() {
    simulate_each(|seed| {
        Arc::new(SlicedSettings {
            incarnations: [32, 16, 8, 3][(seed % 4) as usize],
            table_bytes: Some([2048, 4096][(seed / 4 % 2) as usize]),
            filter_percent: [0, 50][(seed % 2) as usize],
            checkpoint_segments: 8,
        })
    });
}
