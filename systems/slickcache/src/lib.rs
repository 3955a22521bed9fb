//! SlickCache (SoCC 2018): a small part of the index in memory (in the paper a tenth), the rest on flash.
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | Tier 1, and demotion from it | 4.1.1 | `systems/slickcache/src/cascade/hot.rs`, `systems/slickcache/src/cascade/upkeep.rs` |
//! | Tier 2: direct blocks | 4.1.2 | `systems/slickcache/src/cascade/block.rs`, `systems/slickcache/src/cascade/partition.rs` |
//! | Tier 3, the dual-mode linked hash table: active lists and their buffers, inactive buckets | 4.1.3 | `systems/slickcache/src/cascade/partition.rs` |
//! | filters of Tier 2, active lists and buckets, in memory (not in the paper) | - | `systems/slickcache/src/cascade/slices.rs`, their bits in `systems/slickcache/src/cascade/layouts.rs`, `systems/on-flash/src/bloom.rs` |
//! | compaction of an active list into inactive buckets | 4.1.3 | `systems/slickcache/src/cascade/upkeep/compaction.rs` |
//! | jump lists | 4.1.3 | `systems/slickcache/src/cascade/jump.rs` |
//! | look-ups below Tier 1, in batches | 4.1.2, 4.2 | `systems/slickcache/src/cascade/search.rs` |
//! | reads, writes and deletes over the tiers | 4.2 | `systems/slickcache/src/tiered.rs` |
//! | Adaptive Two-phase GC | 4.3 | `product/engine/src/reclaim/policy.rs` (`CopyRecent`); an item is hot if Tier 1 names it: `check` in `systems/slickcache/src/tiered.rs` |
//! | zero-I/O demapping, the slab sequence counter | 4.3 | `systems/slickcache/src/tiered.rs`, `systems/on-flash/src/numbers.rs` |
//! | crash recovery of the index | 4.4 | `systems/slickcache/src/cascade/checkpoint.rs` |
//! | the presets | 5.2 | this file |

#![forbid(unsafe_code)]

pub mod cascade;
pub mod encoding;
mod tiered;

pub use tiered::TieredSettings;

use std::sync::Arc;

use engine::config::Sizes;
use engine::preset::{Preset, index_on_flash};
use engine::{EngineConfig, Layout, ReclaimPolicy, Victim};

/// Largest part of the memory that the index takes, in percent.
const INDEX_PERCENT: u32 = 75;
/// Hot items of a slab are copied if that gains at least a sixteenth of it.
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

/// `SlickCache` with a reclaim policy (section 4.3).
fn slickcache(sizes: Sizes, policy: ReclaimPolicy) -> EngineConfig {
    let placement = Arc::new(TieredSettings::new(Layout::Slotted));
    index_on_flash(sizes, policy, placement, INDEX_PERCENT)
}

fn slickcache_drop(sizes: Sizes) -> EngineConfig {
    slickcache(sizes, FIFO_DROP)
}

/// Below the low watermark slabs are dropped. Between the watermarks their hot items are copied (Adaptive Two-phase GC).
fn slickcache_gc(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::CopyRecent {
        victim: Victim::Oldest,
        max_copy_sixteenths: COPY_SIXTEENTHS,
    };
    slickcache(sizes, policy)
}
