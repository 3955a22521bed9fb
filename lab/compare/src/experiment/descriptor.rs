//! The descriptor, the setting and the outcome of an experiment.

use std::path::Path;

use super::cells::Cells;
use super::error::ExperimentError;
use crate::plot::Plot;
use crate::row::Row;

/// Description of an experiment, and the function that runs it.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Table or figure of a paper that the experiment repeats, or the document that it checks.
    pub source: &'static str,
    /// Measured quantities, in one line.
    pub measures: &'static str,
    /// Whether the experiment draws figures. Without figures its result is a table of its rows.
    pub has_plots: bool,
    /// Whether the experiment measures a real file. Its results then depend on the machine.
    pub needs_file: bool,
    run: Run,
}

type Run = fn(&Setting<'_>) -> Result<Outcome, ExperimentError>;

/// Returns an experiment without figures that needs no file.
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

/// Size of an experiment. The method is the same; smaller scales have smaller devices and fewer cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// About a second: for tests.
    Tiny,
    /// Less than a minute on two cores.
    Small,
    /// The scale of `docs/papers/reproduction.md`.
    Paper,
}

impl Scale {
    /// Returns the name of the scale.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Paper => "paper",
        }
    }

    /// Returns `tiny` for [`Scale::Tiny`], and else `other`.
    pub(super) fn tiny_or<T>(self, tiny: T, other: T) -> T {
        if self == Self::Tiny { tiny } else { other }
    }

    /// Returns the value for this scale.
    pub(super) fn pick<T>(self, tiny: T, small: T, paper: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Small => small,
            Self::Paper => paper,
        }
    }
}

/// Inputs of an experiment.
pub struct Setting<'a> {
    /// Size of the experiment.
    pub scale: Scale,
    /// Seed of all randomness.
    pub seed: u64,
    /// Path of a file that does not exist yet, for an experiment that needs a file. The file is removed afterwards.
    pub file: Option<&'a Path>,
    /// Runner of the cells.
    pub cells: &'a Cells<'a>,
}

/// Outcome of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// A row for each measurement, in a fixed order.
    pub rows: Vec<Row>,
    /// Figures.
    pub plots: Vec<Plot>,
    /// Results, next to those of the paper.
    pub findings: Vec<Finding>,
    /// The reason why the result is wrong, not merely different, if the experiment can tell.
    pub wrong: Option<String>,
}

impl Setting<'_> {
    /// Runs the cells. Returns the outcome whose findings and figures are those of `text` over their rows.
    pub(super) fn told<C: Sync>(
        &self,
        cells: &[C],
        row: impl Fn(&C) -> Result<Row, ExperimentError> + Sync,
        text: &str,
    ) -> Result<Outcome, ExperimentError> {
        Ok(Outcome::told(self.cells.run(cells, row)?, text))
    }

    /// Does the same for cells that may have failed to be made. Returns the first such error.
    pub(super) fn told_each<C: Sync>(
        &self,
        cells: impl Iterator<Item = Result<C, ExperimentError>>,
        row: impl Fn(&C) -> Result<Row, ExperimentError> + Sync,
        text: &str,
    ) -> Result<Outcome, ExperimentError> {
        self.told(&cells.collect::<Result<Vec<C>, _>>()?, row, text)
    }
}

impl Outcome {
    /// Returns the outcome of an experiment that found no error.
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
    /// Name of the measured quantity.
    pub measure: String,
    /// Result of the paper, in its words.
    pub paper: Option<String>,
    /// Result of this run; `None` if this scale does not measure it.
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
            paper: paper.map(str::to_owned),
            here,
        }
    }
}

impl Experiment {
    /// Marks the experiment as one with figures.
    pub(super) const fn drawn(mut self) -> Self {
        self.has_plots = true;
        self
    }

    /// Marks the experiment as one that needs a real file.
    pub(super) const fn of_a_file(mut self) -> Self {
        self.needs_file = true;
        self
    }

    /// Runs all cells. Adds the experiment, the scale and the seed to every row.
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
