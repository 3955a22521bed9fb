//! The engine on emulated flash whose erase blocks are its segments.
//!
//! The harness is that of the engine's own simulation.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

extern crate engine as flowstone_engine;

mod didacache;
#[path = "../../../../product/engine/tests/sim/limit.rs"]
#[allow(dead_code, reason = "a harness of several tests")]
mod limit;
mod nand;
#[path = "../../../../product/engine/tests/sim/support.rs"]
#[allow(dead_code, reason = "a harness of several tests")]
mod support;
