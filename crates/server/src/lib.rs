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
//! A connection stays on its worker, and so do its flash reads. [`run`] composes it all, waits for
//! a signal or a client's `shutdown`, and stops orderly.

#![forbid(unsafe_code)]

pub mod config;
pub mod counters;

mod connection;
mod dump;
mod execute;
mod flash;
mod listen;
mod shared;
mod start;
mod stats;

pub use flash::FlashSetting;
pub use start::{ServeError, run};

/// The version clients are told: memcached's whose protocol is spoken, then our own.
pub const VERSION: &str = concat!("1.6.18-flowstone-", env!("CARGO_PKG_VERSION"));
