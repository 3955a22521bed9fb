//! State shared by the clients of a server: the history, and the first error.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard, RwLock};

use super::flushes::{FlushAsked, Flushes, now};
use engine::history::{Asked, Effect, Found, History, Moment, Wrong};

/// The history and the delayed flushes.
#[derive(Default)]
struct Book {
    history: History,
    flushes: Flushes,
}

/// State shared by the clients of all servers.
#[derive(Default)]
pub(super) struct Shared {
    book: Mutex<Book>,
    pub(super) wrong: Mutex<Option<Wrong>>,
    pub(super) next_tag: AtomicU64,
    pub(super) keys: u64,
    /// Read-locked by a client during an operation. The holder of the write lock has the server alone.
    pub(super) turn: RwLock<()>,
    /// One operation in this many is a flush; 0 for none.
    pub(super) flush_one_in: AtomicU32,
    /// Microseconds for which a client rests after each operation.
    pub(super) rest_us: AtomicU64,
    /// Flushes that were answered (`flushes`), and how many had a delay (`delayed`).
    pub(super) flushes: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) stop: AtomicBool,
}

impl Shared {
    pub(super) fn new(keys: u64) -> Self {
        Self {
            next_tag: AtomicU64::new(1),
            keys,
            ..Self::default()
        }
    }

    /// Returns the history, moved to the present time.
    pub(super) fn history(&self) -> MappedMutexGuard<'_, History> {
        MutexGuard::map(self.book(), |book| &mut book.history)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        let mut book = self.book.lock();
        let Book { history, flushes } = &mut *book;
        flushes.pass(history, now());
        book
    }

    pub(super) fn ask_flush(&self, delay: u32) -> FlushAsked {
        let Book { history, flushes } = &mut *self.book();
        flushes.ask(history, delay)
    }

    pub(super) fn answer_flush(&self, asked: &FlushAsked) {
        let Book { history, flushes } = &mut *self.book();
        flushes.answer(history, asked);
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let is_delayed = u64::from(asked.is_delayed());
        self.delayed.fetch_add(is_delayed, Ordering::Relaxed);
    }

    /// Records that the server has been killed.
    pub(super) fn end(&self) {
        let Book { history, flushes } = &mut *self.book();
        flushes.end(history);
    }

    /// Forgets changes and flushes that can make no difference. No operation may be under way.
    pub(super) fn prune(&self) {
        let Book { history, flushes } = &mut *self.book();
        flushes.prune(history);
    }

    pub(super) fn answer(&self, asked: Asked, effect: Option<Effect>) {
        self.history().answer(asked, effect, 0);
    }

    pub(super) fn next_tag(&self) -> u64 {
        self.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of values written so far or on their way.
    pub(super) fn written(&self) -> u64 {
        self.next_tag.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self, key: u64, asked: Moment, found: Found) {
        // A miss is always right, and is not counted.
        if !matches!(found, Ok(None)) {
            let checked = self.history().check(key, asked, found);
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
