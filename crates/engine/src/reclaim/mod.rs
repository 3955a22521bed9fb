//! Writing sealed segments and reclaiming old ones, whatever indexes the items in them.
//!
//! ```text
//!   writer      sealed ──> flash │ failed: what the index names moves to another block, or is forgotten
//!   reclaimer   policy: which segment, what of it is kept ──> SEGMENT DEAD ──> summary
//!                 └─> each item: does the index name it? ── dropped │ copied │ back to memory ──> release
//! ```
//!
//! A policy is a pure function from what is seen to a choice; [`Upkeep`] carries it out and asks whoever
//! indexes the items through [`Residents`].

mod policy;
mod reclaimer;
mod residents;
mod upkeep;
mod watermarks;
mod writer;

pub(crate) use reclaimer::next_run;
pub use residents::{IndexUse, Named, Resident, Residents};
pub use upkeep::FlashStats;
pub(crate) use upkeep::{ReturnToMemory, Upkeep};
pub use watermarks::Watermarks;
