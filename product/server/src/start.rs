//! Starting and stopping: the composition of a server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::config::Sizes;
use engine::{Engine, EngineConfig, OpenError, Opening, Stop};
use parking_lot::Mutex;
use runtime::budget::Budget;
use runtime::live::{IoPath, LiveConfig, Signals, Workers};
use runtime::net::Listener;
use runtime::sync::Semaphore;

use crate::config::{Config, ListenAddress, Size};
use crate::counters::Counters;
use crate::error::ServeError;
use crate::listen;
use crate::machine::{Machine, settle};
use crate::open::{IN_USE_PATIENCE, OpenFlash, open_file, retry_until};
use crate::shared::{Connections, Lent, LentToRequests, Shared};
use crate::sizes::{budgets, check_new, engine_config};
use crate::stop::{StopRequest, answer_signals};
use crate::tell;
use crate::throttle::Throttle;

/// Longest time that clients wait for the recovery of the last run's items.
const RECOVERY_PATIENCE: Duration = Duration::from_millis(500);
/// Longest time that clients wait for the lines of the start to be written.
const START_LINES: Duration = Duration::from_millis(100);
/// Time in which open connections may finish their commands.
const CONNECTION_GRACE: Duration = Duration::from_secs(2);

/// Runs a server until `signals` or a client stop it. Returns the outcome of the stop. `preset` returns the engine's
/// settings: those of `cache.preset`, with `cache.admission`. The other settings in `config` override them. Calls
/// `write_log` with the longest time to wait for the lines of the log: at the end of the start, so that they are read before
/// the first client is served, and before it ends the process in the middle of a stop.
///
/// # Errors
/// [`ServeError`] if the server cannot start. Nothing on the flash has been changed then, unless the device failed.
pub fn run(
    mut config: Config,
    preset: impl Fn(Sizes) -> EngineConfig + Send + 'static,
    signals: Signals,
    write_log: impl Fn(Duration) + Clone + Send + 'static,
) -> Result<Stop, ServeError> {
    let stop = Arc::new(StopRequest::default());
    answer_signals(signals, Arc::clone(&stop), write_log.clone()).map_err(ServeError::Workers)?;
    runtime::live::log_failed_waits_once();
    config.check()?;
    config.cache.force |= config.cache.overwrite_filesystem;
    let machine = Machine::of_this_process(&config);
    let notes = settle(&mut config, &machine)?;
    let threads = config.threads();
    check_new(&mut config, &preset)?;
    for note in notes {
        tracing::warn!("{note}");
    }
    let listeners = bind(&config)?;
    let flash = OpenFlash::open(&config)?;
    let (flash_words, notice) = (flash.words.clone(), flash.notice.clone());
    let (files, flash_file) = (flash.files(&config), flash.file.clone());
    let journal_file = flash.journal.file().map(Path::to_owned);
    let flash_bytes = flash.bytes;
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
    let deadline = Duration::from_secs(config.server.stop_deadline.0.into());
    stop.will_save(&engine, deadline, Box::new(write_log.clone()));
    let index_words = index_words.and_then(|words| words.get().cloned());
    tell::serving(&engine, &flash_words, &io_words, &config, &listeners);
    if let Some(index) = &index_words {
        tracing::info!(index, "the index has a device of its own");
    }
    if let Some(notice) = notice {
        tracing::info!("{notice}");
    }
    tell::warn_of_readers(&files);
    let files = tell::Files::at(&files, flash_file, journal_file);
    tell::warn_of_limits(&config, machine.cgroup.as_ref(), flash_bytes);
    write_log(START_LINES);
    let shared = Arc::new(shared(
        engine,
        workers.clone(),
        config,
        stop,
        Words {
            flash: flash_words,
            index: index_words,
            io: io_words,
        },
    ));
    let serving = Arc::clone(&shared);
    let stopped = workers.run_on(0, move || serve(serving, listeners, files));
    workers.shutdown();
    Ok(stopped.unwrap_or(Stop::Incomplete {
        items_left: 0,
        next_is_empty: false,
    }))
}

/// Descriptions of the devices for the statistics.
pub(crate) struct Words {
    pub(crate) flash: String,
    pub(crate) index: Option<String>,
    pub(crate) io: String,
}

/// Returns the state of a server that has no connections yet.
pub(crate) fn shared(
    engine: Arc<Engine>,
    workers: Workers,
    config: Config,
    stop: Arc<StopRequest>,
    words: Words,
) -> Shared {
    let (budget_bytes, values_bytes) = budgets(&config);
    let lent = Arc::new(Lent::new(&engine, &config));
    let lendable = |bytes| {
        let lender = LentToRequests(Arc::clone(&lent));
        Arc::new(Budget::with_lender(bytes, lender))
    };
    let (budget, values) = (lendable(budget_bytes), lendable(values_bytes));
    Shared {
        engine,
        counters: (0..workers.count())
            .map(|_| Arc::new(Counters::default()))
            .collect(),
        reset_base: Mutex::default(),
        budget,
        lent,
        values,
        connections: Connections::new(workers.count()),
        workers,
        stopping: AtomicBool::new(false),
        binary_clients: Throttle::default(),
        failed_accepts: Throttle::default(),
        refused_calls: Throttle::default(),
        dumping: Semaphore::new(1),
        idle_kicks: AtomicU64::new(0),
        stop,
        started_unix: runtime::unix_seconds(),
        flash_words: words.flash,
        index_words: words.index,
        io_words: words.io,
        config,
    }
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
    let lacked_bytes = flash.file.is_some_and(|file| file.lacked_bytes());
    let mut opening = Opening::new(flash.medium, engine_config).overwriting_image(lacked_bytes);
    if let Some(place) = flash.index {
        opening = opening.with_index_device(move |need| place.open(need, |open| open_file(open)));
    }
    opening
        .open(|| flash.journal.open())
        .await
        .map_err(|error| match error {
            OpenError::Config(engine::ConfigError::Memory { given, needed }) => {
                let memory = config.memory();
                let needed = (memory.0 + needed - given).next_multiple_of(1 << 20);
                ServeError::CacheMemory {
                    given: memory,
                    needed: Size(needed),
                }
            }
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

/// Serves clients until the server is asked to stop. Returns the outcome of the stop.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listeners: Vec<Arc<Listener>>,
    files: tell::Files,
) -> Stop {
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
    tell::stopped(&shared.engine, &stop, &files);
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
