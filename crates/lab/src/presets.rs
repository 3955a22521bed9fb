//! Presets: systems as named combinations of the engine's parts.
//!
//! Below the low watermark `didacache` drops the least recently read segment; its watermarks are those of
//! a queue unless its name tells otherwise. What a name says of Fatcache's reclaim: `fifo`, the
//! default, copies all valid items of the oldest slab, `greedy` those of the slab with the fewest
//! valid bytes, `kick` drops that slab, `fifo-drop` the oldest one.
//!
//! Fatcache and its schemes: DIDACache (TOS 2018), sections 5.1 and 5.4.3. `fifo-drop` is the
//! baseline of SlickCache.

use std::fmt::Write;

use engine::config::Sizes;
use engine::format::segment::largest_item;
use engine::{
    Admission, Dram, EngineConfig, ExactSettings, HashedSettings, Layout, Learning,
    PlacementConfig, ReclaimPolicy, ReclaimSettings, Reserve, Schedule, SlicedSettings,
    StaticReserve, TieredSettings, Victim,
};

use MadeFor::{Drive, Flash};

/// The part of the memory that Fatcache has for slabs being filled, as in the paper: 128 MiB of 256.
const FATCACHE_BUFFER_SHARE: u64 = 2;
/// The most of the memory that Fatcache's index takes, in percent; half is for slabs.
const FATCACHE_INDEX_PERCENT: u32 = 40;
/// One of so many buffers is written at once, each by one command where it is not an erase block; the others
/// are being filled.
const WRITERS_SHARE: usize = 4;
/// The paper runs so many servers beside each other, each of which writes one slab at a time, and reclaims one.
const SERVERS: usize = 8;
/// One of so many buffers is kept free by its drain; what is in the others is read from memory.
const SPARE_SHARE: usize = 8;
/// It copies whatever gains a sixteenth of a slab.
const FATCACHE_COPY_SIXTEENTHS: u32 = 15;
/// `didacache` copies what gains a sixteenth, and drops the rest under pressure.
const DIDACACHE_COPY_SIXTEENTHS: u32 = 15;
/// It writes as many slabs at once as this part of the buffers, and reclaims as many: each is one block of one LUN, and takes
/// as long as its pages one after the other, where Fatcache's lies on all.
const DIDACACHE_WORKERS_SHARE: (usize, usize) = (3, 4);
/// It levels wear after so many erases for each block (section 4.1.5).
const WEAR_LEVELING: u32 = 2;
/// Slabs in memory, of which every slab class in use fills one: more than there are classes of items
/// up to 100 KiB. Where a slab is an erase block there may be memory for fewer.
const FATCACHE_SLABS: u64 = 64;
const LEAST_SLABS: u64 = 2;
/// The most that can be asked for.
const MOST_SLABS: u64 = 254;
/// The smallest and the largest slab, where it is no erase block.
const FATCACHE_SLAB_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=8 << 20;

const SLICKCACHE_WATERMARKS: (u32, u32) = (2, 5);
/// The part of the memory that SlickCache has for slabs being filled, where nothing is said: its memory is for the index.
const SLICKCACHE_BUFFER_SHARE: u64 = 8;
/// The most of the memory that its index takes, in percent.
const SLICKCACHE_INDEX_PERCENT: u32 = 75;
/// Some slabs of it are being written while others are filled.
const SLICKCACHE_LEAST_SLABS: u64 = 6;

/// Reads in the small queue that take an item to the main one.
const S3_FIFO_READS: u32 = 2;
/// All that has been read in the main queue goes to its end again, as long as that gains.
const S3_FIFO_COPY_SIXTEENTHS: u32 = 15;
/// Insertion points of RIPQ in Flashield (sections 2.2 and 5.1).
const RIPQ_PRIORITIES: u8 = 8;
/// One for each of these, and some being written.
const RIPQ_BUFFERS: usize = 12;
const VICTIM_BUFFERS: usize = 4;
/// Items are spread over several segments that are being filled, so that these get full.
const FLASHIELD_BUFFERS: usize = 7;
const FLASHIELD_INDEX_PERCENT: u32 = 50;
/// The part of the memory that the buffers of RIPQ may have: the rest is for items and their index.
const RIPQ_BUFFER_SHARE: u64 = 8;
/// Segments that each of the two writes and reclaims at once.
const VICTIM_WORKERS: usize = 2;
/// What both keep free, in percent of the flash.
const VICTIM_WATERMARKS: (u32, u32) = (2, 5);

