//! Looks for wrong and resurrected values, for memory beyond the bound, for writes beyond requests, and for
//! long waits.
//!
//! ```text
//!   clients ──> engine ──> faulty disk, journal        (virtual time, all from one seed)
//!      │                      │ a crash image at any store or write
//!      ▼                      ▼
//!   history ───────> every key read from the image: can the history explain it?
//! ```
//!
//! [`simulate`] runs whole engines on the simulated runtime, crashes them at random moments and checks every
//! key after a restart. [`kill`] does the same to a real server process. [`memory()`] sends greedy clients to
//! a server, [`amplification()`] clients of small amendments. [`stalls()`] measures the waits of a probe while a
//! server does its work. A failure names its seed and replays from it.

#![forbid(unsafe_code)]

mod amplification;
mod client;
mod kill;
mod memory;
mod server;
mod sim;
mod stalls;
mod values;

pub use amplification::{
    Amendment, AmplificationOptions, AmplificationRow, MOST_WRITTEN, amplification,
};
pub use kill::{KillError, KillOptions, KillReport, kill};
pub use memory::{
    Kind, MOST_AFTERWARDS, MOST_AT_PEAK, MemoryError, MemoryOptions, MemoryRow, REST, memory,
};
pub use sim::{Failure, Report, simulate, simulate_placement, simulate_preset};
pub use stalls::{MOST_OF_MEDIAN, Situation, StallError, StallOptions, StallRow, stalls};
