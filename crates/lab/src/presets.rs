//! Presets: systems as named combinations of the engine's parts.
//!
//! | preset | DRAM | segments | victim | its items | who works |
//! |---|---|---|---|---|---|
//! | `flowstone` | item cache | packed | oldest | those read are kept | background |
//! | `fatcache-sync[-...]` | write buffers | slotted | | | whoever finds no room |
//! | `fatcache-async[-...]` | write buffers | slotted | | | background |
//! | `...-fifo`, or nothing | | | oldest | all valid ones are kept | |
//! | `...-greedy` | | | fewest valid bytes | all valid ones are kept | |
//! | `...-kick` | | | fewest valid bytes | dropped | |
//! | `...-fifo-drop` | | | oldest | dropped | |
//! | `didacache[-...]` | write buffers | slotted | fewest valid bytes | valid ones, where that gains | background |
//! | `...-static`, `...-heuristic` | | | | | |
//! | `...-space` | | | | all valid ones are kept | |
//! | `...-locality` | | | | only empty ones are reclaimed | |
//! | `...-unleveled` | | | | | |
//!
//! Below the low watermark `didacache` drops the least recently read segment; its watermarks are those of
//! a queue unless its name tells otherwise. `unleveled` does without wear leveling.
//!
//! Fatcache and its schemes: DIDACache (TOS 2018), sections 5.1 and 5.4.3. `fifo-drop` is the
//! baseline of SlickCache.

use engine::EngineConfig;
use engine::config::{DramUse, Maintenance, Sizes};
use engine::format::segment::largest_item;
use engine::placement::exact::{Keep, Pressure, Reserve, StaticReserve};
use engine::store::{Layout, Victim};

/// The part of the memory that Fatcache has for slabs being filled, as in the paper: 128 MiB of 256.
const FATCACHE_BUFFER_SHARE: u64 = 2;
/// The most of the memory that its index takes, in percent; the other half is for slabs.
const FATCACHE_INDEX_PERCENT: u32 = 40;
/// One of so many buffers is written at once, each by one command where it is not an erase block; the others
/// are being filled.
const WRITERS_SHARE: usize = 4;
/// The paper runs so many servers beside each other, each of which writes one slab at a time.
const FATCACHE_SERVERS: usize = 8;
/// One of so many buffers is kept free by its drain; what is in the others is read from memory.
const SPARE_SHARE: usize = 8;
/// It copies whatever gains a sixteenth of a slab.
const FATCACHE_COPY_SIXTEENTHS: u32 = 15;
/// `didacache` copies what gains a quarter, and drops the rest under pressure.
const DIDACACHE_COPY_SIXTEENTHS: u32 = 12;
/// Some of its reclaimers can drop while others copy.
const DIDACACHE_RECLAIMERS: usize = 4;
/// One of so many of its buffers is always there to be filled; the others may be written at once.
const DIDACACHE_FILLING_SHARE: usize = 4;
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

/// A named combination of the engine's parts.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    parts: Parts,
}

#[derive(Clone, Copy, Debug)]
enum Parts {
    Flowstone,
    Fatcache(Maintenance, Victim, Keep),
    Didacache(Collection, Reserve, Option<u32>),
}

/// How `didacache` reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collection {
    /// Copies between the watermarks, drops below them.
    Integrated,
    /// Copies only.
    Space,
    /// Drops only.
    Locality,
}

const FIFO: (Victim, Keep) = (Victim::Oldest, Keep::Valid);
const GREEDY: (Victim, Keep) = (Victim::FewestValid, Keep::Valid);
const KICK: (Victim, Keep) = (Victim::FewestValid, Keep::Nothing);
const FIFO_DROP: (Victim, Keep) = (Victim::Oldest, Keep::Nothing);

const fn sync(name: &'static str, (victim, keep): (Victim, Keep)) -> Preset {
    let parts = Parts::Fatcache(Maintenance::OnDemand, victim, keep);
    Preset { name, parts }
}

const fn background(name: &'static str, (victim, keep): (Victim, Keep)) -> Preset {
    let parts = Parts::Fatcache(Maintenance::Background, victim, keep);
    Preset { name, parts }
}

/// What conventional drives hold back: with a cache full of valid items as many segments are free as the low
/// watermark says.
const STATIC: Reserve = Reserve::Static(StaticReserve {
    low_percent: 25,
    high_percent: 40,
});

const fn didacache(name: &'static str, collection: Collection, reserve: Reserve) -> Preset {
    let parts = Parts::Didacache(collection, reserve, Some(WEAR_LEVELING));
    Preset { name, parts }
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "flowstone",
        parts: Parts::Flowstone,
    },
    sync("fatcache-sync", FIFO),
    sync("fatcache-sync-fifo", FIFO),
    sync("fatcache-sync-greedy", GREEDY),
    sync("fatcache-sync-kick", KICK),
    sync("fatcache-sync-fifo-drop", FIFO_DROP),
    background("fatcache-async", FIFO),
    background("fatcache-async-fifo", FIFO),
    background("fatcache-async-greedy", GREEDY),
    background("fatcache-async-kick", KICK),
    background("fatcache-async-fifo-drop", FIFO_DROP),
    didacache("didacache", Collection::Integrated, Reserve::Queueing),
    didacache("didacache-static", Collection::Integrated, STATIC),
    didacache(
        "didacache-heuristic",
        Collection::Integrated,
        Reserve::Heuristic,
    ),
    didacache("didacache-space", Collection::Space, Reserve::Queueing),
    didacache(
        "didacache-locality",
        Collection::Locality,
        Reserve::Queueing,
    ),
    Preset {
        name: "didacache-unleveled",
        parts: Parts::Didacache(Collection::Integrated, Reserve::Queueing, None),
    },
];

