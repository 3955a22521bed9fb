//! Recorded traces, read as streams of requests.
//!
//! ```text
//!   file ──input──▶ plain bytes ──lines / records──▶ rows ──twitter, cachelib, ...──▶ Request
//!          xz, zstd, gzip         bounded window
//! ```
//!
//! A trace is read once, from the beginning, through a window of bounded size, whatever its length.
//! Where a trace has numbers for keys, they are the key ids; other keys are hashed to 64 bits, so
//! that of a hundred million keys some ten-thousandth part of one pair is expected to collide.
//!
//! A file that is cut off, corrupt, or of another format fails with one line that names the file and
//! the line or record; nothing is skipped and nothing guessed.

mod binary;
mod cachelib;
mod cloudphysics;
mod columns;
mod detect;
mod error;
mod input;
mod twitter;
mod window;

use std::fmt;
use std::num::NonZeroU8;
use std::path::Path;

use crate::keys::MAX_KEY_BYTES;
use crate::request::Request;

pub use error::TraceError;

use cachelib::CacheLib;
use cloudphysics::CloudPhysics;
use error::Trouble;
use window::Window;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Twitter's: `timestamp,key,key size,value size,client,operation,TTL`, without a header.
    Twitter,
    /// Meta's kvcache traces: CSV with a header that names the columns, at least `key`, `op` and
    /// `size`.
    CacheLib,
    /// libCacheSim's form of the CloudPhysics block traces: CSV with a header that names the
    /// columns, at least `op`, `size` and `lbn`.
    CloudPhysics,
    /// libCacheSim's binary records of 24 bytes.
    OracleGeneral,
    /// Keys of eight bytes, big-endian, one after the other.
    Be64,
    /// Keys of four bytes, big-endian, one after the other.
    Be32,
}

/// All formats with their names.
const FORMATS: [(Format, &str); 6] = [
    (Format::Twitter, "twitter"),
    (Format::CacheLib, "kvcache"),
    (Format::CloudPhysics, "cloudphysics"),
    (Format::OracleGeneral, "oraclegeneral"),
    (Format::Be64, "be64"),
    (Format::Be32, "be32"),
];

impl Format {
    /// The format called `name`: `twitter`, `kvcache`, `cloudphysics`, `oraclegeneral`, `be64` or
    /// `be32`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let known = FORMATS
            .iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name));
        known.map(|(format, _)| *format)
    }

    /// The names of all formats, separated by commas.
    pub(crate) fn all() -> String {
        FORMATS.map(|(_, name)| name).join(", ")
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Twitter | Self::CacheLib | Self::CloudPhysics)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = FORMATS.iter().find(|(format, _)| format == self);
        f.write_str(known.map_or("", |(_, name)| name))
    }
}

/// The requests of one trace, in order. Memory use does not depend on the length of the trace.
#[derive(Debug)]
pub struct TraceReader {
    path: Box<Path>,
    window: Window,
    format: Format,
    rows: Rows,
    /// Lines or records read so far.
    position: u64,
    /// A request that its row asks for so many times more.
    again: Option<(Request, u32)>,
}

/// What is known about the rows of a trace.
#[derive(Debug)]
enum Rows {
    Twitter,
    CacheLib(CacheLib),
    CloudPhysics(CloudPhysics),
    OracleGeneral,
    Be64,
    Be32,
}

impl TraceReader {
    /// Opens the trace at `path`. Without a `format`, its name and its first line decide.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let fail = |trouble: Trouble| trouble.at(path, "", 0);
        let mut window = Window::new(input::open(path).map_err(fail)?);
        let format = match format {
            Some(format) => format,
            None => detect::format(path, window.peek().map_err(fail)?).map_err(fail)?,
        };
        let mut position = 0;
        let mut header = |window: &mut Window| {
            position = 1;
            let line = window
                .line()?
                .ok_or_else(|| Trouble::Row("the file is empty".to_owned()))?;
            columns::Header::of(line)
        };
        let on_header = |trouble: Trouble| trouble.at(path, "line", 1);
        let rows = match format {
            Format::Twitter => Rows::Twitter,
            Format::CacheLib => {
                let header = header(&mut window).map_err(on_header)?;
                Rows::CacheLib(CacheLib::new(&header).map_err(on_header)?)
            }
            Format::CloudPhysics => {
                let header = header(&mut window).map_err(on_header)?;
                Rows::CloudPhysics(CloudPhysics::new(&header).map_err(on_header)?)
            }
            Format::OracleGeneral => Rows::OracleGeneral,
            Format::Be64 => Rows::Be64,
            Format::Be32 => Rows::Be32,
        };
        Ok(Self {
            path: path.into(),
            window,
            format,
            rows,
            position,
            again: None,
        })
    }

    /// The format of the trace.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the trace knows how long values are.
    #[must_use]
    pub fn has_sizes(&self) -> bool {
        !matches!(self.format, Format::Be64 | Format::Be32)
    }

    /// The next request, none at the end. After an error, the trace cannot be read further.
    #[inline]
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        if let Some((request, times)) = self.again {
            self.again = (times > 1).then(|| (request, times - 1));
            return Ok(Some(request));
        }
        self.read_row().map_err(|trouble| {
            let unit = if self.format.is_text() {
                "line"
            } else {
                "record"
            };
            trouble.at(&self.path, unit, self.position)
        })
    }

    fn read_row(&mut self) -> Result<Option<Request>, Trouble> {
        match &self.rows {
            Rows::OracleGeneral => {
                let record = self.window.record(&mut self.position)?;
                Ok(record.map(binary::oracle_general))
            }
            Rows::Be64 => Ok(self.window.record(&mut self.position)?.map(binary::be64)),
            Rows::Be32 => Ok(self.window.record(&mut self.position)?.map(binary::be32)),
            text => loop {
                let Some(line) = self.window.line()? else {
                    return Ok(None);
                };
                self.position += 1;
                let (request, times) = match text {
                    Rows::CacheLib(rows) => rows.request(line)?,
                    Rows::CloudPhysics(rows) => (rows.request(line)?, 1),
                    _ => (twitter::request(line)?, 1),
                };
                if times == 0 {
                    continue;
                }
                self.again = (times > 1).then(|| (request, times - 1));
                return Ok(Some(request));
            },
        }
    }
}

/// The id of a key that is no number.
#[inline]
fn hashed(key: &[u8]) -> crate::keys::KeyId {
    crate::keys::KeyId(xxhash_rust::xxh3::xxh3_64(key))
}

/// A key's length as a row states it; 0 stands for unknown.
#[inline]
fn key_len(bytes: u64) -> Result<Option<NonZeroU8>, Trouble> {
    if bytes > MAX_KEY_BYTES as u64 {
        return Err(Trouble::Row(format!(
            "a key of {bytes} bytes; keys have at most {MAX_KEY_BYTES}"
        )));
    }
    Ok(NonZeroU8::new(bytes as u8))
}

/// A value's length as a row states it.
#[inline]
fn value_len(bytes: u64) -> Result<u32, Trouble> {
    match u32::try_from(bytes) {
        Ok(bytes) if bytes <= crate::settings::MAX_VALUE_BYTES => Ok(bytes),
        _ => Err(Trouble::Row(format!(
            "a value of {bytes} bytes; values have at most 1 GiB"
        ))),
    }
}

#[cfg(test)]
mod tests;
