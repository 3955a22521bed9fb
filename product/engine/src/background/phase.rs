//! [`Phase`]: whether the cache serves, is being stopped, or has been saved.

use futures_util::future::select;
use runtime::sync::{EventListener, Notify};

use crate::sync::atomic::{AtomicBool, Ordering};

/// The phase of a run. It goes from serving to stopped to saved, and never back.
#[derive(Default)]
pub(crate) struct Phase {
    stopped: AtomicBool,
    /// Whether the stop has saved all that it is going to save.
    saved: AtomicBool,
    /// Notified when `stopped` is set, and again when `saved` is.
    changed: Notify,
}

impl Phase {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub(super) fn is_saved(&self) -> bool {
        self.saved.load(Ordering::Acquire)
    }

    /// Begins a stop. Returns false if one has begun before.
    pub(super) fn begin_stop(&self) -> bool {
        if self.stopped.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.changed.notify_all();
        true
    }

    /// Notes that the stop has saved all that it is going to save.
    pub(super) fn note_saved(&self) {
        self.saved.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Returns a listener for the next change of phase.
    pub(super) fn listener(&self) -> EventListener {
        self.changed.listener()
    }

    /// Waits for an event, or for the beginning of a stop.
    pub(super) async fn unless_stopping(&self, event: EventListener) {
        let stopping = self.listener();
        if !self.is_stopped() {
            select(event, stopping).await;
        }
    }
}
