//! The lab: runs presets side by side on the same workload, and repeats the experiments of the papers.
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
pub mod published;
pub mod row;

mod words;
