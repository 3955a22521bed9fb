//! A client's connection: the part of memcached's protocols that the test needs.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::client::{Answer, Event, Parser, Reply, key_of, unique_of};

use crate::values::{key_name, number_of, tag_of};
use engine::history::{Found, Seen};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum bytes of one `read`.
const READ_BYTES: usize = 16 << 10;
/// Keys of one request that reads many: a line of less than 2 KiB.
const KEYS_AT_ONCE: u64 = 100;

pub(super) fn unix_seconds() -> u32 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_secs() as u32
}

/// Ways to ask for a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Get,
    Gets,
    Meta,
    /// With a new expiry.
    Touching(u32),
}

/// Ways to ask for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Meta,
    /// Without an answer: the answer to a later request on this connection confirms it.
    Quiet,
}

pub(super) struct Connection {
    stream: UnixStream,
    reply: Reply,
    input: Box<[u8]>,
}

impl Connection {
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        Self::of(UnixStream::connect(socket)?)
    }

    pub(super) fn of(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            reply: Reply::default(),
            input: vec![0; READ_BYTES].into_boxed_slice(),
        })
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(request)?;
        loop {
            let count = self.stream.read(&mut self.input)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let answer = self.reply.feed(&self.input[..count]);
            if let Some(answer) = answer.map_err(io::Error::other)? {
                return Ok(answer);
            }
        }
    }

    /// Sends a request and returns which of `lines` the server answers.
    fn expect(&mut self, request: &[u8], lines: &[&str]) -> io::Result<usize> {
        let answer = self.ask(request)?;
        let is_answer = |line: &&str| matches!(&answer, Answer::Line(said) if said == line);
        let found = lines.iter().position(is_answer);
        found.ok_or_else(|| unexpected(&answer))
    }

    pub(super) fn version(&mut self) -> io::Result<()> {
        self.ask(b"version\r\n").map(drop)
    }

    /// Sends a change whose answer is one of `lines`. Waits for no answer if `lines` is empty.
    fn change(&mut self, request: &[u8], lines: &[&str]) -> io::Result<()> {
        if lines.is_empty() {
            return self.stream.write_all(request);
        }
        self.expect(request, lines).map(drop)
    }

    pub(super) fn set(
        &mut self,
        form: Form,
        key: &str,
        expiry: u32,
        value: &[u8],
    ) -> io::Result<()> {
        let len = value.len();
        let (head, lines): (_, &[&str]) = match form {
            Form::Text => (format!("set {key} 0 {expiry} {len}"), &["STORED"]),
            Form::Meta => (format!("ms {key} {len} T{expiry}"), &["HD"]),
            Form::Quiet => (format!("set {key} 0 {expiry} {len} noreply"), &[]),
        };
        self.change(&block(&head, value), lines)
    }

    pub(super) fn delete(&mut self, form: Form, key: &str) -> io::Result<()> {
        let (request, lines): (_, &[&str]) = match form {
            Form::Text => (format!("delete {key}\r\n"), &["DELETED", "NOT_FOUND"]),
            Form::Meta => (format!("md {key}\r\n"), &["HD", "NF"]),
            Form::Quiet => (format!("delete {key} noreply\r\n"), &[]),
        };
        self.change(request.as_bytes(), lines)
    }

    /// Replaces the value with this CAS unique. Returns false if the key no longer has it.
    pub(super) fn swap(&mut self, key: &str, unique: u64, value: &[u8]) -> io::Result<bool> {
        let head = format!("cas {key} 0 0 {} {unique}", value.len());
        let answers = ["STORED", "EXISTS", "NOT_FOUND"];
        Ok(self.expect(&block(&head, value), &answers)? == 0)
    }

    /// Touches an item with a time in the past. Returns false if there was no item.
    pub(super) fn expire(&mut self, key: &str) -> io::Result<bool> {
        let request = format!("touch {key} -1\r\n");
        let answer = self.expect(request.as_bytes(), &["TOUCHED", "NOT_FOUND"])?;
        Ok(answer == 0)
    }

    /// Increments a number. Returns `None` if there was none.
    pub(super) fn increment(&mut self, key: &str) -> io::Result<Option<u64>> {
        let answer = self.ask(format!("incr {key} 1\r\n").as_bytes())?;
        match &answer {
            Answer::Line(line) if line == "NOT_FOUND" => Ok(None),
            Answer::Line(number) => number.parse().map(Some).map_err(|_| unexpected(&answer)),
            Answer::Value | Answer::Error(_) => Err(unexpected(&answer)),
        }
    }

    /// Sets the expiry of an item; 0 for none. Returns false if there was no item.
    pub(super) fn touch(&mut self, key: &str, expiry: u32) -> io::Result<bool> {
        let request = format!("touch {key} {expiry}\r\n");
        let answer = self.expect(request.as_bytes(), &["TOUCHED", "NOT_FOUND"])?;
        Ok(answer == 0)
    }

    /// Appends to a value. Returns false if there was none.
    pub(super) fn append(&mut self, key: &str, more: &[u8]) -> io::Result<bool> {
        let head = format!("append {key} 0 0 {}", more.len());
        Ok(self.expect(&block(&head, more), &["STORED", "NOT_STORED"])? == 0)
    }

    /// Flushes everything in `delay` seconds, or at once.
    pub(super) fn flush(&mut self, delay: u32) -> io::Result<()> {
        let request = match delay {
            0 => "flush_all\r\n".to_owned(),
            delay => format!("flush_all {delay}\r\n"),
        };
        self.expect(request.as_bytes(), &["OK"]).map(drop)
    }

    /// Makes every acknowledged change durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.expect(b"flowstone sync\r\n", &["OK"]).map(drop)
    }

    /// Returns a number from the statistics of `group`; the empty group is that of plain `stats`.
    pub(super) fn statistic(&mut self, group: &str, name: &str) -> io::Result<u64> {
        let request = format!("stats {group}");
        self.expect(format!("{}\r\n", request.trim_end()).as_bytes(), &["END"])?;
        let stats = String::from_utf8_lossy(self.reply.value());
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        let found = stats.lines().find_map(value);
        found.ok_or_else(|| io::Error::other(format!("`{request}` has no number {name}")))
    }

    /// Reads up to [`KEYS_AT_ONCE`] keys from number `first` to before `end`, and calls `on` for each value
    /// found. Returns the number after the last key requested.
    pub(super) fn read_some(
        &mut self,
        first: u64,
        end: u64,
        mut on: impl FnMut(u64, Found),
    ) -> io::Result<u64> {
        let next = end.min(first + KEYS_AT_ONCE);
        let mut request = b"gets".to_vec();
        for number in first..next {
            request.push(b' ');
            request.extend_from_slice(key_name(number).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        let now = last_second();
        self.stream.write_all(&request)?;
        let (mut parser, mut value) = (Parser::default(), Vec::new());
        let (mut at, mut unique, mut is_over, mut strange) = (None, None, false, None);
        while !is_over {
            let count = self.stream.read(&mut self.input)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let fed = parser.feed(&self.input[..count], |event| match event {
                Event::Value { line, .. } => {
                    at = key_of(line).and_then(number_of);
                    unique = unique_of(line);
                    value.clear();
                }
                Event::Body(bytes) => value.extend_from_slice(bytes),
                Event::ValueEnd => match at {
                    Some(number) => on(number, found_of(&value, unique, now)),
                    None => strange = Some("a key that nobody has asked for".to_owned()),
                },
                Event::Line(b"END") => is_over = true,
                Event::Line(line) | Event::Error(line) | Event::Statistic(line) => {
                    is_over = true;
                    strange = Some(String::from_utf8_lossy(line).into_owned());
                }
            });
            fed.map_err(io::Error::other)?;
        }
        match strange {
            None => Ok(next),
            Some(line) => Err(io::Error::other(format!("the server answered `{line}`"))),
        }
    }

    /// Reads the value of a key into the reply. Returns false if there is none.
    fn fetch(&mut self, key: &str, read: Ask) -> io::Result<bool> {
        let request = match read {
            Ask::Get => format!("get {key}\r\n"),
            Ask::Gets => format!("gets {key}\r\n"),
            Ask::Meta => format!("mg {key} v c\r\n"),
            Ask::Touching(expiry) => format!("gats {expiry} {key}\r\n"),
        };
        match self.ask(request.as_bytes())? {
            Answer::Value => Ok(true),
            Answer::Line(line) if line == "END" || line == "EN" => Ok(false),
            answer => Err(unexpected(&answer)),
        }
    }

    pub(super) fn read(&mut self, key: &str, read: Ask) -> io::Result<Found> {
        let now = last_second();
        if !self.fetch(key, read)? {
            return Ok(Ok(None));
        }
        let unique = unique_of(self.reply.head());
        Ok(found_of(self.reply.value(), unique, now))
    }

    /// Reads a value as text. Returns `None` if there is none.
    pub(super) fn read_text(&mut self, key: &str) -> io::Result<Option<String>> {
        let is_there = self.fetch(key, Ask::Get)?;
        Ok(is_there.then(|| String::from_utf8_lossy(self.reply.value()).into_owned()))
    }
}

/// Returns the second that the server's clock has certainly reached: it may be one second behind. A value
/// that is requested now and found had not expired by then, however long the answer takes.
fn last_second() -> u32 {
    unix_seconds().saturating_sub(1)
}

fn found_of(value: &[u8], unique: Option<u64>, now: u32) -> Found {
    let seen = |tag| Seen {
        tag,
        expiry: None,
        unique,
        now,
    };
    tag_of(value).map(seen).map(Some).ok_or(0)
}

fn block(head: &str, value: &[u8]) -> Vec<u8> {
    [head.as_bytes(), b"\r\n", value, b"\r\n"].concat()
}

fn unexpected(answer: &Answer) -> io::Error {
    io::Error::other(format!("the server answered {answer:?}"))
}
