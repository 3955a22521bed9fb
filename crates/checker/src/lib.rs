//! Looks for wrong and resurrected values.
//!
//! ```text
//!   clients ──> engine ──> faulty disk, journal        (virtual time, all from one seed)
//!      │                      │ a crash image at any store or write
//!      ▼                      ▼
//!   history ───────> every key read from the image: can the history explain it?
//! ```
//!
//! [`kill`] does the same to a real server process. [`simulate`] runs whole engines on the simulated runtime and looks at what crashes at random
//! moments leave. A failure names its seed and replays from it.

mod history;
mod kill;
mod sim;
mod values;

pub use kill::{KillError, KillOptions, KillReport, kill};
pub use sim::{Failure, Report, simulate, simulate_placement};
