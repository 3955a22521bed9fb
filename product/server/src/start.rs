//! Starting and stopping: the composition of a server.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::admission::{AdmissionKind, SettingError};
use engine::config::{META_BYTES, MIN_MEMORY_BYTES, Sizes, WORKER_BYTES, engine_share};
use engine::{Engine, EngineConfig, OpenError, Opening, Reserve, Start, Stop};
use parking_lot::Mutex;
use runtime::budget::Budget;
use runtime::live::{IoPath, LiveConfig, Signals, Workers};
use runtime::net::Listener;
use runtime::process::MemoryLimit;
use runtime::sync::Semaphore;

use crate::config::{CacheSection, Config, ListenAddress, PARTITION_BITS, Size};
use crate::counters::Counters;
use crate::error::ServeError;
use crate::flash::FlashSetting;
use crate::listen;
use crate::open::{IN_USE_PATIENCE, OpenFlash, open_file, retry_until};
use crate::shared::{
    Connections, Lent, LentToRequests, Shared, least_for_connections, most_connections,
};
use crate::stop::{StopRequest, answer_signals};
use crate::throttle::Throttle;

/// Longest time that clients wait for the recovery of the last run's items.
const RECOVERY_PATIENCE: Duration = Duration::from_millis(500);
/// The mode bits of a file that its group or everybody may read.
const READ_BY_OTHERS: u32 = 0o044;
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
const OWN_FILES: u64 = 64;
const WORKER_FILES: u64 = 8;
/// Memory that all connections of a worker share: reply buffers kept for reuse.
const REPLY_BUFFERS_BYTES: u64 = 1 << 20;
/// Memory of the kernel for a worker's ring, and for a connection: its socket, and some replies in transit.
const KERNEL_RING_BYTES: u64 = 512 << 10;
const KERNEL_SOCKET_BYTES: u64 = 8 << 10;
/// A journal of the default size takes at most this fraction of the memory.
const JOURNAL_SHARE: u64 = 8;
/// Time in which open connections may finish their commands.
const CONNECTION_GRACE: Duration = Duration::from_secs(2);

/// Runs a server until `signals` or a client stop it. Returns the outcome of the stop. `preset` returns the engine's
/// settings: those of `cache.preset`, with `cache.admission`. The other settings in `config` override them.
///
/// # Errors
/// [`ServeError`] if the server cannot start. Nothing on the flash has been changed then, unless the device failed.
pub fn run(
    mut config: Config,
    preset: impl Fn(Sizes) -> EngineConfig + Send + 'static,
    signals: Signals,
) -> Result<Stop, ServeError> {
    let stop = Arc::new(StopRequest::default());
    answer_signals(signals, Arc::clone(&stop)).map_err(ServeError::Workers)?;
    runtime::process::give_freed_memory_back();
    runtime::live::log_failed_waits_once();
    config.check()?;
    config.cache.force |= config.cache.overwrite_filesystem;
    let threads = config.threads();
    check_new(&mut config, &preset)?;
    bound_connections(&mut config);
    let listeners = bind(&config)?;
    let flash = OpenFlash::open(&config)?;
    let (flash_words, notice) = (flash.words.clone(), flash.notice.clone());
    let files = flash.files(&config);
    let index_words = flash.index.as_ref().map(|index| Arc::clone(&index.words));
    let workers = Workers::start(&LiveConfig {
        threads,
        io: config.server.io,
        ..LiveConfig::default()
    })
    .map_err(ServeError::Workers)?;
    let io_words = match workers.io_path() {
        IoPath::IoUring => "io_uring".to_owned(),
        IoPath::Fallback { reason } => {
            tracing::warn!(%reason, "io_uring is not available: epoll and a thread pool instead");
            format!("epoll and a thread pool ({reason})")
        }
    };
    let settings = config.clone();
    let engine = workers
        .run_on(0, move || open_engine(flash, settings, preset))
        .unwrap_or_else(|| {
            let ended = io::Error::other("a worker ended at the start");
            Err(ServeError::Workers(ended))
        })
        .inspect_err(|_| workers.clone().shutdown())?;
    stop.will_save(&engine);
    let index_words = index_words.and_then(|words| words.get().cloned());
    log_start(&engine, &flash_words, &io_words, &config);
    if let Some(index) = &index_words {
        tracing::info!(index, "the index has a device of its own");
    }
    if let Some(notice) = notice {
        tracing::info!("{notice}");
    }
    warn_of_readers(&files);
    warn_of_limits(&config);
    let (budget_bytes, values_bytes) = budgets(&config);
    let lent = Arc::new(Lent::new(&engine, &config));
    let lendable = |bytes| {
        let lender = LentToRequests(Arc::clone(&lent));
        Arc::new(Budget::with_lender(bytes, lender))
    };
    let (budget, values) = (lendable(budget_bytes), lendable(values_bytes));
    let shared = Arc::new(Shared {
        engine,
        workers: workers.clone(),
        counters: (0..workers.count())
            .map(|_| Arc::new(Counters::default()))
            .collect(),
        reset_base: Mutex::default(),
        budget,
        lent,
        values,
        connections: Connections::new(workers.count()),
        stopping: AtomicBool::new(false),
        binary_clients: Throttle::default(),
        failed_accepts: Throttle::default(),
        dumping: Semaphore::new(1),
        idle_kicks: AtomicU64::new(0),
        stop,
        started_unix: runtime::unix_seconds(),
        flash_words,
        index_words,
        io_words,
        config,
    });
    let serving = Arc::clone(&shared);
    let stopped = workers.run_on(0, move || serve(serving, listeners));
    workers.shutdown();
    Ok(stopped.unwrap_or(Stop::Incomplete {
        items_left: 0,
        next_is_empty: false,
    }))
}

