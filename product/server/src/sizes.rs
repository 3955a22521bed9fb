//! The sizes of a server: the engine's memory and settings, and the bounds on requests and connections.

use std::sync::Arc;
use std::time::Duration;

use engine::admission::{AdmissionKind, SettingError};
use engine::config::check::{check_image, check_new_image};
use engine::config::{META_BYTES, MIN_MEMORY_BYTES, Sizes, WORKER_BYTES, engine_share};
use engine::{EngineConfig, Reserve};

use crate::config::{CacheSection, Config, Seconds, Size};
use crate::error::ServeError;
use crate::flash::FlashSetting;
use crate::largest::explain;
use crate::shared::least_for_connections;

/// Memory of the process beside its allocations: stacks, and gaps between blocks of the allocator.
const BASE_BYTES: u64 = 2 << 20;
/// Memory of the program and its libraries: this, or their size at the start if that is larger, in whole MiB. The size
/// differs from start to start, but a bound with which a server has started must suffice for the next start.
const LEAST_PROGRAM_BYTES: u64 = 6 << 20;
/// Memory for the longest line of keys, twice as its buffer grows, and for replies.
const LEAST_REQUESTS_BYTES: u64 = 2 << 20;
/// Most bytes of a request with a long value, without the value.
const LARGEST_LINE_BYTES: u64 = 4 << 10;
/// Open files beside connections: of the server, refused connections included, and of each worker.
pub(crate) const KEPT_FILES: u64 = 64;
pub(crate) const WORKER_FILES: u64 = 8;
/// Memory of a worker, with the reply buffers that its connections share and keep for reuse.
pub(crate) const WORKER_MEMORY_BYTES: u64 = WORKER_BYTES + (1 << 20);
/// Memory of the kernel for a worker's ring, and for a connection: its socket, and some replies in transit.
const KERNEL_RING_BYTES: u64 = 512 << 10;
const KERNEL_SOCKET_BYTES: u64 = 8 << 10;
/// A journal of the default size takes at most this fraction of the memory.
const JOURNAL_SHARE: u64 = 8;

/// Estimates the memory that the kernel holds for this process beside its resident memory, in the same memory cgroup.
pub(crate) fn kernel_bytes(config: &Config, connections: usize) -> u64 {
    let memory = config.memory().0;
    let rings = config.threads() as u64 * KERNEL_RING_BYTES;
    let sockets = connections as u64 * KERNEL_SOCKET_BYTES;
    // The journal is mapped, and its pages stay in the page cache. Items are read and written past it.
    let journal = config
        .cache
        .journal_size
        .map_or(memory / JOURNAL_SHARE, |size| size.0);
    rings + sockets + journal
}

/// Returns the bytes for requests and replies, and for long values on their way in or out: at least one such value.
pub(crate) fn budgets(config: &Config) -> (u64, u64) {
    let item = config.max_item_size().0;
    let half = config.memory().0 / 64;
    let values = half.max(item + LARGEST_LINE_BYTES);
    (half.max(LEAST_REQUESTS_BYTES), values)
}

/// Checks the settings before a new file is made, and sets the largest value if the device determines it.
pub(crate) fn check_new(
    config: &mut Config,
    preset: impl Fn(Sizes) -> EngineConfig,
) -> Result<(), ServeError> {
    if let Some(shape) = config.cache.flash.blocks()? {
        let block_bytes = u32::try_from(shape.block_bytes()).unwrap_or(u32::MAX);
        let half_a_block = Size(u64::from(block_bytes) / 2);
        let usual = config.max_item_size().min(half_a_block);
        config.cache.max_item_size.get_or_insert(usual);
        let blocks = u64::from(shape.blocks());
        let bytes = blocks * shape.block_bytes();
        let engine = engine_config(config, bytes, Some(block_bytes), preset)?;
        check_image(&engine, blocks, block_bytes)?;
    } else if let FlashSetting::Path(path) = &config.cache.flash
        && !path.exists()
    {
        let asked = config.cache.flash_size.map(|size| size.0);
        let bytes = asked.unwrap_or(device::DEFAULT_IMAGE_BYTES);
        let check = |config: &Config, bytes| -> Result<(), ServeError> {
            let engine = engine_config(config, bytes, None, &preset)?;
            Ok(check_new_image(&engine, bytes)?)
        };
        let fits = |config: &Config, bytes| check(config, bytes).is_ok();
        check(config, bytes).map_err(|refused| explain(refused, config, bytes, fits))?;
    }
    Ok(())
}

