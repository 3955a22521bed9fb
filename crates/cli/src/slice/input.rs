//! Lines of a file or of standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// What is wrong with the input, in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("line {line}: {source}")]
    Read { line: u64, source: io::Error },
    #[error("line {line}: `{text}` is no {what}")]
    Line {
        line: u64,
        text: String,
        what: &'static str,
    },
}

/// The lines that are not empty, each with its number; standard input where there is no path.
pub(super) fn lines(
    path: Option<&Path>,
) -> Result<impl Iterator<Item = Result<(u64, String), InputError>>, InputError> {
    let reader: Box<dyn BufRead> = match path {
        None => Box::new(io::stdin().lock()),
        Some(path) => {
            let opened = File::open(path).map_err(|source| InputError::Open {
                path: path.to_owned(),
                source,
            });
            Box::new(BufReader::new(opened?))
        }
    };
    let numbered = (1..).zip(reader.lines());
    Ok(numbered.filter_map(|(line, text)| match text {
        Ok(text) if text.trim().is_empty() => None,
        Ok(text) => Some(Ok((line, text))),
        Err(source) => Some(Err(InputError::Read { line, source })),
    }))
}

/// A number of 8 bytes, decimal or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
