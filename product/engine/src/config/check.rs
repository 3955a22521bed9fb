//! Checks of the settings: whether they work together, and whether an image of a given size can have them.

use super::{
    ConfigError, Dram, EngineConfig, META_BYTES, MIN_MEMORY_BYTES, MIN_SEGMENTS, ReclaimPolicy,
};
use crate::format::journal::{LOCATION_UNITS, SEGMENT_LIMIT};
use crate::format::segment::{PAGE_BYTES, UNIT_BYTES, largest_item};
use crate::store::{FILLING_SHARE, FILLING_SHARE_OF_FLASH, SEGMENT_TABLE_BYTES, Victim};

/// Most bytes that the structures beside the buffers need.
const MOST_BESIDE_BYTES: u64 = 24 << 20;
/// Bytes for the structures beside reads of items so large that one takes more than the usual share.
const BESIDE_READS_BYTES: u64 = 3 << 20;
/// Reads of large items take at most the memory divided by this, unless one item needs more.
const READS_SHARE: u64 = 8;

/// Returns an error for the first setting that does not fit. Each has its name and its range.
fn in_range(settings: &[(bool, &'static str, &'static str)]) -> Result<(), ConfigError> {
    let wrong = settings.iter().find(|(fits, ..)| !fits);
    wrong.map_or(Ok(()), |&(_, name, range)| {
        Err(ConfigError::Range { name, range })
    })
}

