//! Requests to have everything that memory holds made durable now. The background task of write-back serves them, so
//! that nobody who stops waiting leaves a write to the flash half done.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use runtime::sync::Notify;

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
pub(crate) struct SyncRequests {
    asked: AtomicU64,
    served: Mutex<Served>,
    /// Notified when one has come, and when some have been served.
    pub(crate) come: Notify,
    pub(crate) done: Notify,
}

#[derive(Default)]
struct Served {
    last: u64,
    is_durable: bool,
}

impl SyncRequests {
    /// The last request there is, if it has not been served.
    pub(crate) fn waiting(&self) -> Option<u64> {
        let last = self.asked.load(Ordering::SeqCst);
        (last > self.served.lock().last).then_some(last)
    }

    /// Everything stored before the requests up to `last` is durable, or is not.
    pub(crate) fn serve(&self, last: u64, is_durable: bool) {
        *self.served.lock() = Served { last, is_durable };
        self.done.notify_all();
    }

    /// Asks; returns the request's number.
    pub(crate) fn ask(&self) -> u64 {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.come.notify_all();
        number
    }

    /// What became of a request; `None` when it has not been served yet.
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<(), SyncError>> {
        let served = self.served.lock();
        let outcome = served.is_durable.then_some(()).ok_or(SyncError::Refused);
        (served.last >= number).then_some(outcome)
    }
}
