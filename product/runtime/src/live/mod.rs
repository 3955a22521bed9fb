//! The live runtime: one worker thread per core, each with its own completion ring.
//!
//! ```text
//!   any thread ── spawn_on ──> inbox of worker i ─┐
//!   any thread ── wakers ────> wake queue ────────┤
//!                                                 v
//!        ┌──────────────── worker i ("flowstone-i") ──────────────┐
//!        │  take inbox > run ready tasks > submit and wait, once  │
//!        └───────┬───────────────────────────────────┬────────────┘
//!             sockets                              files
//!                └──────── one io_uring ring ────────┘
//! ```
//!
//! Invariants: a task never leaves the worker that started it. An idle worker sleeps in the kernel and is woken by a completion,
//! a timer, its inbox or a waker, never by a tick. A turn of the loop costs one system call, and one more each time the number of
//! file operations begun in the turn has doubled (`submission.rs`).
//!
//! Failure: a panic in a task is logged and drops the task; the worker goes on. Without io_uring (an old kernel, or a container
//! that forbids it) the workers wait with epoll, a pool of threads reads files, and [`Workers::io_path`] says why. A ring that
//! keeps failing ends the process: its operations in flight can neither be finished nor abandoned safely.

mod clock;
mod driver;
mod held;
mod inbox;
mod panics;
mod pool;
mod probe;
mod signals;
mod submission;
mod waits;
mod workers;

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::task::Context;
use std::time::Duration;

use futures_util::FutureExt;

pub use driver::{IoChoice, IoPath, LiveConfig, io_path_here};
pub use panics::log_failed_waits_once;
pub use signals::{Signal, Signals, signals};
pub use workers::{Workers, block_on, block_on_with};

pub(crate) use clock::unix_seconds;
pub(crate) use driver::{is_tearing_down, recv_pool, uses_ring};
pub(crate) use pool::blocking;
pub(crate) use submission::submitted;
pub(crate) use waits::until;

use crate::Instant;

/// Longest single sleep; a longer sleep ends early, after a year.
const LONGEST_SLEEP: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn monotonic_now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

pub(crate) async fn sleep(duration: Duration) {
    compio::time::sleep(duration.min(LONGEST_SLEEP)).await;
}

/// Starts a task on the calling thread's runtime. A panic in the task is logged and goes no further.
pub(crate) fn spawn_local(task: impl Future<Output = ()> + 'static) {
    // Boxed: a future moved into another future occupies its memory twice.
    let mut task = Box::pin(AssertUnwindSafe(task).catch_unwind());
    let mut waker = None;
    let guarded = poll_fn(move |cx| {
        let waker = waker.get_or_insert_with(|| match inbox::here() {
            Some(home) => inbox::task_waker(home, cx.waker().clone()),
            None => cx.waker().clone(),
        });
        task.as_mut()
            .poll(&mut Context::from_waker(waker))
            .map(|outcome| {
                if let Err(panic) = outcome {
                    panics::log("a task", &*panic);
                }
            })
    });
    compio::runtime::spawn(guarded).detach();
}
