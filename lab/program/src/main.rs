//! The `flowstone` command: a thin dispatcher, one module per subcommand.
//!
//! The server and the inspection of an image are the product's. This package adds the laboratory, the
//! checkers and the systems of the papers.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::{Offer, inspect, serve};

mod bench;
mod check;
mod compare;
mod experiment;
#[cfg(system = "slices")]
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
    #[cfg(system = "slices")]
    Slice(Box<slice::SliceArgs>),
    /// Show the contents of an image and the outcome of a start, without changing anything.
    Inspect(inspect::InspectArgs),
}

/// The presets of the systems, and the emulated devices.
const OFFER: Offer = Offer {
    presets: systems::PRESETS,
    devices: emulated::DEVICES,
};

fn main() -> ExitCode {
    match cli::parse::<Cli>(OFFER, &["serve", "compare"]) {
        Ok(cli) => match cli.command {
            Command::Serve(args) => serve::run(*args, OFFER),
            Command::Bench(args) => bench::run(*args),
            Command::Check(args) => check::run(&args),
            Command::Compare(args) => compare::run(&args),
            Command::Experiment(args) => experiment::run(&args),
            #[cfg(system = "slices")]
            Command::Slice(args) => slice::run(*args),
            Command::Inspect(args) => inspect::run(&args, OFFER),
        },
        Err(code) => code,
    }
}
