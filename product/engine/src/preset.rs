//! Presets: systems as named combinations of the engine's parts. This module defines the default, [`FLOWSTONE`]. The system
//! of a paper defines its presets in its folder of `systems/`, from the shapes that this module shares: a cache of items
//! ([`sized`]), a cache of write buffers ([`slabs`], [`write_buffers`]), and a cache of write buffers with an index on flash
//! ([`index_on_flash`]).

use std::fmt::Write;
use std::sync::Arc;

use crate::admission::{self, ADMISSIONS, AdmissionKind, AdmissionName, UnknownAdmission};
use crate::config::{
    Dram, EngineConfig, IndexSettings, ReclaimPolicy, Reserve, Schedule, Sizes, StaticReserve,
};
use crate::format::segment::largest_item;
use crate::placement::{ExactSettings, PlacementKind, RunsSettings};
use crate::store::Layout;

/// Largest share of the memory for the index of a cache of write buffers, in percent. Half of the memory is for slabs.
const SLABS_INDEX_PERCENT: u32 = 40;
/// A quarter of the buffers is written at once, each by one command unless a slab is an erase block. The others are being
/// filled.
const WRITERS_SHARE: usize = 4;
/// Number of servers that Fatcache runs side by side (DIDACache, TOS 2018, section 5.1). Each writes one slab at a time and
/// reclaims one.
const SERVERS: usize = 8;
/// An eighth of the buffers is kept free by the drain. The other buffers answer reads from memory.
const SPARE_SHARE: usize = 8;
/// Number of slabs in memory if their size is not given. Each class of items fills one, and there are fewer classes of items
/// up to 100 KiB.
const SLABS: u64 = 64;
/// Fewest slabs in memory.
const LEAST_SLABS: u64 = 2;
/// Most slabs in memory.
const MOST_SLABS: u64 = 254;
/// Share of the memory, as a divisor, for slabs being filled, if the index is mostly on flash and their bytes are not given.
const INDEX_ON_FLASH_BUFFER_SHARE: u64 = 8;
/// Fewest slabs of a cache with its index on flash: some are written while others are filled.
const INDEX_ON_FLASH_LEAST_SLABS: u64 = 6;
/// Free slabs of a cache with its index on flash at which reclaim starts, and at which it stops, in percent of the flash.
const INDEX_ON_FLASH_WATERMARKS: (u32, u32) = (2, 5);
/// Memory of a partition whose items are written in runs.
const RUNS_PARTITION_BYTES: u64 = 16 << 20;
/// Bytes of flash for each byte of memory from which on more of the memory collects items for runs.
const RUNS_LARGE_FLASH: u64 = 32;
/// Sixteenths of a segment that `runs` takes back.
const RUNS_TAKEN_BACK: u32 = 4;
/// Smallest and largest slab, in bytes, unless a slab is an erase block.
const SLAB_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=8 << 20;

/// Device for which a preset is made; it also runs on the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFor {
    /// A drive, or a file on one.
    Drive,
    /// Flash whose blocks the cache erases itself.
    Flash,
}

/// A named combination of the engine's parts.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Device that the experiments give to the preset.
    pub made_for: MadeFor,
    /// Returns the settings for an engine of the given sizes.
    pub config: fn(Sizes) -> EngineConfig,
}

impl Preset {
    /// Returns a preset made for a drive, or for a file on one.
    pub const fn of_drive(
        name: &'static str,
        about: &'static str,
        config: fn(Sizes) -> EngineConfig,
    ) -> Self {
        let made_for = MadeFor::Drive;
        Self {
            name,
            about,
            made_for,
            config,
        }
    }

    /// Returns a preset made for flash whose blocks the cache erases itself.
    pub const fn of_flash(
        name: &'static str,
        about: &'static str,
        config: fn(Sizes) -> EngineConfig,
    ) -> Self {
        let made_for = MadeFor::Flash;
        Self {
            name,
            about,
            made_for,
            config,
        }
    }
}

/// The default preset.
pub const FLOWSTONE: Preset = Preset::of_drive(
    "flowstone",
    "items in memory; what leaves it is packed into segments; what is read stays on flash",
    flowstone,
);

