//! What an experiment is, what it is run with, and what comes of it.

use std::path::Path;

use super::cells::Cells;
use super::error::ExperimentError;
use crate::plot::Plot;
use crate::row::Row;

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
    run: Run,
}

type Run = fn(&Setting<'_>) -> Result<Outcome, ExperimentError>;

/// An experiment whose rows are all that it shows, and that needs no file.
pub(super) const fn experiment(
    name: &'static str,
    source: &'static str,
    run: Run,
    measures: &'static str,
) -> Experiment {
    Experiment {
        name,
        source,
        measures,
        has_plots: false,
        needs_file: false,
        run,
    }
}

/// How much is measured. The method is the same; devices are smaller and cells fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A second or so: for tests.
    Tiny,
    /// Less than a minute on two cores.
    Small,
    /// What `docs/papers/reproduction.md` has.
    Paper,
}

impl Scale {
    /// Its name.
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
    /// A file that does not exist yet, for an experiment that needs one. It is removed afterwards.
    pub file: Option<&'a Path>,
    /// Runs the cells.
    pub cells: &'a Cells<'a>,
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

impl Outcome {
    /// What came of an experiment that finds nothing wrong.
    pub(super) fn of(plots: Vec<Plot>, findings: Vec<Finding>, rows: Vec<Row>) -> Self {
        Self {
            rows,
            plots,
            findings,
            wrong: None,
        }
    }
}

/// One line of the table in `docs/papers/reproduction.md`.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What was measured.
    pub measure: String,
    /// What the paper says, in its words.
    pub paper: Option<&'static str>,
    /// What was found here; none if this scale has no such row.
    pub here: Option<f64>,
}

impl Finding {
    pub(super) fn new(
        measure: impl Into<String>,
        paper: Option<&'static str>,
        here: Option<f64>,
    ) -> Self {
        Self {
            measure: measure.into(),
            paper,
            here,
        }
    }
}

impl Experiment {
    /// The same with figures.
    pub(super) const fn drawn(mut self) -> Self {
        self.has_plots = true;
        self
    }

    /// The same of a real file.
    pub(super) const fn of_a_file(mut self) -> Self {
        self.needs_file = true;
        self
    }

    /// Measures all of its cells; every row tells the experiment, the scale and the seed.
    pub fn run(&self, setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
        let mut outcome = (self.run)(setting)?;
        let of = Row::new().with("experiment", self.name);
        let with = Row::new()
            .with("scale", setting.scale.name())
            .with("seed", setting.seed);
        for row in &mut outcome.rows {
            *row = of.clone().and(std::mem::take(row)).and(with.clone());
        }
        Ok(outcome)
    }
}
