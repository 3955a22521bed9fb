//! Presets: systems as named combinations of the engine's parts.
//!
//! A preset turns sizes into an [`EngineConfig`] and says which devices it can use.

use engine::EngineConfig;

/// What an engine is made for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Memory for everything it holds, in bytes.
    pub memory_bytes: u64,
    /// Bytes of the largest value.
    pub max_value_bytes: u32,
}

/// What a preset can store its items on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A drive that can be overwritten anywhere: `ftl:` and `file:`.
    Disk,
    /// Flash without a translation layer: `nand:`.
    Flash,
}

/// A named combination of the engine's parts.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What it can use.
    pub storage: &'static [Storage],
    /// Its settings for an engine of given sizes.
    pub config: fn(Sizes) -> EngineConfig,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[Preset {
    name: "flowstone",
    about: "the default: an item cache in memory, packed segments, reclaim keeps what was read",
    storage: &[Storage::Disk],
    config: flowstone,
}];

fn flowstone(sizes: Sizes) -> EngineConfig {
    EngineConfig {
        memory_bytes: sizes.memory_bytes,
        max_value_bytes: sizes.max_value_bytes,
        ..EngineConfig::default()
    }
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
            assert_eq!(named(preset.name).unwrap().about, preset.about);
        }
        let error = named("bigcache").unwrap_err().to_string();
        assert!(error.contains("`bigcache`") && error.contains("flowstone"));
    }
}
