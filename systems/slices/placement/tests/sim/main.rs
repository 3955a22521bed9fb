//! The `sliced` placement on simulated devices.
//!
//! The harness is that of the engine's own simulation.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

extern crate engine as flowstone_engine;

mod sliced;
#[path = "../../../../../product/engine/tests/sim/support.rs"]
#[allow(dead_code, reason = "a harness of several tests")]
mod support;
