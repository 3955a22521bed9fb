//! The engine on the simulated runtime: against a plain map, with many concurrent clients, on devices
//! that fail, and within its memory.
//!
//! Every random test follows from one seed, which it prints when it fails. `FLOWSTONE_SEED=N` runs
//! only that seed, `FLOWSTONE_CASES=N` runs N cases instead of the default number.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

mod admission;
mod answers;
mod big;
mod clock;
mod concurrency;
mod copies;
mod expiry;
mod faults;
mod filter;
mod flushes;
mod golden;
mod images;
mod index;
mod inspect;
mod journal;
mod kills;
mod large;
mod limit;
mod map_placement;
mod memory;
mod model;
mod outages;
mod perhaps;
mod reclaim;
mod recovery;
mod ripq;
mod roundtrip;
mod runs;
mod stop;
mod superseded;
mod support;
mod unwritable;
mod write_back;
mod write_limit;
