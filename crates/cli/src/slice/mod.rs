//! `flowstone slice`: hash tables, Bloom filters and similarity indexes larger than memory, built and asked from files.

mod hash;
mod input;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Options of `flowstone slice`.
#[derive(Args)]
pub(crate) struct SliceArgs {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    /// A hash table of 8-byte keys and values.
    #[command(subcommand)]
    Hash(hash::HashCommand),
}

pub(crate) fn run(args: SliceArgs) -> ExitCode {
    match args.kind {
        Kind::Hash(command) => hash::run(command),
    }
}
