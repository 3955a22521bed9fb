//! Requests that a background task serves: to have everything that memory holds made durable now, and to write a
//! checkpoint. Nobody who stops waiting leaves a write to the flash half done, or segments taken for nothing.

use runtime::sync::Notify;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What was stored could not be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// The flash took not everything, or the journal cannot be kept.
    #[error("not everything could be made durable: the log says what the flash refused")]
    Refused,
    /// It took longer than an orderly stop may.
    #[error("not everything is durable yet: the flash is slow, ask again")]
    Slow,
    /// The cache is being stopped, which makes everything durable itself.
    #[error("the cache is being stopped")]
    Stopping,
}

/// Requests, by the order in which they came.
#[derive(Default)]
pub(crate) struct Requests {
    asked: AtomicU64,
    served: Mutex<Served>,
    /// Notified when one has come, and when some have been served.
    pub(crate) come: Notify,
    pub(crate) done: Notify,
}

#[derive(Default)]
struct Served {
    last: u64,
    is_done: bool,
}

impl Requests {
    /// The last request there is, if it has not been served.
    pub(crate) fn waiting(&self) -> Option<u64> {
        let last = self.asked.load(Ordering::SeqCst);
        (last > self.served.lock().last).then_some(last)
    }

    /// What the requests up to `last` have asked for is done, or could not be.
    pub(crate) fn serve(&self, last: u64, is_done: bool) {
        *self.served.lock() = Served { last, is_done };
        self.done.notify_all();
    }

    /// Asks; returns the request's number.
    pub(crate) fn ask(&self) -> u64 {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.come.notify_all();
        number
    }

    /// Whether what a request asked for is done; `None` when it has not been served yet.
    pub(crate) fn outcome(&self, number: u64) -> Option<bool> {
        let served = self.served.lock();
        (served.last >= number).then_some(served.is_done)
    }
}
