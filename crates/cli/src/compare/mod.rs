//! `flowstone compare`: presets side by side on the same work.
//!
//! ```text
//!   options ──▶ plan, checked for every preset ──▶ one child process for each preset
//!                                                    (this program, --worker PRESET)
//!   rows in the order asked for ◀── standard output    │ as many at once as there are cores;
//!   progress bars, errors      ◀── standard error ─────┘ in real time one after the other
//! ```
//!
//! The exit code is 0 if every preset has a row, 2 when the input is at fault, 1 otherwise.

use std::io::{self, Write};
use std::process::ExitCode;

mod children;
mod figure;
mod options;
mod table;

use lab::compare::{CompareError, Outcome, Plan};
use lab::presets::Preset;

pub(crate) use options::CompareArgs;

pub(crate) fn run(args: &CompareArgs) -> ExitCode {
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(error) => return refuse(&error),
    };
    let presets = match args.presets() {
        Ok(presets) => presets,
        Err(error) => return refuse(&error),
    };
    if let Some(preset) = args.worker_preset(&presets) {
        return work(&plan, preset);
    }
    for preset in &presets {
        if let Err(error) = plan.check(preset) {
            return refuse(&error);
        }
    }
    let outcomes = match children::run(&plan, &presets, |outcome| show(args, outcome)) {
        Ok(outcomes) => outcomes,
        Err(ended) => return ended,
    };
    match report(args, &plan, &outcomes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::exit::fail(format!("cannot write the report: {error}")),
    }
}

/// Runs one preset, for the process that has started this one.
fn work(plan: &Plan, preset: &'static Preset) -> ExitCode {
    match lab::compare::run(plan, preset, Box::new(children::tell)) {
        Ok(outcome) => match children::answer(&outcome) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => crate::exit::fail(format!("cannot write the outcome: {error}")),
        },
        Err(error) => refuse(&error),
    }
}

/// Prints a row at once, where rows are lines.
fn show(args: &CompareArgs, outcome: &Outcome) -> io::Result<()> {
    if args.is_json() {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &outcome.row)?;
        writeln!(out)?;
    }
    Ok(())
}

fn report(args: &CompareArgs, plan: &Plan, outcomes: &[Outcome]) -> io::Result<()> {
    if let Some(path) = args.figure() {
        let svg = figure::svg(plan, outcomes);
        std::fs::write(path, svg)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    }
    if args.is_json() {
        return Ok(());
    }
    write!(io::stdout().lock(), "{}", table::text(plan, outcomes))
}

fn refuse(error: &CompareError) -> ExitCode {
    if error.is_usage() {
        crate::exit::refuse(error)
    } else {
        crate::exit::fail(error)
    }
}