/// Checks the settings for an image of `segments` segments of `segment_bytes` bytes.
///
/// # Errors
/// The first setting that cannot work.
pub fn check_image(
    config: &EngineConfig,
    segments: u64,
    segment_bytes: u32,
) -> Result<(), ConfigError> {
    let (writing, reclaim) = (&config.writing, &config.reclaim);
    let index_fits = (1..=90).contains(&config.index.percent);
    let copies_all = matches!(
        reclaim.policy,
        ReclaimPolicy::CopyValid { .. } | ReclaimPolicy::CopyPromoted
    );
    let most_copied = 15 + u32::from(copies_all);
    let copies_fit = reclaim.policy.max_copy_sixteenths() <= most_copied;
    let most_taken = match reclaim.policy {
        ReclaimPolicy::TakeBack { most_sixteenths } => most_sixteenths,
        _ => 1,
    };
    let taken_fits = (1..=15).contains(&most_taken);
    let write_fits = writing.write_bytes.is_none_or(|bytes| bytes >= PAGE_BYTES);
    let segment_fits = segment_bytes.is_multiple_of(PAGE_BYTES) && segment_bytes >= 64 << 10;
    let reclaimers_fit = (1..=254).contains(&reclaim.reclaimers);
    let leveling_fits = reclaim.wear_leveling != Some(0);
    let whole_pages = "a whole number of 4 KiB pages, 64 KiB at least";
    in_range(&[
        (config.partition_bits <= 12, "partition_bits", "0 to 12"),
        ((2..=254).contains(&writing.buffers), "buffers", "2 to 254"),
        ((1..=254).contains(&writing.writers), "writers", "1 to 254"),
        (index_fits, "index_percent", "1 to 90"),
        (
            copies_fit,
            "max_copy_sixteenths",
            "0 to 15, or 16 where all that is valid is copied",
        ),
        (taken_fits, "most_sixteenths", "1 to 15"),
        (reclaimers_fit, "reclaimers", "1 to 254"),
        (leveling_fits, "wear_leveling", "1 or more"),
    ])?;
    config.admission.check()?;
    in_range(&[
        (write_fits, "write_bytes", "4096 at least"),
        (segment_fits, "segment_bytes", whole_pages),
    ])?;
    let flash_bytes = segments.saturating_mul(u64::from(segment_bytes));
    let room = config.index_room(flash_bytes.saturating_add(META_BYTES), flash_bytes, None);
    config.placement.sizes(&room)?;
    reclaim.reserve.check()?;
    check_priorities(config, segments)?;
    let returns = matches!(
        reclaim.policy,
        ReclaimPolicy::ReturnRecent { .. } | ReclaimPolicy::TakeBack { .. }
    );
    if returns && matches!(config.dram, Dram::WriteBuffers { .. }) {
        return Err(ConfigError::NowhereToReturn);
    }
    if segments < MIN_SEGMENTS {
        return Err(ConfigError::Flash {
            given: segments * u64::from(segment_bytes) + META_BYTES,
            needed: MIN_SEGMENTS * u64::from(segment_bytes) + META_BYTES,
        });
    }
    let most_segments = (LOCATION_UNITS / u64::from(segment_bytes / UNIT_BYTES)).min(SEGMENT_LIMIT);
    if segments > most_segments {
        return Err(ConfigError::FlashTooLarge {
            given: segments.saturating_mul(u64::from(segment_bytes)),
            most: most_segments * u64::from(segment_bytes),
        });
    }
    if config.largest_body() > largest_item(segment_bytes) as usize {
        let beside = config.largest_body() as u32 - config.max_value_bytes;
        return Err(ConfigError::Value {
            value_bytes: config.max_value_bytes,
            segment_bytes,
            largest_bytes: largest_item(segment_bytes).saturating_sub(beside),
        });
    }
    // The structures beside the buffers take half as much memory again.
    let most = config.memory_bytes * 2 / 3 / u64::from(segment_bytes);
    let buffers = config.buffers(segment_bytes);
    if config.memory_bytes >= MIN_MEMORY_BYTES && most >= 2 && buffers as u64 > most {
        return Err(ConfigError::Buffers {
            buffers,
            segment_bytes,
            memory: config.memory_bytes,
            most,
        });
    }
    let buffer_bytes = buffers as u64 * u64::from(segment_bytes);
    let beside_bytes = (buffer_bytes / 2).min(MOST_BESIDE_BYTES);
    let table = segments.saturating_mul(SEGMENT_TABLE_BYTES);
    // A read of a large item may need more than its usual share.
    let usual_bytes = config.memory_bytes / READS_SHARE;
    let more = config.large_read_bytes().saturating_sub(usual_bytes);
    let for_reads = match more {
        0 => 0,
        more => more + BESIDE_READS_BYTES,
    };
    let needed = buffer_bytes + beside_bytes + for_reads + table * 2;
    let needed = needed.max(MIN_MEMORY_BYTES);
    if config.memory_bytes < needed {
        return Err(ConfigError::Memory {
            given: config.memory_bytes,
            needed,
        });
    }
    Ok(())
}

/// Checks the settings for a new image of `image_bytes` bytes.
///
/// # Errors
/// The first setting that cannot work.
pub fn check_new_image(config: &EngineConfig, image_bytes: u64) -> Result<(), ConfigError> {
    let flash_bytes = image_bytes.saturating_sub(META_BYTES);
    let segment_bytes = config.choose_segment_bytes(flash_bytes);
    let segments = flash_bytes / u64::from(segment_bytes);
    check_image(config, segments, segment_bytes).map_err(|error| match error {
        ConfigError::Flash { needed, .. } => ConfigError::Flash {
            given: image_bytes,
            needed,
        },
        error => error,
    })
}

