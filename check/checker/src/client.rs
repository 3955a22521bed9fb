//! A client that chooses when it sends and when it reads.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::client::{Event, Parser};

use crate::values::tag_of;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait to send more to a server that takes nothing.
const SEND_PATIENCE: Duration = Duration::from_millis(5);
const READ_BYTES: usize = 64 << 10;

pub(crate) struct Client {
    stream: UnixStream,
    parser: Parser,
}

/// Counts of the replies that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Whole values.
    pub(crate) values: usize,
    /// Other lines, statistics included.
    pub(crate) lines: usize,
    /// Errors.
    pub(crate) errors: usize,
}

/// A set of replies that is being read.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) seen: Seen,
    value: Vec<u8>,
    is_over: bool,
}

impl Client {
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        Self::of(UnixStream::connect(socket)?)
    }

    pub(crate) fn of(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            parser: Parser::default(),
        })
    }

    pub(crate) fn version(&mut self) -> io::Result<()> {
        self.send(b"version\r\n")?;
        self.read_until(|line| line.starts_with(b"VERSION"))
            .map(drop)
    }

    /// Returns the number of connections that the server has, including this one.
    pub(crate) fn connections(&mut self) -> io::Result<u64> {
        self.statistic("stats", "curr_connections")
    }

    /// Returns the statistic `name` of the answer to `command`.
    pub(crate) fn statistic(&mut self, command: &str, name: &str) -> io::Result<u64> {
        self.send(format!("{command}\r\n").as_bytes())?;
        let mut told = Vec::new();
        while !told.ends_with(b"END\r\n") {
            let mut input = [0; 4096];
            match self.stream.read(&mut input)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => told.extend_from_slice(&input[..count]),
            }
        }
        let told = String::from_utf8_lossy(&told);
        let value = |line: &str| {
            let value = line.strip_prefix("STAT ")?.strip_prefix(name)?;
            value.strip_prefix(' ')?.parse().ok()
        };
        let found = told.lines().find_map(value);
        found.ok_or_else(|| io::Error::other(format!("`{command}` tells no {name}")))
    }

    /// Sends all bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends as many bytes as the server takes: none on a closed connection. Returns their number.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(SEND_PATIENCE))?;
        let all = bytes.len();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes = &bytes[count..],
            }
        }
        self.stream.set_write_timeout(Some(PATIENCE))?;
        Ok(all - bytes.len())
    }

    /// Reads replies up to a line for which `is_last` holds, or to an error.
    pub(crate) fn read_until(&mut self, is_last: impl Fn(&[u8]) -> bool) -> io::Result<Seen> {
        let mut reading = Reading::default();
        let deadline = Instant::now() + PATIENCE;
        while !self.read_some(&mut reading, READ_BYTES, &is_last)? {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(reading.seen)
    }

    /// Reads at most `most` bytes of replies. Returns whether an error, or a line for which `is_last` holds,
    /// was among them.
    pub(crate) fn read_some(
        &mut self,
        reading: &mut Reading,
        most: usize,
        is_last: impl Fn(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let mut input = vec![0; most];
        let Reading {
            seen,
            value,
            is_over,
        } = reading;
        let mut damaged = false;
        let count = self.stream.read(&mut input)?;
        if count == 0 {
            let what = format!("the server closed the connection after {seen:?}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let fed = self.parser.feed(&input[..count], |event| match event {
            Event::Value { .. } => value.clear(),
            Event::Body(bytes) => value.extend_from_slice(bytes),
            Event::ValueEnd => {
                damaged |= tag_of(value).is_none();
                seen.values += 1;
            }
            Event::Statistic(_) => seen.lines += 1,
            Event::Line(line) => {
                seen.lines += 1;
                *is_over |= is_last(line);
            }
            Event::Error(_) => {
                seen.errors += 1;
                *is_over = true;
            }
        });
        fed.map_err(io::Error::other)?;
        if damaged {
            return Err(io::Error::other("a value is not the one that was stored"));
        }
        Ok(*is_over)
    }

    /// Reads raw lines up to the one that ends with `end`. Returns the number of lines.
    pub(crate) fn read_lines(&mut self, end: &[u8]) -> io::Result<usize> {
        let mut input = vec![0; 4096];
        let (mut lines, mut tail) = (0, Vec::new());
        loop {
            let count = self.stream.read(&mut input)?;
            if count == 0 {
                let what = format!("the server closed the connection after {lines} lines");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            lines += input[..count].iter().filter(|&&byte| byte == b'\n').count();
            tail.extend_from_slice(&input[..count]);
            let kept = tail.len().saturating_sub(end.len());
            tail.drain(..kept);
            if tail == end {
                return Ok(lines);
            }
        }
    }
}
