//! The ring of one thread: its setup, and the loop that drives it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use compio::driver::{BufferPool, DriverType, ProactorBuilder};
use compio::runtime::{Runtime, RuntimeBuilder};

use super::inbox::{self, Inbox};
use super::submission::{self, RING_ENTRIES};
use super::{panics, probe};

/// Completion slots of a ring. The kernel keeps completions that do not fit.
const RING_COMPLETIONS: u32 = 4096;

/// Tasks polled before the loop looks at completions again.
const TASKS_PER_TURN: usize = 256;

/// Consecutive failures of the ring, [`RETRY_PAUSE`] apart, that end the process.
const RING_FAILURES: u32 = 500;

const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Time for the last line of the log.
const LAST_LINE: Duration = Duration::from_millis(300);

/// Time between two lines of the log about a ring that fails and works again.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// Choice of I/O path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring if the kernel allows it, else the fallback.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll for sockets, threads for files.
    Fallback,
}

/// I/O path in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoPath {
    /// A completion ring on every worker.
    IoUring,
    /// epoll for sockets, threads for files.
    Fallback {
        /// Why io_uring is not used.
        reason: String,
    },
}

impl fmt::Display for IoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IoUring => f.write_str("io_uring"),
            Self::Fallback { reason } => write!(f, "epoll and threads ({reason})"),
        }
    }
}

/// Configuration of [`Workers`](super::Workers).
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// Worker threads, at least one.
    pub threads: usize,
    /// I/O path to use.
    pub io: IoChoice,
    /// Receive buffers of a worker, shared by its connections; rounded up to a power of two. A connection holds one only from the
    /// arrival of bytes until they have been consumed.
    pub recv_buffers: u16,
    /// Bytes in a receive buffer: the most that one `recv` returns.
    pub recv_buffer_bytes: usize,
}

impl Default for LiveConfig {
    /// A worker for each available CPU, with 1 MiB of receive buffers each.
    fn default() -> Self {
        Self {
            threads: crate::process::cores(),
            io: IoChoice::Auto,
            recv_buffers: 128,
            recv_buffer_bytes: 8192,
        }
    }
}

/// Whether a worker has logged the end of the process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static RECV_POOL: RefCell<Option<BufferPool>> = const { RefCell::new(None) };
    static USES_RING: Cell<bool> = const { Cell::new(false) };
    static TEARING_DOWN: Cell<bool> = const { Cell::new(false) };
    static IO_PATH: RefCell<Option<IoPath>> = const { RefCell::new(None) };
}

/// Calls `with` on this thread's kernel-filled receive buffers; `None` if it has none.
pub(crate) fn recv_pool<T>(with: impl FnOnce(&BufferPool) -> T) -> Option<T> {
    RECV_POOL.with(|pool| pool.borrow().as_ref().map(with))
}

/// Returns whether this thread submits to a ring.
pub(crate) fn uses_ring() -> bool {
    USES_RING.get()
}

/// Returns whether this thread's runtime is being dropped. The kernel may still write into the buffers of operations in flight,
/// so these buffers must be leaked, not freed.
pub(crate) fn is_tearing_down() -> bool {
    TEARING_DOWN.get()
}

/// Returns the calling thread's I/O path; `None` outside the live runtime.
pub fn io_path_here() -> Option<IoPath> {
    IO_PATH.with(|path| path.borrow().clone())
}

/// Runtime of the calling thread.
pub(super) struct Driver {
    /// Taken on drop only.
    runtime: Option<Runtime>,
    pub(super) inbox: Arc<Inbox>,
}

impl Driver {
    /// Sets up the calling thread. At most one driver may exist on a thread.
    pub(super) fn new(config: &LiveConfig) -> io::Result<Self> {
        let (runtime, path) = match config.io {
            IoChoice::IoUring => (ring(config)?, IoPath::IoUring),
            IoChoice::Fallback => {
                let reason = "asked for".to_owned();
                (polling(config)?, IoPath::Fallback { reason })
            }
            IoChoice::Auto => match ring(config) {
                Ok(runtime) => (runtime, IoPath::IoUring),
                Err(refused) => {
                    let reason = refused.to_string();
                    (polling(config)?, IoPath::Fallback { reason })
                }
            },
        };
        USES_RING.set(path == IoPath::IoUring);
        submission::set_ring(uses_ring().then(|| runtime.as_raw_fd()));
        // A kernel before 5.19 has rings but no provided buffers. Connections then receive into buffers of their own, taken when
        // bytes have arrived.
        let pool = uses_ring().then(|| runtime.buffer_pool().ok()).flatten();
        RECV_POOL.with(|kept| *kept.borrow_mut() = pool);
        IO_PATH.with(|kept| *kept.borrow_mut() = Some(path));
        let inbox = Arc::new(Inbox::new(runtime.waker()));
        inbox::set_here(Some(Arc::clone(&inbox)));
        Ok(Self {
            runtime: Some(runtime),
            inbox,
        })
    }

