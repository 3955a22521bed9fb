//! A cache whose index is a `SliceHash` ("Design Patterns for Tunable and Efficient SSD-based Indexes", ANCS '14): half a
//! byte of memory an item, the rest on flash. The crate `slices` has the structures of the paper.
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | the structures of the paper: SliceHash, SliceBloom, SliceLSH | 5, 6 | `systems/slices`, with a table of its own in `systems/slices/src/lib.rs` |
//! | SliceHash for an owner with locks of its own (not in the paper) | - | `systems/slices/src/hash/index.rs` |
//! | the index of a cache on it: the placement `sliced` (not in the paper) | - | `systems/slices/placement/src/placement.rs` |
//! | the preset | - | this file |

#![forbid(unsafe_code)]

pub mod encoding;
mod placement;

pub use placement::SlicedSettings;

use std::sync::Arc;

use engine::config::Sizes;
use engine::preset::{Preset, index_on_flash};
use engine::{EngineConfig, ReclaimPolicy, Victim};

/// Largest part of the memory that the index takes, in percent.
const INDEX_PERCENT: u32 = 75;

/// The preset of the system.
#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    Preset::of_drive("sliced", "an index of slices (ANCS '14): half a byte of memory an item, all else on flash; drops the oldest segment", sliced),
];

fn sliced(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    let placement = Arc::new(SlicedSettings::default());
    index_on_flash(sizes, policy, placement, INDEX_PERCENT)
}
