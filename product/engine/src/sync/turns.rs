//! Locks and atomics for the unit tests: the real ones, with a turn for another thread of an exploration before each
//! use. Outside an exploration a turn does nothing.
//!
//! A lock of the explorer stands before each real lock. The explorer's threads, which are one thread of the system,
//! wait for each other at that lock and not at the real one. Steps of other crates are not divided.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use shuttle::sync as explorer;

thread_local! {
    static IS_EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// Turns are taken on this thread as long as this value lives.
pub(crate) struct Exploring(());

impl Exploring {
    pub(crate) fn new() -> Self {
        IS_EXPLORING.set(true);
        Self(())
    }
}

impl Drop for Exploring {
    fn drop(&mut self) {
        IS_EXPLORING.set(false);
    }
}

/// Lets another thread of the exploration run first.
pub(crate) fn turn() {
    if IS_EXPLORING.get() {
        explorer::atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
    }
}

/// Atomics; each operation on them is one step.
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::Ordering;

    use std::sync::atomic as real;

    use super::Turns;

    pub(crate) type AtomicBool = Turns<real::AtomicBool>;
    pub(crate) type AtomicU8 = Turns<real::AtomicU8>;
    pub(crate) type AtomicU32 = Turns<real::AtomicU32>;
    pub(crate) type AtomicU64 = Turns<real::AtomicU64>;
    pub(crate) type AtomicUsize = Turns<real::AtomicUsize>;
}

/// An atomic that takes a turn before each use.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Turns<T>(T);

impl<T> Turns<T> {
    pub(crate) fn new<V>(value: V) -> Self
    where
        T: From<V>,
    {
        Self(value.into())
    }
}

impl<T> Deref for Turns<T> {
    type Target = T;

    fn deref(&self) -> &T {
        turn();
        &self.0
    }
}

/// A lock with the interface of `parking_lot`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    turn: explorer::Mutex<()>,
    inner: parking_lot::Mutex<T>,
}

/// Guard of a [`Mutex`]. Its fields are dropped in this order, so that the real lock is free when the next thread has
/// its turn.
pub(crate) struct MutexGuard<'a, T> {
    inner: parking_lot::MutexGuard<'a, T>,
    _turn: Option<explorer::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            turn: explorer::Mutex::new(()),
            inner: parking_lot::Mutex::new(value),
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let take = || {
            self.turn
                .lock()
                .unwrap_or_else(|panicked| panicked.into_inner())
        };
        MutexGuard {
            _turn: IS_EXPLORING.get().then(take),
            inner: self.inner.lock(),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A lock for readers and writers. An exploration lets readers in one at a time; this hides nothing, since readers
/// change nothing.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(Mutex<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn read(&self) -> impl Deref<Target = T> {
        self.0.lock()
    }

    pub(crate) fn write(&self) -> impl DerefMut<Target = T> {
        self.0.lock()
    }
}
