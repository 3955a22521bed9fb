//! The `hashed` placement and learned admission on simulated devices.
//!
//! The harness is that of the engine's own simulation.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

extern crate engine as flowstone_engine;

mod admission;
mod answers;
#[path = "../../../../product/engine/tests/sim/filter.rs"]
mod filter;
mod hashed;
mod hashed_placement;
#[path = "../../../../product/engine/tests/sim/model.rs"]
#[allow(dead_code, reason = "a harness of several tests")]
mod model;
#[path = "../../../../product/engine/tests/sim/support.rs"]
#[allow(dead_code, reason = "a harness of several tests")]
mod support;