/// The preset whose index takes about a byte an item: items are written in the order of their hashes.
pub const RUNS: Preset = Preset::of_drive(
    "runs",
    "items collect in memory and are written in the order of their hashes; a byte of memory an item on flash",
    runs,
);

/// Presets and kinds of admission of a program: those of the product alone, or also those of the systems that are compiled in.
#[derive(Clone, Copy, Debug)]
pub struct Presets {
    /// The presets.
    pub presets: &'static [&'static [Preset]],
    /// The kinds of admission by name.
    pub admissions: &'static [&'static [AdmissionName]],
}

impl Presets {
    /// Presets of a program without any of the papers' systems.
    pub const PRODUCT: Self = Self {
        presets: &[&[FLOWSTONE, RUNS]],
        admissions: &[ADMISSIONS],
    };

    /// Returns every preset, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = &'static Preset> {
        self.presets.iter().copied().flatten()
    }

    /// Returns the preset called `name`.
    ///
    /// # Errors
    /// [`UnknownPreset`], which lists the known presets.
    pub fn named(self, name: &str) -> Result<&'static Preset, UnknownPreset> {
        let found = self.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| UnknownPreset {
            name: name.to_owned(),
            known: self.names(),
        })
    }

    /// Returns the kind of admission that a setting such as `random:30` names.
    ///
    /// # Errors
    /// [`UnknownAdmission`], which lists the known forms.
    pub fn admission(self, text: &str) -> Result<Arc<dyn AdmissionKind>, UnknownAdmission> {
        admission::parse(text, self.admissions.iter().copied().flatten())
    }

    /// Returns the list of presets for a help text, one line each with the description.
    pub fn list(self) -> String {
        let mut text = "Presets:".to_owned();
        for Preset { name, about, .. } in self.iter() {
            let _ = write!(text, "\n  {name:26}{about}");
        }
        text
    }

    fn names(self) -> String {
        let names: Vec<&str> = self.iter().map(|preset| preset.name).collect();
        names.join(", ")
    }
}

/// No preset of the program has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no preset is called `{name}`; choose from {known}")]
pub struct UnknownPreset {
    name: String,
    known: String,
}

/// Returns the settings that all engines of these sizes share.
pub fn sized(sizes: Sizes) -> EngineConfig {
    EngineConfig {
        memory_bytes: sizes.memory_bytes,
        max_value_bytes: sizes.max_value_bytes,
        segment_bytes: sizes.segment_bytes,
        ..EngineConfig::default()
    }
}

fn flowstone(sizes: Sizes) -> EngineConfig {
    let mut config = sized(sizes);
    config.least_buffers = 1;
    let segment_bytes = sizes
        .block_bytes
        .unwrap_or_else(|| config.choose_segment_bytes(sizes.flash_bytes));
    if let Some(bytes) = sizes.buffer_bytes {
        let buffers = bytes / u64::from(segment_bytes);
        config.writing.buffers = buffers.clamp(LEAST_SLABS, MOST_SLABS) as usize;
        config.least_buffers = config.writing.buffers;
    }
    if sizes.block_bytes.is_some() {
        // On flash, each buffer has a writer except the one that is being filled.
        config.writing.writers = config.writing.buffers - 1;
    }
    config
}

fn runs(sizes: Sizes) -> EngineConfig {
    let mut config = flowstone(sizes);
    // Where flash is large, longer runs save more memory in the index than a cache of these items is worth.
    let is_flash_large = sizes.flash_bytes / sizes.memory_bytes.max(1) >= RUNS_LARGE_FLASH;
    config.placement = Arc::new(RunsSettings {
        collecting_sixteenths: if is_flash_large { 12 } else { 8 },
        marks_reads: true,
    });
    config.reclaim.policy = ReclaimPolicy::TakeBack {
        most_sixteenths: RUNS_TAKEN_BACK,
    };
    // A partition has groups enough that the fullest one has twice the mean.
    let partitions = (sizes.memory_bytes / RUNS_PARTITION_BYTES).max(1);
    config.partition_bits = partitions.ilog2().clamp(1, config.partition_bits);
    config.write_back = None;
    config
}

