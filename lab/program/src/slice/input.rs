//! Lines of a file or of standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum bytes of a line: more than the numbers of the longest vector take.
const MOST_LINE_BYTES: usize = 32 << 20;
/// Characters of a line that a message shows.
const SHOWN: usize = 80;

/// An error of the input, in one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("line {line}: {source}")]
    Read { line: u64, source: io::Error },
    #[error("line {line} is longer than 32 MiB")]
    LongLine { line: u64 },
    #[error("line {line}: `{}` is no {what}", shortened(text))]
    Line {
        line: u64,
        text: String,
        what: &'static str,
    },
    #[error("vector {vector}: {source}")]
    ReadVector { vector: u64, source: io::Error },
    #[error("vector {vector}: {what}")]
    Vector { vector: u64, what: &'static str },
}

fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_debug())
}

/// Opens a file, or standard input if there is no path.
pub(super) fn open(path: Option<&Path>) -> Result<Box<dyn BufRead>, InputError> {
    let Some(path) = path else {
        return Ok(Box::new(io::stdin().lock()));
    };
    let opened = File::open(path).map_err(|source| InputError::Open {
        path: path.to_owned(),
        source,
    });
    Ok(Box::new(BufReader::new(opened?)))
}

/// Returns the results of `next` for 1, 2 and so on, up to the end or the first error.
pub(super) fn until_wrong<T>(
    mut next: impl FnMut(u64) -> Result<Option<T>, InputError>,
) -> impl Iterator<Item = Result<T, InputError>> {
    let (mut number, mut is_over) = (0, false);
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        number += 1;
        let next = next(number).transpose();
        is_over = !matches!(next, Some(Ok(_)));
        next
    })
}

/// Returns the lines that are not blank, each with its number. Lines end with `\n` or `\r\n`. A line that is
/// not UTF-8 is an error.
pub(super) fn lines_of(
    mut reader: impl BufRead,
) -> impl Iterator<Item = Result<(u64, String), InputError>> {
    until_wrong(move |line| {
        let bytes = next_line(&mut reader, line)?;
        bytes.map(|bytes| text_of(line, bytes)).transpose()
    })
    .filter(|text| !matches!(text, Ok((_, text)) if text.trim().is_empty()))
}

fn text_of(line: u64, mut bytes: Vec<u8>) -> Result<(u64, String), InputError> {
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((line, text)),
        Err(_) => Err(InputError::Read {
            line,
            source: io::Error::new(io::ErrorKind::InvalidData, "it is not text (UTF-8)"),
        }),
    }
}

/// Returns all lines unchanged, each with its number: any bytes, without the `\n` at the end.
pub(super) fn records_of(
    mut reader: impl BufRead,
) -> impl Iterator<Item = Result<(u64, Vec<u8>), InputError>> {
    until_wrong(move |line| Ok(next_line(&mut reader, line)?.map(|bytes| (line, bytes))))
}

/// Reads at most [`MOST_LINE_BYTES`] of a line. Returns `None` at the end.
fn next_line(reader: &mut impl BufRead, line: u64) -> Result<Option<Vec<u8>>, InputError> {
    let mut bytes = Vec::new();
    let read = reader
        .take(MOST_LINE_BYTES as u64)
        .read_until(b'\n', &mut bytes);
    read.map_err(|source| InputError::Read { line, source })?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if bytes.len() == MOST_LINE_BYTES {
        return Err(InputError::LongLine { line });
    }
    Ok(Some(bytes))
}

/// Parses a number of 8 bytes, decimal or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_ended_by_any_end() {
        let found = lines_of(&b"one\n\n  \ntwo\r\nthree"[..]);
        let found: Result<Vec<(u64, String)>, _> = found.collect();
        let expected = [(1, "one"), (4, "two"), (5, "three")];
        assert_eq!(
            found.expect("all are text"),
            expected.map(|(line, text)| (line, text.to_owned()))
        );
    }

    #[test]
    fn records_are_lines_as_they_are() {
        let found = records_of(&b"one\n\n \t \ntwo \r\n\xff\n three"[..]);
        let found: Result<Vec<(u64, Vec<u8>)>, _> = found.collect();
        let expected: [&[u8]; 6] = [b"one", b"", b" \t ", b"two \r", b"\xff", b" three"];
        let expected = (1..).zip(expected.map(<[u8]>::to_vec)).collect::<Vec<_>>();
        assert_eq!(found.expect("all can be read"), expected);
    }

    #[test]
    fn a_line_without_end_and_bytes_that_are_no_text_are_errors() {
        let mut endless = lines_of(BufReader::new(io::repeat(b'a')));
        let error = endless.next().expect("it is there").expect_err("too long");
        assert_eq!(error.to_string(), "line 1 is longer than 32 MiB");
        assert!(endless.next().is_none());
        let mut binary = lines_of(&b"a\n\xff\xfe\nb\n"[..]).skip(1);
        let error = binary.next().expect("it is there").expect_err("no text");
        assert_eq!(error.to_string(), "line 2: it is not text (UTF-8)");
        assert!(binary.next().is_none());
    }

    #[test]
    fn what_a_message_shows_of_a_line_is_short_and_harmless() {
        assert_eq!(shortened("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(shortened(&"x".repeat(1 << 20)).chars().count(), SHOWN + 1);
    }
}
