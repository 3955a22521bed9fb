//! `flowstone slice`: builds and queries hash tables, maps, Bloom filters and similarity indexes that are
//! larger than memory, from files.

mod bench;
mod bloom;
mod drives;
mod hash;
mod input;
mod lsh;
mod map;
mod vectors;

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

pub(crate) fn run(args: SliceArgs) -> ExitCode {
    match args.kind {
        Kind::Hash(command) => hash::run(command),
        Kind::Map(command) => map::run(command),
        Kind::Bloom(command) => bloom::run(command),
        Kind::Lsh(command) => lsh::run(command),
    }
}