async fn open_engine(
    flash: OpenFlash,
    config: Config,
    preset: impl Fn(Sizes) -> EngineConfig,
) -> Result<Arc<Engine>, ServeError> {
    let block_bytes = match flash.block_bytes {
        None => flash.medium.image_segment_bytes().await,
        block_bytes => block_bytes,
    };
    let engine_config = engine_config(&config, flash.bytes, block_bytes, preset)?;
    let journal = flash.journal.path();
    let index = config.cache.index_flash.as_ref();
    let index_path = index.map(|index| PathBuf::from(index.to_string()));
    let mut opening = Opening::new(flash.medium, engine_config);
    if let Some(place) = flash.index {
        opening = opening.with_index_device(move |need| place.open(need, |open| open_file(open)));
    }
    opening
        .open(|| flash.journal.open())
        .await
        .map_err(|error| match error {
            OpenError::JournalFile(error) => ServeError::Journal(error),
            OpenError::IndexFile(error) => ServeError::Device(error),
            source @ OpenError::IndexDevice(_) => ServeError::Image {
                path: index_path.unwrap_or_default(),
                source,
            },
            source @ OpenError::Journal(_) => ServeError::Image {
                path: journal,
                source,
            },
            source => ServeError::Image {
                path: config.cache.flash.image(),
                source,
            },
        })
}

async fn serve(shared: Arc<Shared>, listeners: Vec<Arc<Listener>>) -> Stop {
    shared.engine.start_background(shared.workers.spread());
    // A small cache is recovered by then. With a large one, clients see the items recovered so far.
    let _ = runtime::timeout(RECOVERY_PATIENCE, shared.engine.recovered()).await;
    for listener in &listeners {
        let (shared, listener) = (Arc::clone(&shared), Arc::clone(listener));
        runtime::spawn_detached(listen::accept(shared, listener));
    }
    runtime::spawn_detached(listen::close_idle(Arc::clone(&shared)));
    runtime::spawn_detached(listen::give_memory_back(Arc::clone(&shared)));
    for budget in [&shared.budget, &shared.values] {
        let (shared, budget) = (Arc::clone(&shared), Arc::clone(budget));
        runtime::spawn_detached(listen::lend_memory(shared, budget));
    }
    let why = shared.stop.asked().await;
    let is_kept = shared.config.cache.flash.path().is_some();
    if is_kept {
        tracing::info!(why, "stopping: making everything durable");
    } else {
        tracing::info!(why, "stopping");
    }
    shared.stopping.store(true, Ordering::Release);
    for listener in listeners {
        listener.close();
    }
    close_connections(&shared).await;
    if !is_kept {
        tracing::info!("stopped; what the flash in memory held is gone");
        return Stop::Complete { objects: 0 };
    }
    let stop = shared.engine.stop().await;
    match stop {
        Stop::Complete { objects } => {
            // Flushed items may still hold space.
            let objects = objects.min(shared.engine.stats().flash_items);
            tracing::info!(objects, "stopped; the next start is warm");
        }
        Stop::Incomplete {
            next_is_empty: true,
            ..
        } => {
            tracing::error!("stopped with records of the journal lost; the next start is empty");
        }
        Stop::Incomplete { items_left: 0, .. } => {
            tracing::error!(
                "stopped without a last checkpoint; the next start finds everything by the one before and the journal"
            );
        }
        Stop::Incomplete { items_left, .. } => {
            tracing::error!(
                items_left,
                "stopped before everything was on flash; the next start misses about so many items"
            );
        }
        Stop::Already => {}
    }
    stop
}

