//! The largest value that memory and flash allow, for the error of a start whose values are too large.

use engine::config::{META_BYTES, MIN_SEGMENTS};

use crate::config::{Config, Size};
use crate::error::ServeError;

/// Step of the figures that are told, in bytes.
const STEP_BYTES: u64 = 1 << 20;
/// Steps added to the least memory: a start counts the program's own memory as it finds it.
const SPARE_STEPS: u64 = 2;
/// Largest memory that is looked at.
const MOST_MEMORY_BYTES: u64 = 1 << 40;

/// Returns the error for a new image on `flash_bytes` of flash that `refused` says is not possible. If smaller values
/// would be possible, the error tells how large they may be, and the memory and the flash that the configured ones need.
/// If only the memory is too little, the error tells how much of it the process needs. `fits` says whether a configuration and the bytes of an image fit each other.
pub(crate) fn explain(
    refused: ServeError,
    config: &Config,
    flash_bytes: u64,
    fits: impl Fn(&Config, u64) -> bool,
) -> ServeError {
    let memory_for = |flash| {
        let too_little = last(MOST_MEMORY_BYTES / STEP_BYTES, |step| {
            let mut other = config.clone();
            other.cache.memory = Some(Size(step * STEP_BYTES));
            !fits(&other, flash)
        });
        let steps = too_little.map(|step| step + 1 + SPARE_STEPS);
        steps.map_or(config.memory(), |steps| Size(steps * STEP_BYTES))
    };
    let refused = match refused {
        ServeError::Sizes(engine::ConfigError::Memory { .. }) => ServeError::CacheMemory {
            given: config.memory(),
            needed: memory_for(flash_bytes),
        },
        refused => refused,
    };
    let Some(given) = config.cache.max_item_size else {
        return refused;
    };
    let of_value = |bytes: u64| {
        let mut other = config.clone();
        other.cache.max_item_size = Some(Size(bytes));
        fits(&other, flash_bytes)
    };
    let steps = given.0 / STEP_BYTES;
    let Some(largest) = last(steps, |step| of_value(step * STEP_BYTES)) else {
        return refused;
    };
    // Each segment holds one value and less than a step beside it.
    let least_flash = MIN_SEGMENTS * (given.0 + STEP_BYTES) + META_BYTES;
    let flash = flash_bytes.max(least_flash.next_multiple_of(STEP_BYTES));
    ServeError::LargestValue {
        given,
        largest: Size(largest * STEP_BYTES),
        memory: config.memory(),
        flash: Size(flash_bytes),
        needed_memory: config.memory().max(memory_for(flash)),
        needed_flash: Size(flash),
    }
}

/// Returns the last of the steps 1 to `most` for which `holds`, which holds for all steps before it; `None` if it holds
/// for none.
fn last(most: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut held, mut failed) = (0, most + 1);
    while held + 1 < failed {
        let step = u64::midpoint(held, failed);
        if holds(step) {
            held = step;
        } else {
            failed = step;
        }
    }
    (held > 0).then_some(held)
}
