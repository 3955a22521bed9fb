//! Locks and atomics of the engine. In unit tests each use is a point at which a schedule explorer may switch to
//! another thread.

#[cfg(test)]
mod turns;

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(test))]
pub(crate) use std::sync::atomic;
#[cfg(test)]
pub(crate) use turns::{Exploring, Mutex, MutexGuard, RwLock, atomic, turn};
