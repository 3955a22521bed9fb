//! The systems of a program: each is a feature of this package, on by default. `serve`, `compare` and `check` offer the
//! presets and the kinds of admission of the systems that are compiled in.
//!
//! Other packages name a system through this one: `systems::slickcache`. Code that needs a system stands under
//! `#[cfg(system = "slickcache")]`. Its package depends on this one and has the same build script, which sets the condition.

#![forbid(unsafe_code)]

use engine::admission::ADMISSIONS;
use engine::preset::{FLOWSTONE, Presets, RUNS};

#[cfg(system = "didacache")]
pub use didacache;
#[cfg(system = "flashield")]
pub use flashield;
#[cfg(system = "slickcache")]
pub use slickcache;
#[cfg(system = "slices")]
pub use {sliced, slices};

/// Presets and kinds of admission: those of the product, and those of every system of the list.
pub const PRESETS: Presets = Presets {
    presets: &[
        &[FLOWSTONE, RUNS],
        #[cfg(system = "didacache")]
        didacache::PRESETS,
        #[cfg(system = "slickcache")]
        slickcache::PRESETS,
        #[cfg(system = "slices")]
        sliced::PRESETS,
        #[cfg(system = "flashield")]
        flashield::PRESETS,
    ],
    admissions: &[
        ADMISSIONS,
        #[cfg(system = "flashield")]
        flashield::ADMISSIONS,
    ],
};

#[cfg(test)]
mod tests {
    use engine::config::Sizes;

    use super::PRESETS;

    #[test]
    fn presets_are_found_by_name_and_others_are_listed() {
        for preset in PRESETS.iter() {
            assert_eq!(PRESETS.named(preset.name).unwrap().name, preset.name);
        }
        let error = PRESETS.named("bigcache").unwrap_err().to_string();
        assert!(error.contains("`bigcache`"));
        assert!(PRESETS.iter().all(|preset| error.contains(preset.name)));
    }

    #[cfg(system = "flashield")]
    #[test]
    fn admissions_are_found_by_name_and_others_are_told_all_forms() {
        for (text, reads) in [("learned", 1), ("learned:10", 10)] {
            let found = PRESETS.admission(text).unwrap();
            let learning = found.settings::<flashield::Learning>().unwrap();
            assert_eq!(learning.reads, reads);
        }
        for (text, name) in [("all", "all"), ("random:3", "random"), ("ghosts", "ghosts")] {
            assert_eq!(PRESETS.admission(text).unwrap().name(), name);
        }
        for wrong in ["", "learned:", "random", "all:1"] {
            let error = PRESETS.admission(wrong).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "`{wrong}` is no admission; write all, random:PERCENT, ghosts:READS, reread:READS, adaptive:READS \
                     or learned:READS"
                )
            );
        }
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
        for preset in PRESETS.iter() {
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
                let checked = engine::config::check::check_image(
                    &config,
                    sizes.flash_bytes / u64::from(segment),
                    segment,
                );
                assert_eq!(checked, Ok(()), "{} {sizes:?}", preset.name);
            }
        }
    }

    #[cfg(all(system = "slickcache", system = "didacache"))]
    #[test]
    fn slickcache_has_its_memory_for_the_index() {
        let preset = PRESETS.named("slickcache-gc").unwrap();
        for (memory_mib, buffers) in [(64, 6), (1024, 64)] {
            let config = (preset.config)(sizes(memory_mib, 4, None));
            assert_eq!(config.index.percent, 75);
            assert_eq!(
                (config.writing.buffers, config.segment_bytes),
                (buffers, Some(2 << 20))
            );
            assert!(config.writing.writers >= 2);
        }
        // A requested buffer size has the same effect as with Fatcache.
        let asked = Sizes {
            buffer_bytes: Some(32 << 20),
            ..sizes(1024, 4, None)
        };
        let fatcache = PRESETS.named("fatcache-async").unwrap();
        let buffers = [preset, fatcache].map(|preset| (preset.config)(asked).writing);
        assert_eq!(buffers[0], buffers[1]);
    }

    #[cfg(system = "didacache")]
    #[test]
    fn fatcache_has_the_buffers_of_the_paper() {
        let on_flash = sizes(256, 4, Some(8 << 20));
        let config = (PRESETS.named("fatcache-async").unwrap().config)(on_flash);
        assert_eq!(config.writing.buffers as u64 * (8 << 20), 128 << 20);
        let on_a_drive = (PRESETS.named("fatcache-sync").unwrap().config)(sizes(256, 4, None));
        assert_eq!(
            (on_a_drive.writing.buffers, on_a_drive.segment_bytes),
            (64, Some(2 << 20))
        );
    }
}
