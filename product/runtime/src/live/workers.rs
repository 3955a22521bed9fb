//! [`Workers`]: the threads of the live runtime, and [`block_on`] for programs with one task.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
#[cfg(any(test, feature = "sim"))]
use std::task::Waker;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::driver::{Driver, IoChoice, IoPath, LiveConfig, io_path_here};
use super::held;
use super::inbox::Inbox;
use crate::process::no_thread;

/// Threads that run tasks and their I/O. Clones refer to the same threads. A worker number out of range panics.
///
/// The threads run until [`stop`](Workers::stop) or [`shutdown`](Workers::shutdown); dropping
/// every handle does not end them.
#[derive(Clone)]
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    inboxes: Vec<Arc<Inbox>>,
    io_path: IoPath,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Ends the [watch](super::held) with the last handle.
    _watched: mpsc::Sender<()>,
}

impl Workers {
    /// Starts the threads and waits until each has its ring. Starts fewer, and logs that, if the system refuses one of them.
    ///
    /// # Errors
    /// When the first thread or its ring cannot be created.
    pub fn start(config: &LiveConfig) -> io::Result<Self> {
        let count = config.threads.max(1);
        let mut inboxes = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        let mut io_path = IoPath::IoUring;
        for worker in 0..count {
            match start_worker(worker, config) {
                Ok((thread, inbox, path)) => {
                    threads.push(thread);
                    inboxes.push(inbox);
                    if io_path == IoPath::IoUring {
                        io_path = path;
                    }
                }
                Err(error) if worker == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!("{worker} of {count} workers serve: {error}");
                    break;
                }
            }
        }
        let (watched, ended) = mpsc::channel();
        if let Err(error) = held::watch(inboxes.clone(), ended) {
            tracing::debug!(%error, "there is no thread to tell of workers that are held");
        }
        Ok(Self {
            shared: Arc::new(Shared {
                _watched: watched,
                inboxes,
                io_path,
                threads: Mutex::new(threads),
            }),
        })
    }

    /// Returns a stand-in for `count` workers: their tasks run in the simulation that drives the calling thread.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated(count: usize) -> Self {
        let inbox = || Arc::new(Inbox::new(Waker::noop().clone()));
        Self {
            shared: Arc::new(Shared {
                inboxes: std::iter::repeat_with(inbox).take(count).collect(),
                io_path: IoPath::IoUring,
                threads: Mutex::default(),
                _watched: mpsc::channel().0,
            }),
        }
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.shared.inboxes.len()
    }

    /// Returns the workers' I/O path.
    pub fn io_path(&self) -> &IoPath {
        &self.shared.io_path
    }

    /// Calls `make` on worker number `worker` and runs its future to the end there.
    ///
    /// Callable from any thread; wakes an idle worker at once and never waits. After a stop the
    /// task is dropped.
    pub fn spawn_on<F, Fut>(&self, worker: usize, make: F)
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        #[cfg(any(test, feature = "sim"))]
        if let Some(core) = crate::sim::current() {
            return core.spawn(Box::pin(make()));
        }
        self.shared.inboxes[worker].push(Box::new(move || super::spawn_local(make())));
    }

    /// Calls `make` on worker number `worker`, runs its future there, and blocks the calling thread until it ends. The caller
    /// must not be a worker. Returns `None` if the future did not end.
    pub fn run_on<T, F, Fut>(&self, worker: usize, make: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let (done, result) = mpsc::sync_channel(1);
        self.spawn_on(worker, move || async move {
            // The receiver waits below until this sends.
            let _ = done.send(make().await);
        });
        result.recv().ok()
    }

    /// Returns a function that hands tasks to the workers in turn, starting with the second.
    pub fn spread<F, Fut>(&self) -> impl FnMut(F)
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let mut worker = 0;
        move |task| {
            worker = (worker + 1) % self.count();
            self.spawn_on(worker, task);
        }
    }

    /// Tells all workers to stop: each drops its tasks where they stand and ends. Callable from any thread, including a worker.
    pub fn stop(&self) {
        for inbox in &self.shared.inboxes {
            inbox.stop();
        }
    }

    /// Waits until every worker has stopped. Called on a worker, it does not wait for that worker.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        let here = std::thread::current().id();
        for thread in threads {
            if thread.thread().id() != here && thread.join().is_err() {
                tracing::error!("a worker thread ended in a panic");
            }
        }
    }

    /// Stops all workers and waits until they have ended.
    pub fn shutdown(self) {
        self.stop();
        self.join();
    }
}

type Started = (JoinHandle<()>, Arc<Inbox>, IoPath);

fn start_worker(worker: usize, config: &LiveConfig) -> io::Result<Started> {
    let (report, reported) = mpsc::sync_channel(1);
    let config = config.clone();
    let thread = std::thread::Builder::new()
        .name(format!("flowstone-{worker}"))
        .spawn(move || {
            let driver = match Driver::new(&config) {
                Ok(driver) => driver,
                Err(error) => {
                    // The receiver is gone only if the starting thread panicked, and the error is then useless.
                    let _ = report.send(Err(error));
                    return;
                }
            };
            let inbox = Arc::clone(&driver.inbox);
            let path = io_path_here().unwrap_or(IoPath::IoUring);
            if report.send(Ok((Arc::clone(&inbox), path))).is_err() {
                return;
            }
            driver.run(|| inbox.is_stopped());
        })
        .map_err(|error| no_thread(&error))?;
    let (inbox, path) = reported
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the worker thread ended at once")))?;
    Ok((thread, inbox, path))
}

/// Runs `work` to its end on the calling thread, with a ring of its own: for commands and tests. Spawned tasks still running at
/// the end are dropped.
///
/// # Panics
/// When called inside the live runtime, or when not even the fallback can be set up.
pub fn block_on<F: Future>(work: F) -> F::Output {
    block_on_with(IoChoice::Auto, work)
}

/// As [`block_on`], with a given I/O path.
///
/// # Panics
/// As [`block_on`], and when `io` is not available.
pub fn block_on_with<F: Future>(io: IoChoice, work: F) -> F::Output {
    assert!(
        io_path_here().is_none(),
        "this thread already drives a live runtime"
    );
    let config = LiveConfig {
        threads: 1,
        io,
        recv_buffers: 16,
        ..LiveConfig::default()
    };
    let driver = match Driver::new(&config) {
        Ok(driver) => driver,
        Err(refused) => panic!("no way to wait for I/O: {refused}"),
    };
    let waker = driver.waker();
    let mut work = std::pin::pin!(work);
    let mut output = None;
    driver.run(
        || match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => {
                output = Some(value);
                true
            }
            Poll::Pending => false,
        },
    );
    output.expect("the loop ends with an output")
}
