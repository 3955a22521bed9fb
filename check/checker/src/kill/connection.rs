//! A client's connection: as much of memcached's protocols as is needed.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::client::{Answer, Event, Parser, Reply, key_of, unique_of};

use crate::history::{Found, Seen};
use crate::values::{key_name, number_of, tag_of};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What one `read` may return.
const READ_BYTES: usize = 16 << 10;
/// Keys of one request that reads many: a line of less than 2 KiB.
const KEYS_AT_ONCE: u64 = 100;

pub(super) fn unix_seconds() -> u32 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_secs() as u32
}

/// How a value is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Get,
    Gets,
    Meta,
    /// With a new expiry.
    Touching(u32),
}

/// How a change is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Meta,
    /// Without an answer: that of a later request on this connection stands for it.
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

    /// Which of `lines` the server answers.
    fn expect(&mut self, request: &[u8], lines: &[&str]) -> io::Result<usize> {
        let answer = self.ask(request)?;
        let is_answer = |line: &&str| matches!(&answer, Answer::Line(said) if said == line);
        let found = lines.iter().position(is_answer);
        found.ok_or_else(|| unexpected(&answer))
    }

    pub(super) fn version(&mut self) -> io::Result<()> {
        self.ask(b"version\r\n").map(drop)
    }

    /// Sends a change whose answer is one of `lines`; of none when there is to be no answer.
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

    /// Stores a value in place of the one with this CAS unique. False when it is not there any more.
    pub(super) fn swap(&mut self, key: &str, unique: u64, value: &[u8]) -> io::Result<bool> {
        let head = format!("cas {key} 0 0 {} {unique}", value.len());
        let answers = ["STORED", "EXISTS", "NOT_FOUND"];
        Ok(self.expect(&block(&head, value), &answers)? == 0)
    }

    /// Touches an item with a time in the past. False when there was none.
    pub(super) fn expire(&mut self, key: &str) -> io::Result<bool> {
        let request = format!("touch {key} -1\r\n");
        let answer = self.expect(request.as_bytes(), &["TOUCHED", "NOT_FOUND"])?;
        Ok(answer == 0)
    }

    /// Adds one. `None` when there is nothing to add to.
    pub(super) fn increment(&mut self, key: &str) -> io::Result<Option<u64>> {
        let answer = self.ask(format!("incr {key} 1\r\n").as_bytes())?;
        match &answer {
            Answer::Line(line) if line == "NOT_FOUND" => Ok(None),
            Answer::Line(number) => number.parse().map(Some).map_err(|_| unexpected(&answer)),
            Answer::Value | Answer::Error(_) => Err(unexpected(&answer)),
        }
    }

    /// Gives an item another time; 0 for none. False when there was no item.
    pub(super) fn touch(&mut self, key: &str, expiry: u32) -> io::Result<bool> {
        let request = format!("touch {key} {expiry}\r\n");
        let answer = self.expect(request.as_bytes(), &["TOUCHED", "NOT_FOUND"])?;
        Ok(answer == 0)
    }

    /// Appends to a value. False when there was none.
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

    /// Has everything made durable that has been acknowledged.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.expect(b"flowstone sync\r\n", &["OK"]).map(drop)
    }

    /// A number among the statistics of a group; the usual ones are those of no group.
    pub(super) fn statistic(&mut self, group: &str, name: &str) -> io::Result<u64> {
        let request = format!("stats {group}");
        self.expect(format!("{}\r\n", request.trim_end()).as_bytes(), &["END"])?;
        let stats = String::from_utf8_lossy(self.reply.value());
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        let found = stats.lines().find_map(value);
        found.ok_or_else(|| io::Error::other(format!("`{request}` has no number {name}")))
    }

    /// Reads some keys, from number `first` on and less than `end`; `on` hears of each that is found. Returns the
    /// number of the key behind the last one asked for.
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

    /// Reads the value of a key, which the reply then holds; false when there is none.
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

    /// Reads a value that is a text; `None` when there is none.
    pub(super) fn read_text(&mut self, key: &str) -> io::Result<Option<String>> {
        let is_there = self.fetch(key, Ask::Get)?;
        Ok(is_there.then(|| String::from_utf8_lossy(self.reply.value()).into_owned()))
    }
}

/// The second that the server's clock has reached for certain: it may be one behind. What is asked for now and found,
/// had not expired by then; how long the answer takes tells nothing.
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
