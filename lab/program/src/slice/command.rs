//! The options that the commands of all structures have, and their loops over the input.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use device::Disk;
use serde_json::{Value, json};
use server::config::Size;
use systems::slices::{Files, Scheduling, SliceError};

use super::input::{InputError, lines_of, open, records_of};

/// The drives of a structure, and the way to read them.
#[derive(Args)]
pub(super) struct DriveArgs {
    /// The files or block devices of the structure, in the order in which it was created.
    #[arg(long, required = true, value_delimiter = ',', value_name = "FILE,...")]
    pub(super) drives: Vec<PathBuf>,
    /// Reads in a drive at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) queue_depth: u32,
    /// Print one JSON object a line instead of words.
    #[arg(long)]
    pub(super) json: bool,
}

/// The drives of a structure to be created.
#[derive(Args)]
pub(super) struct NewArgs {
    #[command(flatten)]
    pub(super) on: DriveArgs,
    /// Bytes of each drive.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// Overwrite the contents of the files.
    #[arg(long)]
    force: bool,
}

/// A structure and the input of a command.
#[derive(Args)]
pub(super) struct InputArgs {
    #[command(flatten)]
    pub(super) on: DriveArgs,
    /// File to read [default: standard input].
    pub(super) input: Option<PathBuf>,
}

/// A structure with keys, and the input of a command. All but look-ups run one after the other.
#[derive(Args)]
pub(super) struct KeyArgs {
    #[command(flatten)]
    pub(super) of: InputArgs,
    /// Look-ups under way at once.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) clients: u32,
}

/// An error in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Slices(#[from] SliceError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    #[error("line {line}: {source}")]
    Line { line: u64, source: SliceError },
    #[error("{source}; the {done} before it are done, durably")]
    Stopped { done: u64, source: Box<Self> },
}

impl DriveArgs {
    /// Returns the scheduling. Without known channels all reads count as reads of one channel.
    pub(super) fn scheduling(&self) -> Scheduling {
        Scheduling {
            queue_depth: self.queue_depth,
            channel_depth: self.queue_depth,
            is_channel_aware: true,
            writes_alone: true,
        }
    }

    /// Prints a result: `object` with `--json`, otherwise `words`.
    pub(super) fn print(&self, object: &Value, words: &str) -> Result<(), CommandError> {
        let mut out = io::stdout().lock();
        match self.json {
            true => writeln!(out, "{object}")?,
            false => writeln!(out, "{words}")?,
        }
        Ok(())
    }

    /// Prints how many pieces of the input were `done`: "inserted" or "deleted".
    pub(super) fn print_count(&self, count: u64, done: &str) -> Result<(), CommandError> {
        self.print(&json!({ done: count }), &format!("{count} {done}"))
    }
}

impl NewArgs {
    /// Returns the size of each drive.
    pub(super) fn sizes(&self) -> Vec<u64> {
        vec![self.size.0; self.on.drives.len()]
    }

    /// Creates the drives, and a log with as many words as `log_words` returns.
    pub(super) async fn files(
        &self,
        log_words: impl AsyncFnOnce(&[Arc<dyn Disk>]) -> Result<usize, SliceError>,
    ) -> Result<Files, SliceError> {
        Files::create(&self.on.drives, self.size.0, self.force, log_words).await
    }
}

impl InputArgs {
    /// Returns the lines of text that are not blank, each with its number.
    pub(super) fn lines(
        &self,
    ) -> Result<impl Iterator<Item = Result<(u64, String), InputError>>, InputError> {
        Ok(lines_of(open(self.input.as_deref())?))
    }

    /// Returns all lines unchanged, each with its number: any bytes, without the `\n` at the end.
    pub(super) fn records(
        &self,
    ) -> Result<impl Iterator<Item = Result<(u64, Vec<u8>), InputError>>, InputError> {
        Ok(records_of(open(self.input.as_deref())?))
    }
}

/// Does `change` for each piece of the input, then `sync`, and returns the number of pieces. If a change
/// fails, the changes before it are synced first, and the error names their number.
pub(super) async fn change_all<T>(
    input: impl Iterator<Item = Result<T, InputError>>,
    mut change: impl AsyncFnMut(T) -> Result<(), CommandError>,
    sync: impl Future<Output = Result<(), SliceError>>,
) -> Result<u64, CommandError> {
    let mut done = 0;
    for piece in input {
        let outcome = match piece {
            Ok(piece) => change(piece).await,
            Err(error) => Err(error.into()),
        };
        let Err(error) = outcome else {
            done += 1;
            continue;
        };
        let is_input = !matches!(error, CommandError::Output(_));
        return match sync.await {
            Ok(()) if is_input && done > 0 => Err(CommandError::Stopped {
                done,
                source: Box::new(error),
            }),
            _ => Err(error),
        };
    }
    sync.await?;
    Ok(done)
}

/// Looks up all pieces of the input, `at_once` together. `look_up` writes the answers to standard output in
/// the order of the input.
pub(super) async fn look_up_all<T>(
    input: impl Iterator<Item = Result<T, InputError>>,
    at_once: u32,
    look_up: impl AsyncFn(Vec<T>, &mut dyn Write) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut batch = Vec::new();
    for piece in input {
        batch.push(piece?);
        if batch.len() == at_once as usize {
            look_up(std::mem::take(&mut batch), &mut out).await?;
        }
    }
    look_up(batch, &mut out).await?;
    Ok(out.flush()?)
}
