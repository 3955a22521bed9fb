//! The processor under virtual time.
//!
//! ```text
//!   task ──poll──> engine ── counts what it does (runtime::work)
//!     │                                   │ difference x table
//!     └── Metered: goes on at the end ◄── Cpus: the server that is free first
//! ```
//!
//! What a poll does takes effect at once, the commands it gives to a device included; then its task
//! occupies a server for as long as the work costs, behind whoever came before, and goes on after
//! that. So a flash read runs beside the processor time of the poll that asked for it.

mod servers;
mod table;

pub use servers::{Cpus, Metered};
pub use table::{CpuTable, TableError};
