//! Locks and atomics of the engine. In its unit tests each use of one is a place where a schedule explorer may let
//! another thread come first.

#[cfg(test)]
mod turns;

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(test))]
pub(crate) use std::sync::atomic;
#[cfg(test)]
pub(crate) use turns::{Exploring, Mutex, MutexGuard, RwLock, atomic, turn};
