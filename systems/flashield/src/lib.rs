//! Flashield (NSDI 2019): memory is a filter that learns which items deserve flash. Its presets, and those of the caches it is
//! compared with: RIPQ, a victim cache, and S3-FIFO (SOSP 2023).
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | memory as a filter | 3.1 | `product/engine/src/admission/mod.rs` |
//! | the two features of an item: reads and updates | 3.2 | `product/engine/src/admission/features.rs` |
//! | flashiness, by a support vector machine | 3.2 | `systems/flashield/src/admission/flashiness.rs`, `systems/flashield/src/admission/svm.rs` |
//! | samples and training, application by application | 4.2 | `systems/flashield/src/admission/flashiness.rs`, `systems/flashield/src/admission/learner.rs` |
//! | a limit on writes to flash | 3.2, 4 | `product/device/src/limit.rs` |
//! | the worth of a place on flash (not in the paper) | - | `systems/flashield/src/admission/worth.rs` |
//! | the compact index, without keys: a hash table with 16 look-up functions, a Bloom filter for each segment | 3.4 | `systems/flashield/src/compact/` |
//! | the compact index as the index of a cache: the placement `hashed` | 3.4 | `systems/flashield/src/hashed.rs`, `systems/flashield/src/hashed/` |
//! | 16 hash functions for the place of an item in its segment | 3.4 | `product/format/src/hashed.rs` |
//! | filling a segment; items that find their places taken go to the next open segment | 4.1 | `append_hashed` in `product/engine/src/store/append.rs`, `product/engine/src/store/cursor.rs` |
//! | CLOCK over flash, ghosts, the hot data threshold | 4.3 | `systems/flashield/src/compact/table.rs`, `systems/flashield/src/hashed/shard.rs`, `systems/flashield/src/hashed/hot.rs` |
//! | one CLOCK over memory and flash | 4, 4.3 | `move_one_hand` in `systems/flashield/src/hashed/shard.rs`, `product/engine/src/placement/clock.rs`, `product/engine/src/tiers/mod.rs` |
//! | hot items of a reclaimed segment go back to memory | 4.3 | `product/engine/src/reclaim/policy.rs` (`ReturnRecent`) |
//! | RIPQ, in segments | 2.2, 5.1; FAST 2015 | `product/engine/src/store/priorities.rs`, `product/engine/src/reclaim/policy.rs` (`CopyPromoted`) |
//! | S3-FIFO's ghosts (not in the paper) | - | `product/engine/src/admission/ghosts.rs` |
//! | the presets | 5.1 | this file |

#![forbid(unsafe_code)]

pub mod admission;
pub mod compact;
mod hashed;

pub use admission::{ADMISSIONS, Learning};
pub use hashed::HashedSettings;

use std::sync::Arc;

use engine::config::Sizes;
use engine::preset::{Preset, sized, slab_bytes};
use engine::{
    AdmissionKind, AdmitGhosts, Dram, EngineConfig, ExactSettings, IndexSettings, Layout,
    ReclaimPolicy, Reserve, StaticReserve, Victim,
};

/// Items are spread over several open segments, so that these fill up.
const FLASHIELD_BUFFERS: usize = 7;
const FLASHIELD_INDEX_PERCENT: u32 = 50;
/// Reads in the small queue that take an item to the main one.
const S3_FIFO_READS: u32 = 2;
/// Items read in the main queue go to its end again, if that gains a sixteenth of a segment.
const S3_FIFO_COPY_SIXTEENTHS: u32 = 15;
/// Insertion points of RIPQ in Flashield (sections 2.2 and 5.1).
const RIPQ_PRIORITIES: u8 = 8;
/// One buffer for each insertion point, and some being written.
const RIPQ_BUFFERS: usize = 12;
const VICTIM_BUFFERS: usize = 4;
/// Fraction of the memory for the buffers of RIPQ. The rest is for items and their index.
const RIPQ_BUFFER_SHARE: u64 = 8;
/// Segments that each preset here writes and reclaims at once.
const VICTIM_WORKERS: usize = 2;
/// Low and high watermark of free segments in each preset here, in percent of the flash.
const VICTIM_WATERMARKS: (u32, u32) = (2, 5);

