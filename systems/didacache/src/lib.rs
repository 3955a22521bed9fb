//! DIDACache (TOS 2018; slides of FAST 2017): the cache drives the flash itself. The presets are its own, and those of
//! Fatcache, which the paper compares it with (sections 5.1 and 5.4.3).
//!
//! Below the low watermark `didacache` drops the least recently read segment; its watermarks are those of a queue unless
//! the name tells otherwise. Fatcache's names tell its reclaim: `fifo`, the default, copies all valid items of the oldest
//! slab, `greedy` those of the slab with the fewest valid bytes. `kick` drops the slab with the fewest valid bytes;
//! `fifo-drop`, SlickCache's baseline, drops the oldest slab.
//!
//! This folder has the presets, that is settings, and no mechanism. The mechanisms of the cache are in `product/engine`: its
//! store and its reclaim serve every preset, and a preset chooses policy, reserve and wear leveling in `ReclaimSettings`. The
//! default preset uses the same index, queues and recovery. The devices are in `lab/emulated`, for experiments and tests.
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | slabs, a queue of free and full ones for each channel | 4.1.1 | `product/engine/src/store/queues.rs` |
//! | unified direct mapping: from a key to a slab on flash, without a second table | 4.1.2 | `product/engine/src/placement/exact.rs` |
//! | integrated garbage collection: space-based, then locality-based (the quick clean) | 4.1.3 | `product/engine/src/reclaim/policy.rs` (`Integrated`) |
//! | dynamic over-provisioning: heuristic and queueing | 4.1.4 | `product/engine/src/reclaim/watermarks.rs` |
//! | wear leveling | 4.1.5 | `product/engine/src/reclaim/policy.rs` (`level_wear`, `least_worn`), `product/engine/src/reclaim/reclaimer.rs` (`take_least_worn`); the least worn free slab is opened first: `product/engine/src/store/queues.rs` |
//! | crash recovery | 4.1.6 | `product/engine/src/flash/recover.rs` |
//! | libssd: slabs as blocks of a LUN, bad blocks | 4.2 | `lab/emulated/src/libssd.rs`, `product/engine/src/store/write.rs` |
//! | the open-channel SSD, emulated | 4.3 | `lab/emulated/src/nand/` |
//! | the presets | 5.1, 5.4.3 | this file |

#![forbid(unsafe_code)]

use engine::config::Sizes;
use engine::preset::{Preset, slabs, write_buffers};
use engine::{
    EngineConfig, ReclaimPolicy, ReclaimSettings, Reserve, Schedule, StaticReserve, Victim,
};

/// Fatcache's slabs being filled take one half of the memory, as in the paper: 128 MiB of 256.
const FATCACHE_BUFFER_SHARE: u64 = 2;
/// Fatcache copies a victim if that gains at least a sixteenth of a slab.
const FATCACHE_COPY_SIXTEENTHS: u32 = 15;
/// `didacache` copies a victim if that gains at least a sixteenth, and drops others under pressure.
const DIDACACHE_COPY_SIXTEENTHS: u32 = 15;
/// `didacache` writes and reclaims as many slabs at once as this part of its buffers. Each slab is one block of one LUN,
/// whose pages are written one after the other, while a slab of Fatcache lies on all LUNs.
const DIDACACHE_WORKERS_SHARE: (usize, usize) = (3, 4);
/// `didacache` levels wear after this many erases for each block (section 4.1.5).
const WEAR_LEVELING: u32 = 2;

const FIFO: ReclaimPolicy = copy_valid(Victim::Oldest, FATCACHE_COPY_SIXTEENTHS);
const GREEDY: ReclaimPolicy = copy_valid(Victim::FewestValid, FATCACHE_COPY_SIXTEENTHS);
const KICK: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::FewestValid,
};
const FIFO_DROP: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::Oldest,
};
const INTEGRATED: ReclaimPolicy = integrated(DIDACACHE_COPY_SIXTEENTHS);
/// Space-based eviction alone: copies every victim that gains, as Fatcache does.
const SPACE: ReclaimPolicy = copy_valid(Victim::FewestValid, FATCACHE_COPY_SIXTEENTHS);
/// Locality-based eviction alone: never copies. Before the low watermark only empty segments are reclaimed.
const LOCALITY: ReclaimPolicy = integrated(0);

