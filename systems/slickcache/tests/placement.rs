//! The crash simulation with the placement `tiered`: no item that was overwritten, deleted, expired or flushed comes back,
//! whatever the moment of the crash.

use std::sync::Arc;

extern crate checker as flowstone_checker;

use engine::Layout;
use flowstone_slickcache::TieredSettings;
use flowstone_slickcache::cascade::{CascadeConfig, Sizes};

#[path = "../../../check/checker/tests/seeds/mod.rs"]
mod seeds;

use seeds::simulate_each;

/// The index is in blocks of a few entries.
#[test]
fn dead_keys_stay_dead_where_the_index_is_tiered() {
    simulate_each(|seed| {
        let few = |most: u64, step: u64| Some((1 + seed / step % most) as u32);
        let sizes = Sizes {
            partitions: few(2, 2),
            direct_blocks: few(3, 4),
            direct_pages: few(2, 12),
            active_blocks: few(3, 24),
            active_pages: few(2, 72),
            ratio: few(3, 144),
            hot_entries: Some(3),
            page_entries: Some(3),
            ..Sizes::default()
        };
        let cascade = CascadeConfig {
            filter_bits: if seed % 3 == 0 { 0 } else { 8 },
            discard: seed % 5 < 2,
            sizes,
            ..CascadeConfig::new(1, 1)
        };
        Arc::new(TieredSettings {
            layout: if seed % 2 == 0 {
                Layout::Packed
            } else {
                Layout::Slotted
            },
            checkpoint_segments: 8,
            cascade,
        })
    });
}
