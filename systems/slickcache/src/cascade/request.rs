//! The request for a checkpoint, which frees pages of the region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::sync::Notify;

/// Whether a checkpoint would free pages that are needed. The index asks; the next checkpoint withdraws the request when
/// it begins. Each request is notified once.
pub struct CheckpointRequest {
    is_made: AtomicBool,
    wanted: Arc<Notify>,
}

impl CheckpointRequest {
    pub(super) fn new(wanted: &Arc<Notify>) -> Self {
        Self {
            is_made: AtomicBool::new(false),
            wanted: Arc::clone(wanted),
        }
    }

    /// Returns whether a checkpoint would free pages that are needed.
    pub fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Relaxed)
    }

    /// Notified when a checkpoint is wanted.
    pub fn wanted(&self) -> &Notify {
        &self.wanted
    }

    /// Asks for a checkpoint unless one is asked for already.
    pub(super) fn make(&self) {
        if !self.is_made.swap(true, Ordering::Relaxed) {
            self.wanted.notify_all();
        }
    }

    /// Withdraws the request, as a checkpoint begins.
    pub(super) fn withdraw(&self) {
        self.is_made.store(false, Ordering::Relaxed);
    }
}
