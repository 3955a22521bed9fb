//! `flowstone compare`: presets side by side on the same work.
//!
//! ```text
//!   options ──▶ plan, checked for every preset ──▶ one child process for each preset
//!                                                    (this program, --worker PRESET)
//!   rows in order of --presets  ◀── standard output    │ as many at once as there are cores;
//!   progress bars, errors      ◀── standard error ─────┘ in real time one after the other
//! ```
//!
//! The exit code is 0 if every preset has a row, 2 if the input is wrong, and 1 otherwise.

use std::io::{self, Write};
use std::process::ExitCode;

mod children;
mod figure;
mod options;
mod table;

use lab::compare::{CompareError, Outcome, Plan};

pub(crate) use options::CompareArgs;

pub(crate) fn run(args: &CompareArgs) -> ExitCode {
    compare(args).err().unwrap_or(ExitCode::SUCCESS)
}

fn compare(args: &CompareArgs) -> Result<(), ExitCode> {
    let plan = args.plan().map_err(refuse)?;
    let presets = args.presets().map_err(refuse)?;
    let cannot_write = |what: &'static str| {
        move |error: io::Error| cli::exit::fail(format!("cannot write the {what}: {error}"))
    };
    if let Some(preset) = args.worker_preset(&presets) {
        let told = Box::new(children::tell);
        let outcome = lab::compare::run(&plan, preset, told).map_err(refuse)?;
        return children::print_json(&outcome).map_err(cannot_write("outcome"));
    }
    for preset in &presets {
        plan.check(preset).map_err(refuse)?;
    }
    let outcomes = children::run(&plan, &presets, |outcome| show(args, outcome))?;
    report(args, &plan, &outcomes).map_err(cannot_write("report"))
}

/// Prints a row at once if rows are lines of JSON.
fn show(args: &CompareArgs, outcome: &Outcome) -> io::Result<()> {
    if args.json {
        children::print_json(&outcome.row)?;
    }
    Ok(())
}

fn report(args: &CompareArgs, plan: &Plan, outcomes: &[Outcome]) -> io::Result<()> {
    if let Some(path) = &args.plot {
        let svg = figure::svg(plan, outcomes);
        std::fs::write(path, svg)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    }
    if args.json {
        return Ok(());
    }
    write!(io::stdout().lock(), "{}", table::text(plan, outcomes))
}

fn refuse(error: CompareError) -> ExitCode {
    if error.is_usage() {
        cli::exit::refuse(error)
    } else {
        cli::exit::fail(error)
    }
}