impl Preset {
    /// Its settings for an engine of these sizes.
    #[must_use]
    pub fn config(&self, sizes: Sizes) -> EngineConfig {
        let config = EngineConfig {
            memory_bytes: sizes.memory_bytes,
            max_value_bytes: sizes.max_value_bytes,
            ..EngineConfig::default()
        };
        let given = sizes.block_bytes.or(sizes.segment_bytes);
        if let Parts::Flowstone = self.parts {
            let segment_bytes =
                u64::from(given.unwrap_or_else(|| config.choose_segment_bytes(sizes.flash_bytes)));
            let buffers = sizes.buffer_bytes.map(|bytes| bytes / segment_bytes);
            let buffers = buffers.map_or(config.buffers, |buffers| {
                buffers.clamp(2, MOST_SLABS) as usize
            });
            return EngineConfig {
                segment_bytes: sizes.segment_bytes,
                buffers,
                // On flash, all buffers but the one that is being filled.
                writers: sizes.block_bytes.map_or(1, |_| buffers - 1),
                ..config
            };
        }
        let for_slabs = sizes.memory_bytes / FATCACHE_BUFFER_SHARE;
        let most = sizes.buffer_bytes.map_or(FATCACHE_SLABS, |_| MOST_SLABS);
        let for_slabs = sizes.buffer_bytes.unwrap_or(for_slabs);
        let slab_bytes = match given {
            Some(bytes) => u64::from(bytes),
            None => slab_bytes(&config, for_slabs / FATCACHE_SLABS),
        };
        let buffers = (for_slabs / slab_bytes).clamp(LEAST_SLABS, most) as usize;
        let slabs = EngineConfig {
            segment_bytes: u32::try_from(slab_bytes).ok(),
            buffers,
            index_percent: FATCACHE_INDEX_PERCENT,
            dram: DramUse::WriteBuffers,
            layout: Layout::Slotted,
            max_copy_sixteenths: FATCACHE_COPY_SIXTEENTHS,
            spare_buffers: Some((buffers / SPARE_SHARE).max(1)),
            ..config
        };
        match self.parts {
            Parts::Flowstone => slabs,
            Parts::Fatcache(maintenance, victim, keep) => EngineConfig {
                victim,
                keep,
                // Nobody waits for what is dropped.
                pressure: match keep {
                    Keep::Nothing => Pressure::Drop(victim),
                    Keep::Recent | Keep::Valid => Pressure::Wait,
                },
                maintenance,
                writers: (buffers / WRITERS_SHARE).clamp(1, FATCACHE_SERVERS),
                write_bytes: sizes.block_bytes.is_none().then_some(slab_bytes as u32),
                ..slabs
            },
            Parts::Didacache(collection, reserve, wear_leveling) => EngineConfig {
                victim: Victim::FewestValid,
                keep: Keep::Valid,
                pressure: match collection {
                    Collection::Space => Pressure::Wait,
                    _ => Pressure::Drop(Victim::LeastRecentlyRead),
                },
                max_copy_sixteenths: match collection {
                    Collection::Integrated | Collection::Space => DIDACACHE_COPY_SIXTEENTHS,
                    Collection::Locality => 0,
                },
                reclaimers: DIDACACHE_RECLAIMERS,
                reserve,
                wear_leveling,
                writers: (buffers - buffers / DIDACACHE_FILLING_SHARE).max(1),
                ..slabs
            },
        }
    }
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
///
/// # Errors
/// When there is none: the line names those there are.
pub fn named(name: &str) -> Result<&'static Preset, UnknownPreset> {
    let mut presets = PRESETS.iter();
    presets
        .find(|preset| preset.name == name)
        .ok_or_else(|| UnknownPreset(name.to_owned()))
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

    #[test]
    fn every_preset_fits_usual_sizes() {
        for preset in PRESETS {
            for (memory_mib, flash_gib, block_bytes) in [
                (64, 1, None),
                (256, 4, None),
                (256, 4, Some(8 << 20)),
                (4096, 256, None),
            ] {
                let sizes = Sizes {
                    memory_bytes: memory_mib << 20,
                    flash_bytes: flash_gib << 30,
                    block_bytes,
                    segment_bytes: None,
                    buffer_bytes: None,
                    max_value_bytes: 1 << 20,
                };
                let config = preset.config(sizes);
                let usual = config.choose_segment_bytes(sizes.flash_bytes);
                let segment = block_bytes.unwrap_or(usual);
                let checked = config.check(sizes.flash_bytes / u64::from(segment), segment);
                assert_eq!(checked, Ok(()), "{} {sizes:?}", preset.name);
            }
        }
    }

    #[test]
    fn fatcache_has_the_buffers_of_the_paper() {
        let sizes = Sizes {
            memory_bytes: 256 << 20,
            flash_bytes: 4 << 30,
            block_bytes: Some(8 << 20),
            segment_bytes: None,
            buffer_bytes: None,
            max_value_bytes: 1 << 20,
        };
        let config = named("fatcache-async").unwrap().config(sizes);
        assert_eq!(config.buffers as u64 * (8 << 20), 128 << 20);
        let on_a_drive = named("fatcache-sync").unwrap().config(Sizes {
            block_bytes: None,
            ..sizes
        });
        assert_eq!(
            (on_a_drive.buffers, on_a_drive.segment_bytes),
            (64, Some(2 << 20))
        );
    }
}