const fn copy_valid(victim: Victim, max_copy_sixteenths: u32) -> ReclaimPolicy {
    ReclaimPolicy::CopyValid {
        victim,
        max_copy_sixteenths,
    }
}

const fn integrated(max_copy_sixteenths: u32) -> ReclaimPolicy {
    ReclaimPolicy::Integrated {
        max_copy_sixteenths,
        under_pressure: Victim::LeastRecentlyRead,
    }
}

/// A preset of Fatcache, with its schedule and its policy.
macro_rules! fatcache {
    ($name:literal, $about:literal, $schedule:ident, $policy:ident) => {
        Preset::of_drive($name, $about, |sizes| {
            fatcache(sizes, Schedule::$schedule, $policy)
        })
    };
}

/// A preset of `DIDACache`, with its policy and its reserve.
macro_rules! didacache {
    ($name:literal, $about:literal, $policy:ident, $reserve:expr) => {
        Preset::of_flash($name, $about, |sizes| didacache(sizes, $policy, $reserve))
    };
}

/// The presets of the two systems.
#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    fatcache!("fatcache-sync", "Fatcache: slabs; a set that finds no free one waits while it copies the oldest", OnDemand, FIFO),
    fatcache!("fatcache-sync-fifo", "the same as fatcache-sync", OnDemand, FIFO),
    fatcache!("fatcache-sync-greedy", "copies the slab with the fewest valid bytes", OnDemand, GREEDY),
    fatcache!("fatcache-sync-kick", "drops the slab with the fewest valid bytes", OnDemand, KICK),
    fatcache!("fatcache-sync-fifo-drop", "drops the oldest slab", OnDemand, FIFO_DROP),
    fatcache!("fatcache-async", "Fatcache with a drain: slabs are written and reclaimed in the background", Background, FIFO),
    fatcache!("fatcache-async-fifo", "the same as fatcache-async", Background, FIFO),
    fatcache!("fatcache-async-greedy", "copies the slab with the fewest valid bytes", Background, GREEDY),
    fatcache!("fatcache-async-kick", "drops the slab with the fewest valid bytes", Background, KICK),
    fatcache!("fatcache-async-fifo-drop", "drops the oldest slab", Background, FIFO_DROP),
    didacache!("didacache", "DIDACache: a slab is an erase block; copies while that gains, drops under pressure", INTEGRATED, Reserve::Queueing),
    didacache!("didacache-static", "always keeps a quarter of the flash free", INTEGRATED, Reserve::Static(StaticReserve::default())),
    didacache!("didacache-heuristic", "its reserve follows how often it is used up", INTEGRATED, Reserve::Heuristic),
    didacache!("didacache-space", "copies only, and writes wait", SPACE, Reserve::Queueing),
    didacache!("didacache-locality", "drops only", LOCALITY, Reserve::Queueing),
    Preset::of_flash("didacache-unleveled", "without wear leveling", unleveled),
];

fn fatcache(sizes: Sizes, schedule: Schedule, policy: ReclaimPolicy) -> EngineConfig {
    write_buffers(
        sizes,
        sizes.memory_bytes / FATCACHE_BUFFER_SHARE,
        schedule,
        policy,
    )
}

fn didacache(sizes: Sizes, policy: ReclaimPolicy, reserve: Reserve) -> EngineConfig {
    let mut config = slabs(sizes, sizes.memory_bytes / FATCACHE_BUFFER_SHARE);
    let buffers = config.writing.buffers;
    let (some, of) = DIDACACHE_WORKERS_SHARE;
    let workers = (buffers * some / of).max(1);
    config.reclaim = ReclaimSettings {
        policy,
        reserve,
        wear_leveling: Some(WEAR_LEVELING),
        reclaimers: workers,
        schedule: Schedule::Background,
        bound_copies: false,
    };
    config.writing.writers = workers;
    config
}

fn unleveled(sizes: Sizes) -> EngineConfig {
    let mut config = didacache(sizes, INTEGRATED, Reserve::Queueing);
    config.reclaim.wear_leveling = None;
    config
}
