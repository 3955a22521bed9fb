//! The `flowstone` command: a thin dispatcher, one module per subcommand.
//!
//! A wrong option is answered with one line on standard error and exit code 2.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

mod bench;
mod check;
mod compare;
mod exit;
mod experiment;
mod inspect;
mod progress;
mod serve;
mod slice;
mod workload_args;

/// A memcached-compatible cache that lives on flash.
#[derive(Parser)]
#[command(name = "flowstone", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve memcached's clients, with the items on flash.
    Serve(Box<serve::ServeArgs>),
    /// Put load on a memcached-speaking server and measure it.
    Bench(Box<bench::BenchArgs>),
    /// Look for wrong values and for memory beyond the bound: crashes simulated, servers killed or besieged.
    Check(check::CheckArgs),
    /// Run presets side by side on the same work, on emulated devices or a file.
    Compare(Box<compare::CompareArgs>),
    /// Repeat a table or figure of a paper, on emulated devices.
    Experiment(experiment::ExperimentArgs),
    /// Build and ask hash tables, Bloom filters and similarity indexes that are larger than memory.
    Slice(Box<slice::SliceArgs>),
    /// Tell what an image holds and what a start would find, without changing anything.
    Inspect(inspect::InspectArgs),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => match cli.command {
            Command::Serve(args) => serve::run(*args),
            Command::Bench(args) => bench::run(*args),
            Command::Check(args) => check::run(&args),
            Command::Compare(args) => compare::run(&args),
            Command::Experiment(args) => experiment::run(&args),
            Command::Slice(args) => slice::run(*args),
            Command::Inspect(args) => inspect::run(&args),
        },
        Err(error) => usage_error(&error),
    }
}

/// Prints help as it is, and an error as one line.
fn usage_error(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A reader that closes its end early has seen enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let line = lines.join(" ");
    exit::refuse(line.strip_prefix("error: ").unwrap_or(&line))
}
