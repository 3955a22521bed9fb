//! The processor under virtual time.
//!
//! ```text
//!   task ──poll──> engine ── counts its work (runtime::work)
//!     │                                   │ difference x table
//!     └── Metered: goes on at the end ◄── Cpus: the server that is free first
//! ```
//!
//! The effects of a poll are immediate, including the commands it gives to a device. Then its task occupies a server for the
//! cost of its work, behind the tasks that came before, and continues after that. So a flash read runs in parallel with the
//! processor time of the poll that issued it.

mod servers;
mod table;

pub use servers::{Cpus, Metered};
pub use table::{CpuTable, TableError};