/// Checks that segments have priorities if reclaim goes by priority, and only then; on a flash of `segments` segments.
fn check_priorities(config: &EngineConfig, segments: u64) -> Result<(), ConfigError> {
    let policy = config.reclaim.policy;
    let victims = [Some(policy.victim()), policy.under_pressure()];
    let by_priority = victims.contains(&Some(Victim::LowestPriority));
    let priorities = config.placement.describe().streams.priorities();
    let several = priorities > 1;
    let streams = u64::from(priorities);
    let fills = |held: u64, (some, of): (u64, u64)| !several || held * some / of >= streams;
    let buffers = config.writing.buffers as u64;
    let leveling = config.reclaim.wear_leveling;
    in_range(&[
        (
            several == by_priority,
            "priorities",
            "more than 1 where the lowest is reclaimed first, which is of the exact placement, and 1 elsewhere",
        ),
        (
            !several || leveling.is_none(),
            "wear_leveling",
            "off where segments have priorities",
        ),
        (
            fills(buffers, FILLING_SHARE),
            "buffers",
            "so many that three quarters are one for each priority",
        ),
        (
            fills(segments, FILLING_SHARE_OF_FLASH),
            "segments",
            "four times as many as priorities",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::placement::{ExactSettings, PlacementKind};
    use crate::store::Layout;

    #[test]
    fn what_cannot_work_is_named() {
        let config = EngineConfig::default();
        assert_eq!(check_image(&config, 512, 8 << 20), Ok(()));
        let vast = EngineConfig {
            memory_bytes: 1 << 40,
            ..EngineConfig::default()
        };
        let most = (32 << 40) / (8 << 20);
        assert_eq!(check_image(&vast, most, 8 << 20), Ok(()), "32 TiB");
        assert_eq!(
            check_image(&vast, most + 1, 8 << 20),
            Err(ConfigError::FlashTooLarge {
                given: (32 << 40) + (8 << 20),
                most: 32 << 40,
            })
        );
        assert!(matches!(
            check_image(&config, 4, 8 << 20),
            Err(ConfigError::Flash { .. })
        ));
        assert!(matches!(
            check_image(&config, 512, 1 << 20),
            Err(ConfigError::Value { .. })
        ));
        let mut buffers = EngineConfig::default();
        buffers.writing.buffers = 30;
        let refused = check_image(&buffers, 512, 8 << 20).unwrap_err();
        assert!(
            matches!(refused, ConfigError::Buffers { most: 21, .. }),
            "{refused}"
        );
        let mut returning = EngineConfig {
            dram: Dram::WriteBuffers {
                spare_buffers: None,
            },
            ..EngineConfig::default()
        };
        returning.reclaim.policy = ReclaimPolicy::ReturnRecent {
            victim: Victim::Oldest,
        };
        assert_eq!(
            check_image(&returning, 512, 8 << 20),
            Err(ConfigError::NowhereToReturn)
        );
        let range = |config: &EngineConfig, segments| match check_image(config, segments, 8 << 20) {
            Err(ConfigError::Range { name, .. }) => Some(name),
            _ => None,
        };
        let mut prioritised = EngineConfig::default();
        prioritised.reclaim.policy = ReclaimPolicy::CopyPromoted;
        assert_eq!(range(&prioritised, 512), Some("priorities"), "one of them");
        let exact = |layout, priorities| -> Arc<dyn PlacementKind> {
            Arc::new(ExactSettings { layout, priorities })
        };
        prioritised.placement = exact(Layout::Packed, 8);
        assert_eq!(range(&prioritised, 512), Some("buffers"));
        prioritised.writing.buffers = 11;
        assert_eq!(check_image(&prioritised, 512, 8 << 20), Ok(()));
        assert_eq!(range(&prioritised, 31), Some("segments"));
        prioritised.reclaim.wear_leveling = Some(1);
        assert_eq!(range(&prioritised, 512), Some("wear_leveling"));
        prioritised.placement = exact(Layout::Slotted, 8);
        assert_eq!(range(&prioritised, 512), Some("layout"));
        prioritised.placement = exact(Layout::Packed, 9);
        assert_eq!(range(&prioritised, 512), Some("priorities"));
        let unordered = EngineConfig {
            placement: exact(Layout::Packed, 8),
            ..EngineConfig::default()
        };
        assert_eq!(range(&unordered, 512), Some("priorities"), "by age");
        let small = EngineConfig {
            memory_bytes: 8 << 20,
            ..Default::default()
        };
        assert!(matches!(
            check_image(&small, 512, 8 << 20),
            Err(ConfigError::Memory { .. })
        ));
    }
}
