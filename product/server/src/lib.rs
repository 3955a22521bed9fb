//! The network server: connections, configuration, statistics.
//!
//! ```text
//!   accept (worker 0) ── the worker with the fewest connections ──┐
//!                                                                 ▼
//!   worker 0 … n-1, each:  connection ─ parse ─ execute ─> engine (memory, shared by all)
//!                              ▲  └──────── replies              │
//!                              └── completion ring ── flash reads ┘
//!   background, on some worker each:  write sealed segments │ reclaim │ close idle connections
//! ```
//!
//! A file names only files before it: counters, settings (`flash`, `index_flash`, `config`), errors, `open`, `stop`,
//! `throttle`, shared state, `replies`, `stats`, `dump`, `execute`, `connection`, `listen`, `start`, `simulated`.
//!
//! A connection stays on its worker, and so do its flash reads. [`run`] starts all parts, waits for a signal or a
//! client's `shutdown`, and makes an orderly stop.

#![forbid(unsafe_code)]

pub mod config;

mod connection;
mod counters;
mod dump;
mod error;
mod execute;
mod flash;
mod index_flash;
mod largest;
mod listen;
mod machine;
mod open;
mod replies;
mod shared;
#[cfg(any(test, feature = "sim"))]
mod simulated;
mod sizes;
mod start;
mod stats;
mod stop;
mod tell;
mod throttle;

pub use error::{ServeError, in_options};
pub use flash::FlashSetting;
pub use index_flash::IndexFlashSetting;
#[cfg(any(test, feature = "sim"))]
pub use simulated::Simulated;
pub use start::run;
pub use stop::LAST_WORDS;
