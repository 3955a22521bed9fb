//! Columns of text: their positions, and the keys and numbers in them.

use std::num::NonZeroU8;

use super::error::Trouble;
use crate::key_id::{KeyId, MAX_KEY_BYTES};
use crate::keys::parse_decimal;
use crate::settings::MAX_VALUE_BYTES;

/// The first line of a file that names its columns.
#[derive(Debug)]
pub(super) struct Header {
    names: Vec<String>,
}

/// Maximum number of columns of a row.
pub(super) const MAX_COLUMNS: usize = 16;

pub(super) struct Row<'a> {
    columns: [&'a [u8]; MAX_COLUMNS],
    count: usize,
}

impl Header {
    pub(super) fn of(line: &[u8]) -> Result<Self, Trouble> {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let text = std::str::from_utf8(line)
            .map_err(|_| Trouble::Row("a header is expected, and this is no text".to_owned()))?;
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.len() > MAX_COLUMNS {
            return Err(Trouble::Row(format!(
                "{} columns; at most {MAX_COLUMNS} are understood",
                names.len()
            )));
        }
        Ok(Self { names })
    }

    /// Returns the position of the column called `name`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Returns the position of the column called `name`, or an error if it is missing.
    pub(super) fn require(&self, name: &str) -> Result<usize, Trouble> {
        self.find(name).ok_or_else(|| {
            let names = self.names.join(",");
            let shown: String = names
                .chars()
                .take(80)
                .flat_map(char::escape_debug)
                .collect();
            Trouble::Row(format!(
                "no column is called '{name}' in the header '{shown}'"
            ))
        })
    }

    pub(super) fn columns(&self) -> usize {
        self.names.len()
    }
}

impl<'a> Row<'a> {
    /// Splits a line that must have `expected` columns.
    #[inline]
    pub(super) fn of(line: &'a [u8], expected: usize) -> Result<Self, Trouble> {
        let mut row = Self {
            columns: [b""; MAX_COLUMNS],
            count: 0,
        };
        let mut from = 0;
        // Columns are short, so going byte by byte is faster than a search for each.
        for (comma, _) in line.iter().enumerate().filter(|(_, byte)| **byte == b',') {
            row.add(&line[from..comma]);
            from = comma + 1;
        }
        row.add(&line[from..]);
        if row.count != expected {
            return Err(wrong_count(row.count, expected));
        }
        Ok(row)
    }

    /// Adds a column, or only counts it if there are too many.
    #[inline]
    fn add(&mut self, column: &'a [u8]) {
        if let Some(next) = self.columns.get_mut(self.count) {
            *next = column;
        }
        self.count += 1;
    }

    #[inline]
    pub(super) fn column(&self, at: usize) -> &'a [u8] {
        self.columns[at]
    }

    /// Returns the number in column `at`, which messages call `name`.
    #[inline]
    pub(super) fn number(&self, at: usize, name: &str) -> Result<u64, Trouble> {
        number(self.column(at), name)
    }
}

#[cold]
pub(super) fn wrong_count(count: usize, expected: usize) -> Trouble {
    let columns = if count == 1 { "column" } else { "columns" };
    Trouble::Row(format!("{count} {columns}, where {expected} are expected"))
}

/// Parses a decimal number, which messages call `name`.
#[inline]
pub(super) fn number(digits: &[u8], name: &str) -> Result<u64, Trouble> {
    parse_decimal(digits).ok_or_else(|| {
        let shown = shown(digits);
        Trouble::Row(format!("the {name} '{shown}' is not a number of 0 or more"))
    })
}

/// Returns the first bytes as text, for messages.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(40)].escape_ascii();
    text.to_string()
}

/// Returns the id of a key that is not a number.
#[inline]
pub(super) fn hashed(key: &[u8]) -> KeyId {
    KeyId(xxhash_rust::xxh3::xxh3_64(key))
}

/// Returns a key's length as a row states it; 0 stands for unknown.
#[inline]
pub(super) fn key_len(bytes: u64) -> Result<Option<NonZeroU8>, Trouble> {
    if bytes > MAX_KEY_BYTES as u64 {
        return Err(Trouble::Row(format!(
            "a key of {bytes} bytes; keys have at most {MAX_KEY_BYTES}"
        )));
    }
    Ok(NonZeroU8::new(bytes as u8))
}

/// Returns a value's length as a row states it.
#[inline]
pub(super) fn value_len(bytes: u64) -> Result<u32, Trouble> {
    match u32::try_from(bytes) {
        Ok(bytes) if bytes <= MAX_VALUE_BYTES => Ok(bytes),
        _ => Err(Trouble::Row(format!(
            "a value of {bytes} bytes; values have at most 1 GiB"
        ))),
    }
}