/// Closes all connections. Gives connections in the middle of a request [`CONNECTION_GRACE`] to finish it.
///
/// A task that still runs after the second round is waiting for the flash, and the stop has its own deadline.
async fn close_connections(shared: &Shared) {
    for even_busy in [false, true] {
        let finish = async {
            loop {
                let ended = shared.connections.ended.listener();
                if shared.connections.current.load(Ordering::Acquire) == 0 {
                    return;
                }
                shared.connections.each(|_, info| {
                    if even_busy || !info.busy.load(Ordering::Acquire) {
                        info.closer.close();
                    }
                });
                ended.await;
            }
        };
        if runtime::timeout(CONNECTION_GRACE, finish).await.is_ok() {
            return;
        }
    }
}

/// Warns of limits that the memory is too small for, and of a cgroup limit that is too low.
fn warn_of_limits(config: &Config) {
    let connections = most_connections(config);
    if connections < config.server.max_connections {
        tracing::warn!(
            connections,
            "fewer connections than configured: they may take two fifths of --memory {}",
            config.cache.memory
        );
    }
    let kernel = kernel_bytes(config, connections);
    let limit = runtime::process::cgroup_memory_limit();
    if let Some(warning) = limit.and_then(|limit| beyond(&limit, config.cache.memory, kernel)) {
        tracing::warn!("{warning}");
    }
}

/// Returns a warning if a memory cgroup allows less than `memory` and `kernel` bytes together.
fn beyond(limit: &MemoryLimit, memory: Size, kernel: u64) -> Option<String> {
    let needed = memory.0.saturating_add(kernel);
    if limit.bytes >= needed {
        return None;
    }
    // Rounded up to whole MiB, as they are estimates.
    let mebibytes = |bytes: u64| Size(bytes.next_multiple_of(1 << 20));
    Some(format!(
        "the memory cgroup allows {}, and --memory {memory} with about {} of the kernel's own (sockets, rings, page \
         cache) may take {}: the kernel may kill this server. Lower --memory or raise {}",
        Size(limit.bytes),
        mebibytes(kernel),
        mebibytes(needed),
        limit.file.display()
    ))
}

/// Estimates the memory that the kernel holds for this process beside its resident memory, in the same memory cgroup.
fn kernel_bytes(config: &Config, connections: usize) -> u64 {
    let memory = config.cache.memory.0;
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
fn budgets(config: &Config) -> (u64, u64) {
    let item = config.max_item_size().0;
    let all = (config.cache.memory.0 / 32).max(2 * item);
    let values = (all / 2).max(item + LARGEST_LINE_BYTES);
    (all.saturating_sub(values).max(LEAST_REQUESTS_BYTES), values)
}

/// Lowers the bound on connections to the number that the limit on open files allows.
fn bound_connections(config: &mut Config) {
    let own = OWN_FILES + config.threads() as u64 * WORKER_FILES;
    let most = &mut config.server.max_connections;
    let Err(error) = runtime::process::allow_files(*most as u64 + own) else {
        return;
    };
    let allowed = runtime::process::files_allowed().unwrap_or(u64::MAX);
    let left = usize::try_from(allowed.saturating_sub(own)).unwrap_or(usize::MAX);
    *most = left.clamp(1, *most);
    tracing::warn!(%error, max_connections = *most, "fewer connections than configured");
}

/// Checks the settings before a new file is made, and sets the largest value if the device determines it.
fn check_new(
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
        engine_config(config, bytes, Some(block_bytes), preset)?.check(blocks, block_bytes)?;
    } else if let FlashSetting::Path(path) = &config.cache.flash
        && !path.exists()
    {
        let asked = config.cache.flash_size.map(|size| size.0);
        let bytes = asked.unwrap_or(device::DEFAULT_IMAGE_BYTES);
        engine_config(config, bytes, None, preset)?.check_new(bytes)?;
    }
    Ok(())
}

