//! Tasks on the current thread.

use std::future::Future;
use std::task::Poll;

#[cfg(any(test, feature = "sim"))]
use crate::sim;
use crate::{live, sync};

/// Starts `work` on the runtime that drives this thread.
///
/// The task runs on even if the handle is dropped.
///
/// # Panics
/// When no runtime drives this thread.
pub fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (done, output) = sync::oneshot();
    spawn_detached(async move { done.send(work.await) });
    output
}

/// As [`spawn`], for a task without a waiter.
///
/// # Panics
/// When no runtime drives this thread.
pub fn spawn_detached<F>(work: F)
where
    F: Future<Output = ()> + 'static,
{
    #[cfg(any(test, feature = "sim"))]
    if let Some(core) = sim::current() {
        return core.spawn(Box::pin(work));
    }
    live::spawn_local(work);
}

/// A future of the output of a spawned task; `None` when the task was dropped before it finished
/// (its runtime stopped, or it panicked).
pub type JoinHandle<T> = sync::Receiver<T>;

/// Lets the other ready tasks of this thread run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
