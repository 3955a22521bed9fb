//! One file per paper table or figure: `flowstone experiment`.
//!
//! ```text
//!   CATALOG ── run(Setting) ──▶ cells, on as many threads as there are cores ──▶ Outcome
//!                                                                                rows, plots, findings
//! ```
//!
//! An experiment is a file with a constant [`Experiment`] and a line in [`CATALOG`]. It cuts its work
//! into cells that do not know of each other, each of which follows from the setting alone; so the
//! rows do, to the byte, whatever the machine and the number of its cores. What the papers found
//! and why we find something else is in `docs/reproduction.md`.

mod ancs_fig2;
mod cells;
mod flashield_fig1;
mod workload_check;

#[cfg(test)]
mod tests;

use device::ConfigError;
use workload::WorkloadError;

use crate::plot::Plot;
use crate::row::Row;

pub use cells::{Cells, Progress};

/// All experiments, in the order in which they are listed.
pub const CATALOG: &[Experiment] = &[
    flashield_fig1::EXPERIMENT,
    ancs_fig2::EXPERIMENT,
    workload_check::EXPERIMENT,
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
    /// Runs the cells.
    pub cells: Cells<'a>,
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
}

impl Experiment {
    /// Runs it on `threads` threads; `progress` hears of cells done.
    ///
    /// # Errors
    /// When what it measures cannot be made.
    pub fn run(
        &self,
        scale: Scale,
        seed: u64,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Outcome, ExperimentError> {
        let cells = Cells::new(threads, progress);
        let mut outcome = (self.run)(&Setting { scale, seed, cells })?;
        let of = Row::new().with("experiment", self.name);
        let with = Row::new().with("scale", scale.name()).with("seed", seed);
        for row in &mut outcome.rows {
            *row = of.clone().and(std::mem::take(row)).and(with.clone());
        }
        Ok(outcome)
    }
}
