//! Clock, tasks, randomness, sockets and files, injected.
//!
//! The same engine code runs on two runtimes:
//!
//! ```text
//!              engine, device, server
//!   spawn  sleep  now  unix_seconds  random_u64   <- free functions
//!        │                                 │
//!   ┌────┴─────────────┐        ┌──────────┴───────────┐
//!   │ live             │        │ sim                  │
//!   │ one worker per   │        │ one thread, virtual  │
//!   │ core, each with  │        │ clock, task order    │
//!   │ a completion ring│        │ drawn from a seed    │
//!   │ for sockets and  │        └──────────────────────┘
//!   │ flash reads      │
//!   └──────────────────┘
//! ```
//!
//! The free functions act on the runtime that drives the calling thread: a `sim::Sim` while it blocks on a future, a [`live`]
//! worker otherwise. Futures stay on the thread that spawned them and need not be `Send`. Only the types of [`sync`] and the
//! inbox of [`live::Workers`] cross threads.
//!
//! The simulation is compiled for tests and for the feature `sim` alone: a program has none.
//!
//! Nothing outside this crate names the library behind `live`. `unsafe` is confined to the buffers, the pages and the system
//! calls.

pub mod budget;
pub mod buffer;
pub mod file;
mod in_flight;
mod instant;
pub mod live;
pub mod net;
pub mod pages;
pub mod process;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod sync;
mod task;
mod time;
pub mod work;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub use instant::Instant;
pub use task::{JoinHandle, spawn, spawn_detached, yield_now};
pub use time::{Elapsed, now, sleep, timeout, unix_seconds, until};

/// Returns a random identifier. A simulation draws identifiers from a generator of their own.
pub fn random_id() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(id) = sim::with_current(|core| core.random_id()) {
        return id;
    }
    random_u64()
}

/// Returns a random number: from the seed under simulation, from the system otherwise.
pub fn random_u64() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(number) = sim::with_current(|core| core.random_u64()) {
        return number;
    }
    SmallRng::from_os_rng().random()
}
