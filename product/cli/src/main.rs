//! `flowstone-server`: the server with the default preset, and the inspection of an image.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::{Offer, inspect, serve};

/// A memcached-compatible cache that lives on flash.
#[derive(Parser)]
#[command(name = "flowstone-server", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve memcached's clients, with the items on flash.
    Serve(Box<serve::ServeArgs>),
    /// Show the contents of an image and the outcome of a start, without changing anything.
    Inspect(inspect::InspectArgs),
}

fn main() -> ExitCode {
    match cli::parse::<Cli>(Offer::PRODUCT, &["serve"]) {
        Ok(cli) => match cli.command {
            Command::Serve(args) => serve::run(*args, Offer::PRODUCT),
            Command::Inspect(args) => inspect::run(&args, Offer::PRODUCT),
        },
        Err(code) => code,
    }
}