/// Returns the engine's settings for a device: those of `preset`, overridden by `config`. `block_bytes` is the segment
/// size if the device determines it.
pub(crate) fn engine_config(
    config: &Config,
    device_bytes: u64,
    block_bytes: Option<u32>,
    preset: impl Fn(Sizes) -> EngineConfig,
) -> Result<EngineConfig, ServeError> {
    let cache = &config.cache;
    let (requests, values) = budgets(config);
    let own = BASE_BYTES
        + LEAST_PROGRAM_BYTES
        + config.threads() as u64 * WORKER_MEMORY_BYTES
        + requests
        + values;
    let memory_bytes =
        engine_share(config.memory().0, own).map_err(|needed| ServeError::Memory {
            given: config.memory(),
            needed: Size(needed),
            workers: config.threads(),
            worker: Size(WORKER_MEMORY_BYTES),
        })?;
    let program = runtime::process::usage().of_files_bytes;
    let beyond = program
        .next_multiple_of(1 << 20)
        .saturating_sub(LEAST_PROGRAM_BYTES);
    let memory_bytes = memory_bytes.saturating_sub(beyond).max(MIN_MEMORY_BYTES);
    let segment_bytes = cache.segment_size.map(|size| size.0 as u32);
    let mut made = preset(Sizes {
        memory_bytes,
        flash_bytes: device_bytes.saturating_sub(META_BYTES),
        block_bytes,
        segment_bytes,
        buffer_bytes: None,
        max_value_bytes: config.max_item_size().0 as u32,
    });
    if let Some(buffers) = cache.segment_buffers {
        made.writing.buffers = buffers;
        made.least_buffers = buffers;
    }
    made.writing.discard = cache.discard;
    made.lendable_bytes = least_for_connections(config);
    made.flash_write_limit = cache.flash_write_limit.map(|rate| rate.0);
    if let Some(Seconds(seconds)) = cache.write_back {
        made.write_back = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    }
    if let Some(percent) = cache.index_percent {
        made.index.percent = percent;
    }
    if let Some(sixteenths) = cache.max_copy_sixteenths {
        made.reclaim.policy = made.reclaim.policy.with_max_copy(sixteenths);
    }
    made.reclaim.reserve = reserve(cache, made.reclaim.reserve)?;
    made.admission = admission(cache, made.admission)?;
    made.index.hot_percent = cache.hot_percent;
    made.index.filter_bits = cache.filter_bits;
    made.index.filter_percent = cache.filter_percent;
    made.index.incarnations = cache.incarnations;
    Ok(EngineConfig {
        segment_bytes: segment_bytes.or(made.segment_bytes),
        stop_deadline: Duration::from_secs(config.server.stop_deadline.0.into()),
        write_patience: Duration::from_secs(cache.write_patience.0.into()),
        sync_interval: Duration::from_millis(cache.journal_sync_ms.into()),
        max_downtime: (cache.max_downtime.0 > 0).then_some(cache.max_downtime.0),
        after_downtime: cache.after_downtime,
        force: cache.force,
        journal_is_named: cache.journal.is_some(),
        overwrite_filesystem: cache.overwrite_filesystem,
        ..made
    })
}

/// Returns the admission with the configured settings of learning.
fn admission(
    cache: &CacheSection,
    mut admission: Arc<dyn AdmissionKind>,
) -> Result<Arc<dyn AdmissionKind>, ServeError> {
    let delimiter = cache.application_delimiter;
    let hits = cache.admission_hits_per_100_writes;
    let settings = [
        ("window", cache.admission_window.map(|it| it.to_string())),
        (
            "delimiter",
            delimiter.map(|byte| byte.map(char::from).into_iter().collect()),
        ),
        ("hits_per_100_writes", hits.map(|it| it.to_string())),
        (
            "remembers",
            cache.admission_remembers.map(|it| it.to_string()),
        ),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            admission = admission.with(name, &value).map_err(|error| match error {
                SettingError::Unknown { .. } => ServeError::Learning,
                SettingError::Value { .. } => ServeError::Admission(error),
            })?;
        }
    }
    Ok(admission)
}

/// Returns the reserve: the configured one, or the preset's, with the configured watermarks.
fn reserve(cache: &CacheSection, of_preset: Reserve) -> Result<Reserve, ServeError> {
    let (low, high) = (cache.low_watermark, cache.high_watermark);
    let mut reserve = cache.reserve.unwrap_or(of_preset);
    if let Reserve::Static(shares) = &mut reserve {
        shares.low_percent = low.unwrap_or(shares.low_percent);
        shares.high_percent = high.unwrap_or(shares.high_percent);
    } else if low.is_some() || high.is_some() {
        return Err(ServeError::Watermarks);
    }
    reserve.check().map_err(ServeError::Reserve)?;
    Ok(reserve)
}