const FIFO: ReclaimPolicy = copy_valid(Victim::Oldest, FATCACHE_COPY_SIXTEENTHS);
const GREEDY: ReclaimPolicy = copy_valid(Victim::FewestValid, FATCACHE_COPY_SIXTEENTHS);
const KICK: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::FewestValid,
};
const FIFO_DROP: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::Oldest,
};
const INTEGRATED: ReclaimPolicy = integrated(DIDACACHE_COPY_SIXTEENTHS);
/// Space-based eviction alone copies whatever gains, as Fatcache does.
const SPACE: ReclaimPolicy = copy_valid(Victim::FewestValid, FATCACHE_COPY_SIXTEENTHS);
/// Segments with valid bytes are never copied: only empty ones are reclaimed before the low watermark.
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

/// What a preset is made for; it also runs on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFor {
    /// A drive, or a file on one.
    Drive,
    /// Flash whose blocks it erases itself.
    Flash,
}

/// A named combination of the engine's parts.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The device that the experiments give it.
    pub made_for: MadeFor,
    /// Its settings for an engine of some sizes.
    pub config: fn(Sizes) -> EngineConfig,
}

const fn preset(
    made_for: MadeFor,
    name: &'static str,
    about: &'static str,
    config: fn(Sizes) -> EngineConfig,
) -> Preset {
    Preset {
        name,
        about,
        made_for,
        config,
    }
}

/// Fatcache, with its schedule and its policy.
macro_rules! fatcache {
    ($name:literal, $about:literal, $schedule:ident, $policy:ident) => {
        preset(Drive, $name, $about, |sizes| {
            fatcache(sizes, Schedule::$schedule, $policy)
        })
    };
}

/// `DIDACache`, with its policy and its reserve.
macro_rules! didacache {
    ($name:literal, $about:literal, $policy:ident, $reserve:expr) => {
        preset(Flash, $name, $about, |sizes| {
            didacache(sizes, $policy, $reserve)
        })
    };
}

/// Every preset.
#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    preset(Drive, "flowstone", "items in memory; what leaves it is packed into segments; what is read stays on flash", flowstone),
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
    preset(Drive, "slickcache", "SlickCache: a sixth of the index in memory, the rest on flash; drops the oldest slab", slickcache_drop),
    preset(Drive, "slickcache-gc", "the same; copies what the part of the index in memory still names", slickcache_gc),
    preset(Drive, "sliced", "an index of slices (ANCS '14): half a byte of memory an item, all else on flash; drops the oldest segment", sliced),
    preset(Drive, "flashield", "Flashield: what is expected to be read again and not updated goes to flash; less than 4 bytes of index an item", flashield),
    preset(Drive, "flashield-one-clock", "the same; memory and flash have one CLOCK, as in the paper", flashield_one_clock),
    preset(Drive, "s3-fifo", "S3-FIFO: what has been read twice in memory goes to flash, and what comes back; what is read there is copied", s3_fifo),
    preset(Drive, "victim", "items in memory; whatever leaves it is written, and dropped in order of age", victim),
    preset(Drive, "ripq", "RIPQ: the same on a segmented LRU of 8 priorities; what is read moves up when its segment goes", ripq),
    preset(Flash, "didacache-unleveled", "without wear leveling", unleveled),
];

/// What every engine of these sizes has.
fn sized(sizes: Sizes) -> EngineConfig {
    EngineConfig {
        memory_bytes: sizes.memory_bytes,
        max_value_bytes: sizes.max_value_bytes,
        segment_bytes: sizes.segment_bytes,
        ..EngineConfig::default()
    }
}

fn flowstone(sizes: Sizes) -> EngineConfig {
    let mut config = sized(sizes);
    let segment_bytes = sizes
        .block_bytes
        .unwrap_or_else(|| config.choose_segment_bytes(sizes.flash_bytes));
    if let Some(bytes) = sizes.buffer_bytes {
        let buffers = bytes / u64::from(segment_bytes);
        config.writing.buffers = buffers.clamp(LEAST_SLABS, MOST_SLABS) as usize;
    }
    if sizes.block_bytes.is_some() {
        // On flash, all buffers but the one that is being filled.
        config.writing.writers = config.writing.buffers - 1;
    }
    config
}

