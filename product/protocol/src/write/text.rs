//! Replies of the classic text protocol.

use std::fmt::Display;
use std::io::Write;

use super::{TERMINATOR, decimal};
use crate::reply::{Refusal, Status};

/// Bytes of a `VALUE` line besides the key: words, spaces, three numbers, terminators.
const VALUE_OVERHEAD_BYTES: usize = 64;

/// Appends an item as `get` answers it, or `gets` if there is a `cas_unique`: header, value,
/// terminator. After the last one comes [`Status::End`].
#[inline]
pub fn value(
    out: &mut Vec<u8>,
    key: &[u8],
    client_flags: u32,
    cas_unique: Option<u64>,
    value: &[u8],
) {
    out.reserve(key.len() + value.len() + VALUE_OVERHEAD_BYTES);
    value_header(out, key, client_flags, cas_unique, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(TERMINATOR);
}

/// Appends the line in front of a value of `bytes` bytes; the value and a [`TERMINATOR`] follow.
#[inline]
pub fn value_header(
    out: &mut Vec<u8>,
    key: &[u8],
    client_flags: u32,
    cas_unique: Option<u64>,
    bytes: usize,
) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    decimal(out, client_flags);
    out.push(b' ');
    decimal(out, bytes);
    if let Some(cas_unique) = cas_unique {
        out.push(b' ');
        decimal(out, cas_unique);
    }
    out.extend_from_slice(TERMINATOR);
}

/// Appends a fixed reply, unless the client sent `noreply`.
#[inline]
pub fn status(out: &mut Vec<u8>, status: Status, noreply: bool) {
    if !noreply {
        out.extend_from_slice(status.as_bytes());
    }
}

/// Appends an error, unless the client sent `noreply`, which silences errors as in memcached. For
/// errors of meta commands `quiet` is always false.
#[inline]
pub fn refusal(out: &mut Vec<u8>, refusal: Refusal, quiet: bool) {
    if !quiet {
        out.extend_from_slice(refusal.as_bytes());
    }
}

/// Appends the outcome of `incr` or `decr`, unless the client sent `noreply`.
#[inline]
pub fn number(out: &mut Vec<u8>, value: u64, noreply: bool) {
    if !noreply {
        decimal(out, value);
        out.extend_from_slice(TERMINATOR);
    }
}

/// Appends the answer to `version`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(TERMINATOR);
}

/// Appends a line of statistics. [`Status::End`] ends the list.
pub fn stat(out: &mut Vec<u8>, name: &str, value: impl Display) {
    // Writing to a Vec cannot fail; a Display that fails leaves the value out.
    let _ = write!(out, "STAT {name} {value}");
    out.extend_from_slice(TERMINATOR);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_come_with_and_without_their_version() {
        assert_eq!(
            written(|out| value(out, b"user:1", 7, None, b"ada")),
            "VALUE user:1 7 3\r\nada\r\n"
        );
        assert_eq!(
            written(|out| value(out, b"user:1", u32::MAX, Some(u64::MAX), b"")),
            "VALUE user:1 4294967295 0 18446744073709551615\r\n\r\n"
        );
    }

    #[test]
    fn noreply_silences_everything() {
        let all = |quiet| {
            written(|out| {
                status(out, Status::Stored, quiet);
                refusal(out, Refusal::TooLarge, quiet);
                number(out, 8, quiet);
            })
        };
        assert_eq!(
            all(false),
            "STORED\r\nSERVER_ERROR object too large for cache\r\n8\r\n"
        );
        assert_eq!(all(true), "");
    }

    #[test]
    fn statistics_are_lines_of_name_and_value() {
        assert_eq!(
            written(|out| {
                stat(out, "curr_items", 3u64);
                stat(out, "rusage_user", format_args!("{:.3}", 0.5));
                stat(out, "domain_socket", "NULL");
                version(out, "1.6.45");
            }),
            "STAT curr_items 3\r\nSTAT rusage_user 0.500\r\nSTAT domain_socket NULL\r\n\
             VERSION 1.6.45\r\n"
        );
    }
}
