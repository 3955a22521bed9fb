//! One file per paper table or figure: `flowstone experiment`.
//!
//! ```text
//!   CATALOG ── run(Setting) ──▶ cells, on as many threads ──▶ Outcome
//!                               as there are cores            rows, plots, findings
//! ```
//!
//! An experiment is a file with a constant [`Experiment`] and a line in [`CATALOG`]. It cuts its work
//! into cells that do not know of each other, each of which follows from the setting alone; so the
//! rows do, to the byte, whatever the machine and the number of its cores, but for the experiments
//! that measure a real file. What the papers found
//! and why we find something else is in `docs/reproduction.md`.

mod ancs_fig2;
mod cells;
mod descriptor;
mod didacache;
mod drive_file;
mod drive_model;
mod error;
mod flashield_fig1;
mod lab_truth;
mod workload_check;

#[cfg(test)]
mod tests;

pub use cells::{Cells, Progress};
pub use descriptor::{Experiment, Finding, Outcome, Request, Scale, Setting};
pub use error::ExperimentError;

/// All experiments, in the order in which they are listed.
pub const CATALOG: &[Experiment] = &[
    flashield_fig1::EXPERIMENT,
    ancs_fig2::EXPERIMENT,
    workload_check::EXPERIMENT,
    drive_model::EXPERIMENT,
    lab_truth::EXPERIMENT,
    didacache::FIG10_11,
    didacache::FIG12_13,
    didacache::FIG14_16,
    didacache::FIG17_18,
    didacache::TABLE1,
    didacache::FIG19_22_TABLE2,
    didacache::FIG23_26_TABLE3,
    didacache::TABLE4,
    didacache::TABLE5,
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    CATALOG.iter().find(|experiment| experiment.name == name)
}
