//! `flowstone slice`: builds and queries hash tables, maps, Bloom filters and similarity indexes that are
//! larger than memory, from files.
//!
//! ```text
//!   hash  map  bloom  lsh     a file for each structure: its options, and what a line of input does to it
//!     │    │ bench │   │      look-ups and inserts by many clients
//!     └────┴───┬───┴───┘
//!           command           the options that all have, and the loops over the input
//!        vectors  input       lines and vectors of a file or of standard input
//! ```

mod bench;
mod bloom;
mod command;
mod hash;
mod input;
mod lsh;
mod map;
mod vectors;

use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use cli::exit;
use command::CommandError;

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
    /// A map of keys to values, lines of any bytes.
    #[command(subcommand)]
    Map(map::MapCommand),
    /// A Bloom filter of lines of any bytes.
    #[command(subcommand)]
    Bloom(bloom::BloomCommand),
    /// An index of vectors that finds near neighbours.
    #[command(subcommand)]
    Lsh(lsh::LshCommand),
}

/// Returns the exit code of the command. A reader that closes its end early has seen enough.
pub(crate) fn run(args: SliceArgs) -> ExitCode {
    let outcome = runtime::live::block_on(async {
        match args.kind {
            Kind::Hash(command) => hash::run(command).await,
            Kind::Map(command) => map::run(command).await,
            Kind::Bloom(command) => bloom::run(command).await,
            Kind::Lsh(command) => lsh::run(command).await,
        }
    });
    match outcome {
        Err(CommandError::Output(source)) if source.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => exit::refuse(error),
        Ok(()) => ExitCode::SUCCESS,
    }
}
