//! Parts that all structures share: the options of their drives, and the end of a command.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use slices::{Scheduling, SliceError};

use super::input::InputError;
use cli::exit;

/// The drives of a structure, and the way to read them.
#[derive(Args)]
pub(super) struct DriveArgs {
    /// The files or block devices of the structure, in the order in which it was created.
    #[arg(long, required = true, value_delimiter = ',', value_name = "FILE,...")]
    pub(super) drives: Vec<PathBuf>,
    /// Reads in a drive at once.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    queue_depth: u32,
    /// Print one JSON object a line instead of words.
    #[arg(long)]
    pub(super) json: bool,
}

impl DriveArgs {
    /// Returns the scheduling. Without known channels all reads count as reads of one channel.
    pub(super) fn scheduling(&self) -> Scheduling {
        Scheduling {
            queue_depth: self.queue_depth,
            channel_depth: self.queue_depth,
            is_channel_aware: true,
        }
    }
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

/// Does `change` for each piece of the input, then `sync`, and returns the number of pieces. If a change
/// fails, the changes before it are synced first, and the error names their number.
pub(super) async fn change_all<T>(
    input: impl Iterator<Item = Result<T, InputError>>,
    mut change: impl AsyncFnMut(T) -> Result<(), CommandError>,
    sync: impl AsyncFnOnce() -> Result<(), SliceError>,
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
        return match sync().await {
            Ok(()) if is_input && done > 0 => Err(CommandError::Stopped {
                done,
                source: Box::new(error),
            }),
            _ => Err(error),
        };
    }
    sync().await?;
    Ok(done)
}

/// Returns the exit code of a command. A reader that closes its end early has seen enough.
pub(super) fn ended(outcome: Result<(), CommandError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Output(source)) if source.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => exit::refuse(error),
    }
}
