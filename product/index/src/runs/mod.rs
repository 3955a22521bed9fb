//! The index of items that lie in sorted runs: which runs of a partition may hold a key, and on which page of a run.
//!
//! ```text
//!   hash ──> slot, coefficients, fingerprint ──> SlicedRibbon: the runs that may hold the key, newest first
//!        └─> order ──> PageBoundaries of such a run: its one page, or two neighbours
//! ```
//!
//! A run is written once, its items in the order of their hashes. All runs of a partition have ribbon filters of one shape,
//! stored side by side, so that one look-up asks all of them. Adding a run writes one column of bits, and dropping the oldest
//! run clears one bit. `docs/internals/runs.md` has the sizes and the figures.
//!
//! Nothing here locks: the owner keeps a partition's part behind the partition's lock.

mod boundaries;
mod columns;
mod ribbon;
mod shape;
mod solver;
#[cfg(test)]
mod tests;

pub use boundaries::PageBoundaries;
pub use columns::{Columns, MAX_COLUMNS};
pub use ribbon::SlicedRibbon;
pub use shape::{RibbonKey, RibbonShape, ShapeError};
pub use solver::{Solution, Solver};
