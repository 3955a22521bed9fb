//! Recorded traces, read as streams of requests.
//!
//! ```text
//!   file ──input──▶ plain bytes ──lines / records──▶ rows ──twitter, csv, binary──▶ Request
//!          xz, zstd, gzip         bounded window
//! ```
//!
//! A trace is read once, from the start, through a window of bounded size, whatever its length. If a trace
//! has numbers for keys, they are the key ids. Other keys are hashed to 64 bits: among 100 million keys,
//! fewer than 0.001 colliding pairs are expected.
//!
//! A file that is cut off, corrupt, or of another format fails with one line that names the file and the line
//! or record; nothing is skipped or guessed.

mod binary;
mod columns;
mod csv;
mod detect;
mod error;
mod format;
mod input;
mod twitter;
mod window;

use std::path::Path;

use crate::request::Request;

pub use error::TraceError;
pub(crate) use format::Format;

use columns::Header;
use csv::Csv;
use error::Trouble;
use window::Window;

/// The requests of one trace, in order. Memory use does not depend on the length of the trace.
#[derive(Debug)]
pub(crate) struct TraceReader {
    path: Box<Path>,
    window: Window,
    format: Format,
    /// Columns of a format with a header.
    csv: Option<Csv>,
    /// Lines or records read so far.
    position: u64,
    /// A request that its row repeats, and the number of repetitions left.
    again: Option<(Request, u32)>,
}

impl TraceReader {
    /// Opens the trace at `path`. Without a `format`, the file's name and its first line decide.
    pub(crate) fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let fail = |trouble: Trouble| trouble.at(path, "", 0);
        let mut window = Window::new(input::open(path).map_err(fail)?);
        let format = match format {
            Some(format) => format,
            None => detect::format(path, window.peek().map_err(fail)?).map_err(fail)?,
        };
        let mut csv_of = |new: fn(&Header) -> Result<Csv, Trouble>| {
            let csv = header(&mut window).and_then(|header| new(&header));
            csv.map(Some).map_err(|trouble| trouble.at(path, "line", 1))
        };
        let csv = match format {
            Format::CacheLib => csv_of(Csv::kvcache)?,
            Format::CloudPhysics => csv_of(Csv::cloudphysics)?,
            _ => None,
        };
        Ok(Self {
            path: path.into(),
            window,
            format,
            position: csv.is_some().into(),
            csv,
            again: None,
        })
    }

    /// Returns whether the trace states the lengths of values.
    pub(crate) fn has_sizes(&self) -> bool {
        !matches!(self.format, Format::Be64 | Format::Be32)
    }

    /// Returns the next request, or `None` at the end. After an error the trace cannot be read further.
    #[inline]
    pub(crate) fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        if let Some((request, times)) = self.again {
            self.again = (times > 1).then(|| (request, times - 1));
            return Ok(Some(request));
        }
        self.read_row()
            .map_err(|trouble| trouble.at(&self.path, self.format.unit(), self.position))
    }

    fn read_row(&mut self) -> Result<Option<Request>, Trouble> {
        match self.format {
            Format::OracleGeneral => {
                let record = self.window.record(&mut self.position)?;
                Ok(record.map(binary::oracle_general))
            }
            Format::Be64 => Ok(self.window.record(&mut self.position)?.map(binary::be64)),
            Format::Be32 => Ok(self.window.record(&mut self.position)?.map(binary::be32)),
            Format::Twitter | Format::CacheLib | Format::CloudPhysics => loop {
                let Some(line) = self.window.line()? else {
                    return Ok(None);
                };
                self.position += 1;
                let (request, times) = match &self.csv {
                    Some(csv) => csv.request(line)?,
                    None => (twitter::request(line)?, 1),
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

/// Reads the first line of a file that names its columns.
fn header(window: &mut Window) -> Result<Header, Trouble> {
    let line = window.line()?;
    Header::of(line.ok_or_else(|| Trouble::Row("the file is empty".to_owned()))?)
}

#[cfg(test)]
mod tests;
