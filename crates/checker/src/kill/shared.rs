//! What the clients of a server share: the history, and the first thing found wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::history::{Asked, Effect, Found, History, Moment, Wrong};

/// What the clients of all servers share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) history: Mutex<History>,
    pub(super) wrong: Mutex<Option<Wrong>>,
    pub(super) next_tag: AtomicU64,
    pub(super) keys: u64,
    /// Flushes asked for.
    pub(super) flushes: AtomicU64,
    pub(super) stop: AtomicBool,
}

impl Shared {
    pub(super) fn answer(&self, asked: Asked, effect: Option<Effect>) {
        self.history.lock().answer(asked, effect, 0);
    }

    pub(super) fn next_tag(&self) -> u64 {
        self.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self, key: u64, asked: Moment, found: Found) {
        // A miss is always right, and is not counted.
        if !matches!(found, Ok(None)) {
            let checked = self.history.lock().check(key, asked, found);
            self.judge(checked);
        }
    }

    pub(super) fn judge(&self, checked: Result<(), Wrong>) {
        if let Err(wrong) = checked {
            self.wrong.lock().get_or_insert(wrong);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
