//! Requests to a background task: to make everything in memory durable now, and to write a checkpoint. A caller that
//! stops waiting leaves no flash write half done and no segment taken.

use futures_util::future::select;
use runtime::sync::{EventListener, Notify};

use super::phase::Phase;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Reason why stored items could not be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// The flash refused some items, or the journal cannot be kept.
    #[error("not everything could be made durable: the log says what the flash refused")]
    Refused,
    /// The sync took longer than an orderly stop may take.
    #[error("not everything is durable yet: the flash is slow, ask again")]
    Slow,
    /// The cache is being stopped, which makes everything durable as well.
    #[error("the cache is being stopped")]
    Stopping,
}

/// Requests, numbered in the order in which they came.
#[derive(Default)]
pub(crate) struct Requests {
    asked: AtomicU64,
    served: Mutex<Served>,
    /// Notified when a request has come (`come`), and when requests have been served (`done`).
    come: Notify,
    done: Notify,
}

#[derive(Default)]
struct Served {
    last: u64,
    is_done: bool,
}

impl Requests {
    /// Makes a request and waits for its answer: whether it was carried out. Returns `None` once the cache is being
    /// stopped.
    pub(crate) async fn served(&self, phase: &Phase) -> Option<bool> {
        let number = self.ask();
        loop {
            let done = self.done.listener();
            let stopping = phase.listener();
            if let Some(outcome) = self.outcome(number) {
                return Some(outcome);
            }
            if phase.is_stopped() {
                return None;
            }
            select(done, stopping).await;
        }
    }

    /// Returns a listener for the next request.
    pub(super) fn come(&self) -> EventListener {
        self.come.listener()
    }

    /// Returns the number of the last request if it has not been served.
    pub(super) fn waiting(&self) -> Option<u64> {
        let last = self.asked.load(Ordering::SeqCst);
        (last > self.served.lock().last).then_some(last)
    }

    /// Serves the requests up to `last`. `is_done` says whether the task did as they asked.
    pub(super) fn serve(&self, last: u64, is_done: bool) {
        *self.served.lock() = Served { last, is_done };
        self.done.notify_all();
    }

    /// Makes a request and returns its number.
    fn ask(&self) -> u64 {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.come.notify_all();
        number
    }

    /// Returns whether a request was carried out; `None` if it has not been served yet.
    fn outcome(&self, number: u64) -> Option<bool> {
        let served = self.served.lock();
        (served.last >= number).then_some(served.is_done)
    }
}
