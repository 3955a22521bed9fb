//! Streams of text and meta commands of several connections against a model of the cache.
//!
//! ```text
//!   input ──> steps ──> clients ──> server, engine ──> disk, journal   (virtual time, real sockets)
//!                          │                              │ a crash at any access
//!                          ▼                              ▼
//!                       answers ──> model: is there an order of the commands that explains them?
//! ```
//!
//! An input is the bytes of a fuzzer: a few bytes of settings, then commands, with control bytes between them for time,
//! restarts, crashes and steps of the wall clock (`input`). The server is the real one from the socket on, in a simulation,
//! with little memory and a small flash, so that items move to flash and segments are reclaimed (`session`). Connections send
//! their commands together; for each key some order of the commands, each connection's kept, must explain all answers
//! (`round`, `world`). Items may be missing only if the cache has counted a loss, or after a crash; they come back only as
//! the crash contract allows.
//!
//! A run fails on an answer that no order explains, a CAS unique given twice, a start that finds nothing, a connection that
//! waits for ever, and a server that lives on after its end.

#![forbid(unsafe_code)]

mod client;
mod input;
mod machine;
mod model;
mod round;
mod session;
mod world;

pub use session::{Report, run};
