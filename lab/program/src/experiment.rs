//! `flowstone experiment`: repeats the tables and figures of the papers.
//!
//! The scale and the seed alone determine the rows and the figures, to the byte, unless a real file is
//! measured.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lab::experiment::{Cells, Experiment, Finding, Outcome, Scale, Setting, all, find};
use lab::plot::{Plot, page};
use lab::row::{Row, measure, table};

/// Options of `flowstone experiment`.
#[derive(Args)]
#[command(after_help = catalog())]
pub(crate) struct ExperimentArgs {
    /// The name of the experiment; see below.
    name: Option<String>,
    /// Size of the experiment: small takes some minutes at most, paper is all of the table or figure.
    #[arg(long, default_value = "small", value_parser = scale())]
    scale: Scale,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Run it with N seeds, one after the other: findings are means, with the least and the most.
    #[arg(long, default_value = "1", value_name = "N")]
    seeds: NonZeroU32,
    /// Print one JSON object a line for each row, and nothing else.
    #[arg(long)]
    json: bool,
    /// Make this file, measure it and remove it: for experiments on a real drive.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Parses the name of a scale. The scale of the tests is hidden from the help.
fn scale() -> impl TypedValueParser<Value = Scale> {
    let scales = [Scale::Tiny, Scale::Small, Scale::Paper];
    let names = scales.map(|scale| PossibleValue::new(scale.name()).hide(scale == Scale::Tiny));
    PossibleValuesParser::new(names).map(move |name| {
        let named = scales.into_iter().find(|scale| scale.name() == name);
        named.expect("one of the names")
    })
}

/// Maximum number of cells at once: a cell may take 1 GB of memory.
const MAX_THREADS: usize = 16;

fn catalog() -> String {
    let mut text = "Experiments:\n".to_owned();
    for experiment in all() {
        let (name, measures) = (experiment.name, experiment.measures);
        let _ = writeln!(text, "  {name:<16} {measures} ({})", experiment.source);
    }
    text
}

fn names() -> String {
    let names: Vec<&str> = all().map(|experiment| experiment.name).collect();
    names.join(", ")
}

/// Runs the experiment. Returns exit code 1 if its result is wrong.
pub(crate) fn run(args: &ExperimentArgs) -> ExitCode {
    match experiment(args) {
        Ok(Outcome {
            wrong: Some(what), ..
        }) => cli::exit::fail(what),
        Ok(_) => ExitCode::SUCCESS,
        Err(what) => cli::exit::refuse(what),
    }
}

fn experiment(args: &ExperimentArgs) -> Result<Outcome, String> {
    let Some(name) = args.name.as_deref() else {
        return Err(format!("name an experiment: {}", names()));
    };
    let experiment = find(name)
        .ok_or_else(|| format!("no experiment is called '{name}'; there are {}", names()))?;
    match &args.file {
        None if experiment.needs_file => {
            return Err(format!(
                "{name} measures a drive; name a file on it that does not exist yet with --file"
            ));
        }
        Some(_) if !experiment.needs_file => {
            return Err(format!("{name} measures no file; leave out --file"));
        }
        Some(path) if path.exists() => {
            let path = path.display();
            return Err(format!(
                "{path}: exists and would be overwritten; name a new file"
            ));
        }
        _ => {}
    }
    let figure = match &args.plot {
        None => None,
        Some(_) if !experiment.has_plots => {
            return Err(format!("{name} draws no figure; leave out --plot"));
        }
        Some(path) => Some(Figure::open(path)?),
    };
    let bar = cli::progress::bar(0, "{bar:40} {pos} of {len} cells, {elapsed}");
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let cores = runtime::process::cores().min(MAX_THREADS);
    let cells = Cells::new(cores, &progress);
    let outcomes: Result<Vec<Outcome>, _> = (0..u64::from(args.seeds.get()))
        .map(|nth| {
            experiment.run(&Setting {
                scale: args.scale,
                seed: args.seed.wrapping_add(nth),
                file: args.file.as_deref(),
                cells: &cells,
            })
        })
        .collect();
    bar.finish_and_clear();
    let mut outcomes = outcomes.map_err(|error| error.to_string())?;
    let findings = Found::of_all(&outcomes);
    // The figures show the first seed.
    let rest = outcomes.split_off(1);
    let mut outcome = outcomes.swap_remove(0);
    for other in rest {
        outcome.rows.extend(other.rows);
        outcome.wrong = outcome.wrong.or(other.wrong);
    }
    if let Some(figure) = figure {
        figure.keep(&page(&outcome.plots))?;
    }
    let report = if args.json {
        outcome.rows.iter().map(|row| row.json() + "\n").collect()
    } else {
        report(experiment, args, &outcome, &findings)
    };
    match io::stdout().lock().write_all(report.as_bytes()) {
        // A reader that closes its end early has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("standard output: {error}"))
        }
        _ => Ok(outcome),
    }
}

