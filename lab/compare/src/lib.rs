//! The lab: presets side by side on the same work, and the experiments of the papers.
//!
//! ```text
//!   workload ──▶ clients ──▶ engine ──▶ device          one preset, one run: compare
//!                   │          │          │
//!                   └ cpu: virtual processor time       │
//!                   └──────────┴──────────┴──▶ CompareRow
//! ```

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod compare;
pub mod cpu;
pub mod experiment;
pub mod plot;
pub mod row;

mod words;