/// The presets of the four systems.
#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    Preset::of_drive("flashield", "Flashield: what is expected to be read again and not updated goes to flash; less than 4 bytes of index an item", flashield),
    Preset::of_drive("flashield-one-clock", "the same; memory and flash have one CLOCK, as in the paper", flashield_one_clock),
    Preset::of_drive("s3-fifo", "S3-FIFO: what has been read twice in memory goes to flash, and what comes back; what is read there is copied", s3_fifo),
    Preset::of_drive("victim", "items in memory; whatever leaves it is written, and dropped in order of age", victim),
    Preset::of_drive("ripq", "RIPQ: the same on a segmented LRU of 8 priorities; what is read moves up when its segment goes", ripq),
];

/// A victim cache with memory as a filter: hits on flash are not copied back to memory.
fn filter(sizes: Sizes, admission: Arc<dyn AdmissionKind>, policy: ReclaimPolicy) -> EngineConfig {
    let mut config = EngineConfig {
        admission,
        dram: Dram::Filter,
        ..victim(sizes)
    };
    config.reclaim.policy = policy;
    config
}

/// Flashield (NSDI '19): an item read since it was written returns to memory when its segment is reclaimed, and has to
/// prove itself again.
fn flashield(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::ReturnRecent {
        victim: Victim::Oldest,
    };
    let mut config = filter(sizes, Arc::new(Learning::default()), policy);
    config.placement = Arc::new(HashedSettings::default());
    config.index = IndexSettings::of_memory(FLASHIELD_INDEX_PERCENT);
    config.writing.buffers = FLASHIELD_BUFFERS;
    config
}

/// Ranks items for eviction as the paper does: one CLOCK over memory and flash.
fn flashield_one_clock(sizes: Sizes) -> EngineConfig {
    let mut config = flashield(sizes);
    config.placement = Arc::new(HashedSettings {
        one_clock: true,
        ..HashedSettings::default()
    });
    config
}

/// S3-FIFO (SOSP '23), its small queue in memory and its main one on flash.
fn s3_fifo(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::CopyRecent {
        victim: Victim::Oldest,
        max_copy_sixteenths: S3_FIFO_COPY_SIXTEENTHS,
    };
    filter(
        sizes,
        Arc::new(AdmitGhosts {
            reads: S3_FIFO_READS,
        }),
        policy,
    )
}

/// A cache of items in memory. All items go to flash when they leave it (Flashield, section 2.2).
fn victim(sizes: Sizes) -> EngineConfig {
    let usual = sized(sizes);
    let wanted = sizes.memory_bytes / RIPQ_BUFFER_SHARE / RIPQ_BUFFERS as u64;
    let segment_bytes = sizes
        .block_bytes
        .or(sizes.segment_bytes)
        .or_else(|| u32::try_from(slab_bytes(&usual, wanted)).ok());
    let mut config = EngineConfig {
        segment_bytes,
        dram: Dram::BeforeVictims,
        write_back: None,
        ..usual
    };
    config.reclaim.policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    config.reclaim.reserve = Reserve::Static(StaticReserve {
        low_percent: VICTIM_WATERMARKS.0,
        high_percent: VICTIM_WATERMARKS.1,
    });
    config.reclaim.reclaimers = VICTIM_WORKERS;
    config.writing.buffers = VICTIM_BUFFERS;
    config.writing.writers = VICTIM_WORKERS;
    config
}

/// `RIPQ` (FAST 2015) with segmented LRU and virtual promotion, behind a cache of items in memory.
fn ripq(sizes: Sizes) -> EngineConfig {
    let mut config = victim(sizes);
    config.dram = Dram::ItemCache;
    config.placement = Arc::new(ExactSettings {
        layout: Layout::Packed,
        priorities: RIPQ_PRIORITIES,
    });
    config.reclaim.policy = ReclaimPolicy::CopyPromoted;
    config.reclaim.bound_copies = false;
    config.writing.buffers = RIPQ_BUFFERS;
    config
}
