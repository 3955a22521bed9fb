//! A cache whose index is a `SliceHash` ("Design Patterns for Tunable and Efficient SSD-based Indexes", ANCS '14): half a byte
//! of memory an item, all else on flash. The structures of the paper themselves are the crate `slices`.
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | slicing, incarnations, channel-aware scheduling | 3, 4 | `systems/slices/src/` |
//! | the index of a cache on `SliceHash` | - | `product/engine/src/placement/sliced/`, `systems/slices/src/hash/index.rs` |
//! | the preset | - | this file |

#![forbid(unsafe_code)]

use engine::config::Sizes;
use engine::preset::{Preset, sized, slab_bytes, write_buffers};
use engine::{
    EngineConfig, PlacementConfig, ReclaimPolicy, Reserve, Schedule, SlicedSettings, StaticReserve,
    Victim,
};

/// Part of the memory for segments being filled, where nothing is said: the rest is for the index.
const BUFFER_SHARE: u64 = 8;
/// Largest part of the memory that the index takes, in percent.
const INDEX_PERCENT: u32 = 75;
/// Fewest segments in memory: some are written while others are filled.
const LEAST_SEGMENTS: u64 = 6;
/// Free segments below which reclaim starts and above which it stops, in percent of the flash.
const WATERMARKS: (u32, u32) = (2, 5);

/// The preset of the system.
#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    Preset::of_drive("sliced", "an index of slices (ANCS '14): half a byte of memory an item, all else on flash; drops the oldest segment", sliced),
];

fn sliced(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    let least = slab_bytes(&sized(sizes), 0) * LEAST_SEGMENTS;
    let for_slabs = (sizes.memory_bytes / BUFFER_SHARE).max(least);
    let mut config = write_buffers(sizes, for_slabs, Schedule::Background, policy);
    config.writing.writers = config
        .writing
        .writers
        .max(2)
        .min(config.writing.buffers - 1);
    let placement = SlicedSettings::new(INDEX_PERCENT);
    config.placement = PlacementConfig::Sliced(placement);
    config.reclaim.bound_copies = true;
    config.reclaim.reserve = Reserve::Static(StaticReserve {
        low_percent: WATERMARKS.0,
        high_percent: WATERMARKS.1,
    });
    config
}
