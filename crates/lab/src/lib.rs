//! The lab: presets side by side on the same work, and the experiments of the papers.

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod compare;
pub mod experiment;
pub mod plot;
pub mod row;
