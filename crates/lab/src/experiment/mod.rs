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
mod didacache;
mod drive_file;
mod drive_model;
mod flashield_fig1;
mod lab_truth;
mod workload_check;

#[cfg(test)]
mod tests;

use std::path::Path;

use device::{ConfigError, DeviceError, OpenError};
use workload::WorkloadError;

use crate::plot::Plot;
use crate::row::Row;

pub use cells::{Cells, Progress};

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
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    CATALOG.iter().find(|experiment| experiment.name == name)
}

/// What there is to know about an experiment before it runs.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Which table or figure it repeats, or what it checks.
    pub source: &'static str,
    /// What it measures, in a line.
    pub measures: &'static str,
    /// Whether it draws figures. One that does not is a table of its rows.
    pub has_plots: bool,
    /// Whether it measures a real file. What it finds depends on the machine, then.
    pub needs_file: bool,
    run: fn(&Setting<'_>) -> Result<Outcome, ExperimentError>,
}

/// How much is measured. The method is the same; devices are smaller and cells fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A second or so: for tests.
    Tiny,
    /// Less than a minute on two cores.
    Small,
    /// What `docs/reproduction.md` has.
    Paper,
}

impl Scale {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Paper => "paper",
        }
    }
}

/// What an experiment is run with.
pub struct Setting<'a> {
    /// How much is measured.
    pub scale: Scale,
    /// Decides whatever is left to chance.
    pub seed: u64,
    /// Where a file can be made and measured.
    pub file: Option<&'a Path>,
    /// Runs the cells.
    pub cells: Cells<'a>,
}

/// What a user asks for.
pub struct Request<'a> {
    /// How much is measured.
    pub scale: Scale,
    /// Decides whatever is left to chance.
    pub seed: u64,
    /// Cells at once.
    pub threads: usize,
    /// A file that does not exist yet, for an experiment that needs one. It is removed afterwards.
    pub file: Option<&'a Path>,
    /// Hears of cells done.
    pub progress: Progress<'a>,
}

/// What came of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// One for each measurement, in a fixed order.
    pub rows: Vec<Row>,
    /// The figures.
    pub plots: Vec<Plot>,
    /// What the rows say, next to what the paper says.
    pub findings: Vec<Finding>,
    /// Why the result is not merely different but wrong, where an experiment can tell.
    pub wrong: Option<String>,
}

/// One line of the table in `docs/reproduction.md`.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What was measured.
    pub measure: String,
    /// What the paper says, in its words.
    pub paper: Option<&'static str>,
    /// What was found here; none if this scale has no such row.
    pub here: Option<f64>,
}

/// Why an experiment could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There can be no such device.
    #[error("the emulated device: {0}")]
    Device(#[from] ConfigError),
    /// There is no such workload.
    #[error("the workload: {0}")]
    Workload(#[from] WorkloadError),
    /// It measures a file, and none was named.
    #[error("no file to measure; name one that does not exist yet with --file")]
    NoFile,
    /// The file cannot be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A run of a preset failed.
    #[error(transparent)]
    Compare(#[from] crate::compare::CompareError),
    /// The disk failed.
    #[error("the file: {0}")]
    Disk(#[from] DeviceError),
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// When what it measures cannot be made, or fails.
    pub fn run(&self, request: &Request<'_>) -> Result<Outcome, ExperimentError> {
        let Request { scale, seed, .. } = *request;
        let mut outcome = (self.run)(&Setting {
            scale,
            seed,
            file: request.file,
            cells: Cells::new(request.threads, request.progress),
        })?;
        let of = Row::new().with("experiment", self.name);
        let with = Row::new().with("scale", scale.name()).with("seed", seed);
        for row in &mut outcome.rows {
            *row = of.clone().and(std::mem::take(row)).and(with.clone());
        }
        Ok(outcome)
    }
}
