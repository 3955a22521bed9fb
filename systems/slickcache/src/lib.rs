//! SlickCache (SoCC 2018): a tenth of the index in memory, the rest in flash.
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | Cascade Mapping: three tiers, demotion and promotion | 4.1, 4.2 | `product/index/src/cascade/` |
//! | the placement on it, zero-I/O demapping | 4.2, 4.3 | `product/engine/src/placement/tiered.rs` |
//! | Adaptive Two-phase GC | 4.3 | `product/engine/src/reclaim/policy.rs` (`CopyRecent`) |
//! | checkpoints and recovery of the index | 4.4 | `product/index/src/cascade/`, `product/engine/src/durability/` |
//! | the presets | 5.1 | this file |

#![forbid(unsafe_code)]

use engine::config::Sizes;
use engine::preset::{Preset, sized, slab_bytes, write_buffers};
use engine::{
    EngineConfig, Layout, PlacementConfig, ReclaimPolicy, Reserve, Schedule, StaticReserve,
    TieredSettings, Victim,
};

const SLICKCACHE_WATERMARKS: (u32, u32) = (2, 5);
/// The part of the memory that SlickCache has for slabs being filled, where nothing is said: its memory is for the index.
const SLICKCACHE_BUFFER_SHARE: u64 = 8;
/// The most of the memory that its index takes, in percent.
const SLICKCACHE_INDEX_PERCENT: u32 = 75;
/// Some slabs of it are being written while others are filled.
const SLICKCACHE_LEAST_SLABS: u64 = 6;
/// Hot items are copied, whatever gains a sixteenth of a slab.
const COPY_SIXTEENTHS: u32 = 15;
const FIFO_DROP: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::Oldest,
};

/// The presets of the system.
#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    Preset::of_drive("slickcache", "SlickCache: a sixth of the index in memory, the rest on flash; drops the oldest slab", slickcache_drop),
    Preset::of_drive("slickcache-gc", "the same; copies what the part of the index in memory still names", slickcache_gc),
];

/// `SlickCache` on Fatcache-Async, with a policy (sections 4.3 and 5.1).
fn slickcache(sizes: Sizes, policy: ReclaimPolicy) -> EngineConfig {
    let least = slab_bytes(&sized(sizes), 0) * SLICKCACHE_LEAST_SLABS;
    let for_slabs = (sizes.memory_bytes / SLICKCACHE_BUFFER_SHARE).max(least);
    let mut config = write_buffers(sizes, for_slabs, Schedule::Background, policy);
    config.writing.writers = config
        .writing
        .writers
        .max(2)
        .min(config.writing.buffers - 1);
    let placement = TieredSettings::new(Layout::Slotted, SLICKCACHE_INDEX_PERCENT);
    config.placement = PlacementConfig::Tiered(placement);
    config.reclaim.bound_copies = true;
    config.reclaim.reserve = Reserve::Static(StaticReserve {
        low_percent: SLICKCACHE_WATERMARKS.0,
        high_percent: SLICKCACHE_WATERMARKS.1,
    });
    config
}

fn slickcache_drop(sizes: Sizes) -> EngineConfig {
    slickcache(sizes, FIFO_DROP)
}

/// Below the low watermark slabs are dropped, between the two what is hot is copied (Adaptive Two-phase GC).
fn slickcache_gc(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::CopyRecent {
        victim: Victim::Oldest,
        max_copy_sixteenths: COPY_SIXTEENTHS,
    };
    slickcache(sizes, policy)
}