/// Returns the engine's settings for a device: those of `preset`, overridden by `config`. `block_bytes` is the segment
/// size if the device determines it.
fn engine_config(
    config: &Config,
    device_bytes: u64,
    block_bytes: Option<u32>,
    preset: impl Fn(Sizes) -> EngineConfig,
) -> Result<EngineConfig, ServeError> {
    let cache = &config.cache;
    let (requests, values) = budgets(config);
    let own = BASE_BYTES
        + LEAST_PROGRAM_BYTES
        + config.threads() as u64 * (WORKER_BYTES + REPLY_BUFFERS_BYTES)
        + requests
        + values;
    let memory_bytes = engine_share(cache.memory.0, own).map_err(|needed| ServeError::Memory {
        given: cache.memory,
        needed: Size(needed),
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
    }
    made.writing.discard = cache.discard;
    made.lendable_bytes = least_for_connections(config);
    made.flash_write_limit = cache.flash_write_limit.map(|rate| rate.0);
    if let Some(seconds) = cache.write_back {
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
        stop_deadline: Duration::from_secs(config.server.stop_deadline.into()),
        partition_bits: PARTITION_BITS,
        sync_interval: Duration::from_millis(cache.journal_sync_ms.into()),
        max_downtime: (cache.max_downtime > 0).then_some(cache.max_downtime),
        after_downtime: cache.after_downtime,
        force: cache.force,
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

fn bind(config: &Config) -> Result<Vec<Arc<Listener>>, ServeError> {
    let deadline = Instant::now() + IN_USE_PATIENCE;
    let listen = |address: &ListenAddress| {
        let bind = || match address {
            ListenAddress::Tcp(address) => Listener::tcp(*address),
            ListenAddress::Unix(path) => Listener::unix(path, config.server.unix_mode),
        };
        let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        retry_until(deadline, in_use, bind)
            .map(Arc::new)
            .map_err(|source| ServeError::Listen {
                address: address.to_string(),
                source,
            })
    };
    config.server.listen.iter().map(listen).collect()
}

/// Warns of files that other users can read. New files are readable by their owner alone; an existing file keeps its
/// mode.
fn warn_of_readers(files: &[PathBuf]) {
    for file in files {
        let Ok(found) = std::fs::metadata(file) else {
            continue;
        };
        let mode = found.permissions().mode() & 0o777;
        if found.is_file() && mode & READ_BY_OTHERS != 0 {
            let file = file.display();
            tracing::warn!("{file} can be read by other users (mode {mode:03o}): chmod 600 {file}");
        }
    }
}

fn log_start(engine: &Engine, flash: &str, io: &str, config: &Config) {
    let listen = &config.server.listen;
    let addresses: Vec<String> = listen.iter().map(ListenAddress::to_string).collect();
    let start = match engine.start() {
        Start::New => "a new image".to_owned(),
        Start::Warm { items, orderly } => {
            let after = if orderly { "" } else { " after a crash" };
            format!("warm{after}, up to {items} items on flash")
        }
        Start::Empty(why) => format!("empty: {why}"),
        Start::Forced => "empty: what the flash held was overwritten".to_owned(),
    };
    tracing::info!(
        memory = %config.cache.memory,
        preset = config.cache.preset,
        flash,
        io,
        start,
        listen = addresses.join(" "),
        "flowstone {} is serving",
        env!("CARGO_PKG_VERSION")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_cgroup_that_allows_too_little_is_told_of_in_one_line() {
        const MIB: u64 = 1 << 20;
        let said = |mebibytes: u64| {
            let limit = MemoryLimit {
                bytes: mebibytes * MIB,
                file: "/sys/fs/cgroup/a/memory.max".into(),
            };
            beyond(&limit, Size(64 * MIB), 8 * MIB - 1)
        };
        assert_eq!(said(72), None, "it allows both");
        let memory_alone = said(71).expect("a warning");
        assert_eq!(
            memory_alone,
            "the memory cgroup allows 71MiB, and --memory 64MiB with about 8MiB of the kernel's own (sockets, rings, \
             page cache) may take 72MiB: the kernel may kill this server. Lower --memory or raise \
             /sys/fs/cgroup/a/memory.max"
        );
        let less = said(32).expect("a warning");
        assert!(
            less.starts_with("the memory cgroup allows 32MiB, and --memory 64MiB"),
            "{less}"
        );
        assert!(!less.contains('\n'), "{less}");
    }
}
