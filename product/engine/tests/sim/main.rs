//! The engine on the simulated runtime: against a plain map, with many concurrent clients, on devices
//! that fail, and within its memory.
//!
//! Every random test follows from one seed, which it prints when it fails. `FLOWSTONE_SEED=N` runs
//! only that seed, `FLOWSTONE_CASES=N` runs N cases instead of the default number.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

mod admission;
mod concurrency;
mod copies;
mod didacache;
mod expiry;
mod faults;
mod flushes;
mod golden;
mod hashed;
mod hashed_placement;
mod images;
mod index;
mod index_device;
mod inspect;
mod journal;
mod map_placement;
mod memory;
mod model;
mod nand;
mod outages;
mod reclaim;
mod recovery;
mod ripq;
mod sliced;
mod stop;
mod superseded;
mod support;
mod tiered;
mod write_back;
mod write_limit;
