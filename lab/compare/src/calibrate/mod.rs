//! The measured inputs of virtual time: the model of a drive and the table of processor costs.

mod cpu;
mod drive;
mod fit;

pub use cpu::{MeasureError, Measured, measure};
pub use drive::{drive_model, probe_model};