/// As a victim cache has it, with memory as a filter: what is on flash is read from there.
fn filter(sizes: Sizes, admission: Admission, policy: ReclaimPolicy) -> EngineConfig {
    let mut config = EngineConfig {
        admission,
        dram: Dram::Filter,
        ..victim(sizes)
    };
    config.reclaim.policy = policy;
    config
}

/// Flashield (NSDI '19): what has been read since it was written goes back to memory when its segment goes, and has to prove
/// itself again.
fn flashield(sizes: Sizes) -> EngineConfig {
    let policy = ReclaimPolicy::ReturnRecent {
        victim: Victim::Oldest,
    };
    let mut config = filter(sizes, Admission::Learned(Learning::default()), policy);
    config.placement = PlacementConfig::Hashed(HashedSettings::new(FLASHIELD_INDEX_PERCENT));
    config.writing.buffers = FLASHIELD_BUFFERS;
    config
}

/// As the paper ranks what is to be evicted: one CLOCK over memory and flash.
fn flashield_one_clock(sizes: Sizes) -> EngineConfig {
    let mut config = flashield(sizes);
    config.placement = PlacementConfig::Hashed(HashedSettings {
        one_clock: true,
        ..HashedSettings::new(FLASHIELD_INDEX_PERCENT)
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
        Admission::Ghosts {
            reads: S3_FIFO_READS,
        },
        policy,
    )
}

/// No items in memory but those in write buffers, for which there are so many bytes where nothing is said, and slots on
/// flash.
fn slabs(sizes: Sizes, for_slabs: u64) -> EngineConfig {
    let usual = sized(sizes);
    let most = sizes.buffer_bytes.map_or(FATCACHE_SLABS, |_| MOST_SLABS);
    let for_slabs = sizes.buffer_bytes.unwrap_or(for_slabs);
    let slab_bytes = match sizes.block_bytes.or(sizes.segment_bytes) {
        Some(bytes) => u64::from(bytes),
        None => slab_bytes(&usual, for_slabs / FATCACHE_SLABS),
    };
    let buffers = (for_slabs / slab_bytes).clamp(LEAST_SLABS, most) as usize;
    let mut config = EngineConfig {
        segment_bytes: u32::try_from(slab_bytes).ok(),
        dram: Dram::WriteBuffers {
            spare_buffers: Some((buffers / SPARE_SHARE).max(1)),
        },
        placement: PlacementConfig::Exact(ExactSettings {
            layout: Layout::Slotted,
            index_percent: FATCACHE_INDEX_PERCENT,
            priorities: 1,
        }),
        write_back: None,
        ..usual
    };
    config.writing.buffers = buffers;
    config
}

fn fatcache(sizes: Sizes, schedule: Schedule, policy: ReclaimPolicy) -> EngineConfig {
    fatcache_with(
        sizes,
        sizes.memory_bytes / FATCACHE_BUFFER_SHARE,
        (schedule, policy),
    )
}

fn fatcache_with(
    sizes: Sizes,
    for_slabs: u64,
    (schedule, policy): (Schedule, ReclaimPolicy),
) -> EngineConfig {
    let mut config = slabs(sizes, for_slabs);
    config.reclaim.policy = policy;
    config.reclaim.schedule = schedule;
    config.reclaim.reclaimers = SERVERS;
    config.reclaim.bound_copies = false;
    config.writing.writers = (config.writing.buffers / WRITERS_SHARE).clamp(1, SERVERS);
    if sizes.block_bytes.is_none() {
        config.writing.write_bytes = config.segment_bytes;
    }
    config
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

/// `SlickCache` on Fatcache-Async, with a policy (sections 4.3 and 5.1).
fn slickcache(sizes: Sizes, policy: ReclaimPolicy) -> EngineConfig {
    let least = slab_bytes(&sized(sizes), 0) * SLICKCACHE_LEAST_SLABS;
    let for_slabs = (sizes.memory_bytes / SLICKCACHE_BUFFER_SHARE).max(least);
    let mut config = fatcache_with(sizes, for_slabs, (Schedule::Background, policy));
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
        max_copy_sixteenths: FATCACHE_COPY_SIXTEENTHS,
    };
    slickcache(sizes, policy)
}

/// What SlickCache is, with a `SliceHash` as its index and packed items.
fn sliced(sizes: Sizes) -> EngineConfig {
    let mut config = slickcache(sizes, FIFO_DROP);
    config.placement = PlacementConfig::Sliced(SlicedSettings::new(SLICKCACHE_INDEX_PERCENT));
    config
}

/// Items in memory, all of which go to flash when they leave it (Flashield, section 2.2).
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
    config.reclaim.policy = FIFO_DROP;
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
    if let PlacementConfig::Exact(exact) = &mut config.placement {
        exact.priorities = RIPQ_PRIORITIES;
    }
    config.reclaim.policy = ReclaimPolicy::CopyPromoted;
    config.reclaim.bound_copies = false;
    config.writing.buffers = RIPQ_BUFFERS;
    config
}