    /// Interrupts the wait for I/O.
    pub(super) fn waker(&self) -> Waker {
        self.runtime().waker()
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("taken on drop only")
    }

    /// Runs tasks and I/O. Calls `turn` before every turn of the loop; the loop ends when it returns true.
    pub(super) fn run(&self, mut turn: impl FnMut() -> bool) {
        let runtime = self.runtime();
        let mut failures = 0;
        let mut last_told: Option<Instant> = None;
        runtime.enter(|| {
            while !turn() {
                self.inbox.note_turn();
                self.inbox.empty();
                let more_to_run = runtime.run();
                submission::end_turn();
                self.inbox.note_turn();
                let limit = if more_to_run {
                    Some(Duration::ZERO)
                } else {
                    runtime.current_timeout()
                };
                // The library panics on unexpected errors.
                let waited = panics::caught(|| runtime.poll_with(limit));
                match waited.and_then(|()| submission::try_ring()) {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        failures += 1;
                        if failures == 1 && last_told.is_none_or(|told| told.elapsed() > TOLD_AGAIN)
                        {
                            last_told = Some(Instant::now());
                            tracing::error!(error, "a worker cannot wait for I/O, and tries again");
                        }
                        if failures == RING_FAILURES {
                            let remedy = match uses_ring() {
                                true => "; server.io=\"fallback\" does without io_uring",
                                false => "",
                            };
                            if !IS_ENDING.swap(true, Ordering::Relaxed) {
                                tracing::error!(
                                    error,
                                    "a worker cannot wait for I/O: the process ends{remedy}"
                                );
                            }
                            // The log is written by another thread.
                            std::thread::sleep(LAST_LINE);
                            std::process::abort();
                        }
                        std::thread::sleep(RETRY_PAUSE);
                    }
                }
            }
        });
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        TEARING_DOWN.set(true);
        submission::set_ring(None);
        drop(self.runtime.take());
        TEARING_DOWN.set(false);
        inbox::set_here(None);
        self.inbox.clear();
        USES_RING.set(false);
        RECV_POOL.with(|kept| *kept.borrow_mut() = None);
        IO_PATH.with(|kept| *kept.borrow_mut() = None);
    }
}

fn ring(config: &LiveConfig) -> io::Result<Runtime> {
    let mut proactor = proactor(config, DriverType::IoUring);
    proactor.cqsize(RING_COMPLETIONS);
    // The taskrun flag lets a turn that must not wait still collect completions: deferred completions are otherwise delivered
    // only to a call that waits.
    let with_hints = |proactor: &mut ProactorBuilder, on: bool| {
        let hinted = proactor.single_issuer(on).coop_taskrun(on);
        hinted.taskrun_flag(on).defer_taskrun(on);
        probe::check(proactor)?;
        runtime(proactor).map_err(probe::refused("io_uring_setup"))
    };
    match with_hints(&mut proactor, true) {
        // Kernels before 6.1 refuse these hints.
        Err(refused) if refused.kind() == io::ErrorKind::InvalidInput => {
            with_hints(&mut proactor, false)
        }
        made => made,
    }
}

fn polling(config: &LiveConfig) -> io::Result<Runtime> {
    let proactor = proactor(config, DriverType::Poll);
    probe::check_polling(&proactor)?;
    runtime(&proactor)
}

fn proactor(config: &LiveConfig, driver: DriverType) -> ProactorBuilder {
    let mut proactor = ProactorBuilder::new();
    proactor
        .driver_type(driver)
        .capacity(RING_ENTRIES)
        .buffer_pool_size(NonZero::new(config.recv_buffers).unwrap_or(NonZero::<u16>::MIN))
        .buffer_pool_buffer_len(config.recv_buffer_bytes);
    proactor
}

fn runtime(proactor: &ProactorBuilder) -> io::Result<Runtime> {
    RuntimeBuilder::new()
        .with_proactor(proactor.clone())
        .event_interval(TASKS_PER_TURN)
        .build()
}