/// Returns the text report: the figures as tables, or else the rows, and the findings.
fn report(
    experiment: &Experiment,
    args: &ExperimentArgs,
    outcome: &Outcome,
    findings: &[Found],
) -> String {
    let (scale, seed) = (args.scale.name(), args.seed);
    let seed = match args.seeds.get() {
        1 => format!("seed {seed}"),
        seeds => format!("{seeds} seeds from {seed}"),
    };
    let mut parts = vec![format!(
        "{}: {}\n{}; scale {scale}, {seed}\n",
        experiment.name, experiment.measures, experiment.source
    )];
    if outcome.plots.is_empty() {
        parts.push(table(&outcome.rows));
    }
    parts.extend(outcome.plots.iter().map(Plot::table));
    let found: Vec<Row> = findings.iter().filter_map(Found::row).collect();
    parts.push(table(&found));
    parts.join("\n")
}

/// One measure as found with every seed.
struct Found {
    finding: Finding,
    all: Vec<f64>,
}

impl Found {
    fn of_all(outcomes: &[Outcome]) -> Vec<Self> {
        let of = |(at, finding): (usize, &Finding)| Self {
            finding: finding.clone(),
            all: outcomes
                .iter()
                .filter_map(|outcome| outcome.findings.get(at)?.here)
                .collect(),
        };
        let first = outcomes.first().map_or(&[][..], |first| &first.findings);
        first.iter().enumerate().map(of).collect()
    }

    /// Returns a row, if this scale has the measure.
    fn row(&self) -> Option<Row> {
        let (first, others) = self.all.split_first()?;
        let row = Row::new()
            .with("measure", self.finding.measure.as_str())
            .with("paper", self.finding.paper.as_deref().unwrap_or("-"));
        if others.is_empty() {
            return Some(row.with("here", measure(*first)));
        }
        let mean = self.all.iter().sum::<f64>() / self.all.len() as f64;
        let least = self.all.iter().copied().fold(*first, f64::min);
        let most = self.all.iter().copied().fold(*first, f64::max);
        Some(
            row.with("here, mean", measure(mean))
                .with("least", measure(least))
                .with("most", measure(most)),
        )
    }
}

/// A file for the figures. It is opened before the work, so that a wrong path wastes no work.
struct Figure<'a> {
    path: &'a Path,
    file: File,
    /// Whether this run made the file and has written nothing to it.
    is_new: bool,
}

impl<'a> Figure<'a> {
    fn open(path: &'a Path) -> Result<Self, String> {
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        // The old contents stay until the new figures are ready.
        options.write(true).create(true).truncate(false);
        let opened = options.open(path);
        let file = opened.map_err(|error| {
            let path = path.display();
            format!("{path}: {error}; name a file that can be written")
        })?;
        Ok(Self { path, file, is_new })
    }

    fn keep(mut self, svg: &str) -> Result<(), String> {
        self.is_new = false;
        let written = self.file.set_len(0);
        let written = written.and_then(|()| self.file.write_all(svg.as_bytes()));
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Drop for Figure<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // An empty file that stays does no harm.
            let _ = std::fs::remove_file(self.path);
        }
    }
}