/// The largest power of two up to `wanted` bytes that a slab can have, and that holds every item.
fn slab_bytes(config: &EngineConfig, wanted: u64) -> u64 {
    let (least, most) = FATCACHE_SLAB_BYTES.into_inner();
    let mut bytes = 1 << wanted.clamp(least, most).ilog2();
    while bytes < most && config.largest_body() > largest_item(bytes as u32) as usize {
        bytes *= 2;
    }
    bytes
}

/// No preset has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no preset is called `{0}`; choose from {known}", known = names())]
pub struct UnknownPreset(pub String);

/// The preset called `name`.
pub fn named(name: &str) -> Result<&'static Preset, UnknownPreset> {
    let mut presets = PRESETS.iter();
    presets
        .find(|preset| preset.name == name)
        .ok_or_else(|| UnknownPreset(name.to_owned()))
}

/// The presets, one a line with what it is, for help texts.
pub fn list() -> String {
    let mut text = "Presets:".to_owned();
    for Preset { name, about, .. } in PRESETS {
        let _ = write!(text, "\n  {name:26}{about}");
    }
    text
}

fn names() -> String {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_name_and_others_are_listed() {
        for preset in PRESETS {
            assert_eq!(named(preset.name).unwrap().name, preset.name);
        }
        let error = named("bigcache").unwrap_err().to_string();
        assert!(error.contains("`bigcache`") && error.contains("fatcache-async-fifo-drop"));
    }

    fn sizes(memory_mib: u64, flash_gib: u64, block_bytes: Option<u32>) -> Sizes {
        Sizes {
            memory_bytes: memory_mib << 20,
            flash_bytes: flash_gib << 30,
            block_bytes,
            segment_bytes: None,
            buffer_bytes: None,
            max_value_bytes: 1 << 20,
        }
    }

    #[test]
    fn every_preset_fits_usual_sizes() {
        for preset in PRESETS {
            for (memory_mib, flash_gib, block_bytes) in [
                (64, 1, None),
                (256, 4, None),
                (256, 4, Some(8 << 20)),
                (4096, 256, None),
            ] {
                let sizes = sizes(memory_mib, flash_gib, block_bytes);
                let config = (preset.config)(sizes);
                let usual = config.choose_segment_bytes(sizes.flash_bytes);
                let segment = block_bytes.unwrap_or(usual);
                let checked = config.check(sizes.flash_bytes / u64::from(segment), segment);
                assert_eq!(checked, Ok(()), "{} {sizes:?}", preset.name);
            }
        }
    }

    #[test]
    fn slickcache_has_its_memory_for_the_index() {
        let preset = named("slickcache-gc").unwrap();
        for (memory_mib, buffers) in [(64, 6), (1024, 64)] {
            let config = (preset.config)(sizes(memory_mib, 4, None));
            assert_eq!(config.placement.index_percent(), 75);
            assert_eq!(
                (config.writing.buffers, config.segment_bytes),
                (buffers, Some(2 << 20))
            );
            assert!(config.writing.writers >= 2);
        }
        // What is asked for counts as with Fatcache.
        let asked = Sizes {
            buffer_bytes: Some(32 << 20),
            ..sizes(1024, 4, None)
        };
        let fatcache = named("fatcache-async").unwrap();
        let buffers = [preset, fatcache].map(|preset| (preset.config)(asked).writing);
        assert_eq!(buffers[0], buffers[1]);
    }

    #[test]
    fn fatcache_has_the_buffers_of_the_paper() {
        let on_flash = sizes(256, 4, Some(8 << 20));
        let config = (named("fatcache-async").unwrap().config)(on_flash);
        assert_eq!(config.writing.buffers as u64 * (8 << 20), 128 << 20);
        let on_a_drive = (named("fatcache-sync").unwrap().config)(sizes(256, 4, None));
        assert_eq!(
            (on_a_drive.writing.buffers, on_a_drive.segment_bytes),
            (64, Some(2 << 20))
        );
    }
}