/// Returns the settings of a cache that keeps items in memory only in write buffers, and lays them in slots on flash.
/// `for_slabs` are the bytes of memory for the buffers if `sizes` does not give them.
pub fn slabs(sizes: Sizes, for_slabs: u64) -> EngineConfig {
    let usual = sized(sizes);
    let most = sizes.buffer_bytes.map_or(SLABS, |_| MOST_SLABS);
    let for_slabs = sizes.buffer_bytes.unwrap_or(for_slabs);
    let slab_bytes = match sizes.block_bytes.or(sizes.segment_bytes) {
        Some(bytes) => u64::from(bytes),
        None => slab_bytes(&usual, for_slabs / SLABS),
    };
    let buffers = (for_slabs / slab_bytes).clamp(LEAST_SLABS, most) as usize;
    let mut config = EngineConfig {
        segment_bytes: u32::try_from(slab_bytes).ok(),
        dram: Dram::WriteBuffers {
            spare_buffers: Some((buffers / SPARE_SHARE).max(1)),
        },
        placement: Arc::new(ExactSettings {
            layout: Layout::Slotted,
            priorities: 1,
        }),
        index: IndexSettings::of_memory(SLABS_INDEX_PERCENT),
        write_back: None,
        ..usual
    };
    config.writing.buffers = buffers;
    config
}

/// Returns the settings of Fatcache: [`slabs`] with a schedule and a policy of reclaim (DIDACache, TOS 2018, section 5.1).
pub fn write_buffers(
    sizes: Sizes,
    for_slabs: u64,
    schedule: Schedule,
    policy: ReclaimPolicy,
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

/// Returns the settings of [`write_buffers`] with an index that is mostly on flash. The memory is for the index, except an
/// eighth for buffers (SlickCache, SoCC 2018, on Fatcache-Async). The index takes at most `index_percent` of the memory.
pub fn index_on_flash(
    sizes: Sizes,
    policy: ReclaimPolicy,
    placement: Arc<dyn PlacementKind>,
    index_percent: u32,
) -> EngineConfig {
    let least = slab_bytes(&sized(sizes), 0) * INDEX_ON_FLASH_LEAST_SLABS;
    let for_slabs = (sizes.memory_bytes / INDEX_ON_FLASH_BUFFER_SHARE).max(least);
    let mut config = write_buffers(sizes, for_slabs, Schedule::Background, policy);
    config.writing.writers = config
        .writing
        .writers
        .max(2)
        .min(config.writing.buffers - 1);
    config.placement = placement;
    config.index = IndexSettings::of_memory(index_percent);
    config.reclaim.bound_copies = true;
    config.reclaim.reserve = Reserve::Static(StaticReserve {
        low_percent: INDEX_ON_FLASH_WATERMARKS.0,
        high_percent: INDEX_ON_FLASH_WATERMARKS.1,
    });
    config
}

/// Returns the largest power of two up to `wanted` bytes that is a valid slab size, or a larger one if an item needs it.
pub fn slab_bytes(config: &EngineConfig, wanted: u64) -> u64 {
    let (least, most) = SLAB_BYTES.into_inner();
    let mut bytes = 1 << wanted.clamp(least, most).ilog2();
    while bytes < most && config.largest_body() > largest_item(bytes as u32) as usize {
        bytes *= 2;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::check::check_image;

    #[test]
    fn an_image_of_long_segments_is_opened_with_one_buffer() {
        let segment_bytes = 65 << 20;
        let config = flowstone(Sizes {
            memory_bytes: 170 << 20,
            flash_bytes: 1 << 30,
            block_bytes: Some(segment_bytes),
            segment_bytes: None,
            buffer_bytes: None,
            max_value_bytes: 64 << 20,
        });
        assert_eq!(config.buffers(segment_bytes), 1);
        assert_eq!(config.buffers(4 << 20), 4);
        assert_eq!(check_image(&config, 15, segment_bytes), Ok(()));
    }

    #[test]
    fn a_preset_is_found_by_its_name_and_another_name_is_told_the_names() {
        let preset = Presets::PRODUCT.named("flowstone").unwrap();
        assert_eq!(preset.about, FLOWSTONE.about);
        let error = Presets::PRODUCT.named("bigcache").unwrap_err().to_string();
        assert!(error.contains("`bigcache`") && error.contains("flowstone"));
    }
}
