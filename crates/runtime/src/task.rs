//! Tasks on the current thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{live, sim, sync};

/// Starts `work` on the runtime that drives this thread.
///
/// The task runs on whether or not the handle is kept.
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
    JoinHandle(output)
}

/// [`spawn`] for a task nobody waits for.
///
/// # Panics
/// When no runtime drives this thread.
pub fn spawn_detached<F>(work: F)
where
    F: Future<Output = ()> + 'static,
{
    match sim::current() {
        Some(core) => core.spawn(Box::pin(work)),
        None => live::spawn_local(work),
    }
}

/// The output of a spawned task.
pub struct JoinHandle<T>(sync::Receiver<T>);

impl<T> Future for JoinHandle<T> {
    type Output = Option<T>;

    /// `None` when the task was dropped before it finished (its runtime stopped, or it panicked).
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(cx)
    }
}

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
