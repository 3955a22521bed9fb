//! A client's connection: as much of memcached's protocols as is needed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::history::Seen;
use crate::values::tag_of;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn unix_seconds() -> u32 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_secs() as u32
}

/// What a read finds.
pub(super) enum Found {
    Miss,
    Damaged,
    Value(Seen),
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

/// What a conditional write does.
pub(super) enum Swap {
    Stored,
    Exists,
    NotFound,
}

pub(super) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }

    fn say(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(request)
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<String> {
        self.say(request)?;
        self.line()
    }

    fn expect(&mut self, request: &[u8], answers: &[&str]) -> io::Result<usize> {
        let line = self.ask(request)?;
        let answer = line.trim_end();
        answers
            .iter()
            .position(|expected| *expected == answer)
            .ok_or_else(|| unexpected(answer))
    }

    pub(super) fn version(&mut self) -> io::Result<()> {
        self.ask(b"version\r\n").map(drop)
    }

    pub(super) fn set(&mut self, key: &str, expiry: u32, value: &[u8]) -> io::Result<()> {
        let head = format!("set {key} 0 {expiry} {}\r\n", value.len());
        self.expect(&block(&head, value), &["STORED"]).map(drop)
    }

    pub(super) fn meta_set(&mut self, key: &str, expiry: u32, value: &[u8]) -> io::Result<()> {
        let head = format!("ms {key} {} T{expiry}\r\n", value.len());
        self.expect(&block(&head, value), &["HD"]).map(drop)
    }

    /// Stores without an answer: a later one on this connection stands for it.
    pub(super) fn set_quietly(&mut self, key: &str, expiry: u32, value: &[u8]) -> io::Result<()> {
        let head = format!("set {key} 0 {expiry} {} noreply\r\n", value.len());
        self.say(&block(&head, value))
    }

    pub(super) fn swap(&mut self, key: &str, unique: u64, value: &[u8]) -> io::Result<Swap> {
        let head = format!("cas {key} 0 0 {} {unique}\r\n", value.len());
        let answers = ["STORED", "EXISTS", "NOT_FOUND"];
        Ok(match self.expect(&block(&head, value), &answers)? {
            0 => Swap::Stored,
            1 => Swap::Exists,
            _ => Swap::NotFound,
        })
    }

    pub(super) fn delete(&mut self, key: &str) -> io::Result<()> {
        let request = format!("delete {key}\r\n");
        self.expect(request.as_bytes(), &["DELETED", "NOT_FOUND"])
            .map(drop)
    }

    pub(super) fn meta_delete(&mut self, key: &str) -> io::Result<()> {
        let request = format!("md {key}\r\n");
        self.expect(request.as_bytes(), &["HD", "NF"]).map(drop)
    }

    pub(super) fn delete_quietly(&mut self, key: &str) -> io::Result<()> {
        self.say(format!("delete {key} noreply\r\n").as_bytes())
    }

    /// Touches an item with a time in the past. False when there was none.
    pub(super) fn expire(&mut self, key: &str) -> io::Result<bool> {
        let request = format!("touch {key} -1\r\n");
        let answer = self.expect(request.as_bytes(), &["TOUCHED", "NOT_FOUND"])?;
        Ok(answer == 0)
    }

    /// Adds one. `None` when there is nothing to add to.
    pub(super) fn increment(&mut self, key: &str) -> io::Result<Option<u64>> {
        let line = self.ask(format!("incr {key} 1\r\n").as_bytes())?;
        match line.trim_end() {
            "NOT_FOUND" => Ok(None),
            number => number.parse().map(Some).map_err(|_| unexpected(number)),
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.expect(b"flush_all\r\n", &["OK"]).map(drop)
    }

    /// A number among `stats flash`.
    pub(super) fn flash_stats(&mut self, names: &[&str]) -> io::Result<Vec<u64>> {
        self.say(b"stats flash\r\n")?;
        let mut found = vec![0; names.len()];
        loop {
            let line = self.line()?;
            let mut words = line.split_ascii_whitespace();
            if words.next() != Some("STAT") {
                return Ok(found);
            }
            let (name, value) = (words.next(), words.next());
            for (number, wanted) in names.iter().enumerate() {
                if name == Some(wanted) {
                    let value = value.and_then(|value| value.parse().ok());
                    found[number] = value.ok_or_else(|| unexpected(line.trim_end()))?;
                }
            }
        }
    }

    /// Reads the bytes of a key.
    fn bytes(&mut self, key: &str, read: Ask) -> io::Result<Option<(Vec<u8>, Option<u64>)>> {
        let request = match read {
            Ask::Get => format!("get {key}\r\n"),
            Ask::Gets => format!("gets {key}\r\n"),
            Ask::Meta => format!("mg {key} v c\r\n"),
            Ask::Touching(expiry) => format!("gats {expiry} {key}\r\n"),
        };
        let line = self.ask(request.as_bytes())?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (len, unique) = match words[..] {
            ["END" | "EN"] => return Ok(None),
            ["VALUE", _, _, len] => (len, None),
            ["VALUE", _, _, len, unique] => (len, Some(unique)),
            ["VA", len, unique] => (len, unique.strip_prefix('c')),
            _ => return Err(unexpected(line.trim_end())),
        };
        let number = |word: &str| word.parse().map_err(|_| unexpected(line.trim_end()));
        let len = number(len)? as usize;
        let unique = unique.map(number).transpose()?;
        let mut value = vec![0; len + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(len);
        if !matches!(read, Ask::Meta) {
            self.line()?;
        }
        Ok(Some((value, unique)))
    }

    pub(super) fn read(&mut self, key: &str, read: Ask) -> io::Result<Found> {
        let Some((value, unique)) = self.bytes(key, read)? else {
            return Ok(Found::Miss);
        };
        Ok(match tag_of(&value) {
            // The server's clock may be a second behind.
            Some(tag) => Found::Value(Seen {
                tag,
                expiry: None,
                unique,
                now: unix_seconds().saturating_sub(1),
            }),
            None => Found::Damaged,
        })
    }

    /// Reads a number.
    pub(super) fn count(&mut self, key: &str) -> io::Result<Option<u64>> {
        let Some((value, _)) = self.bytes(key, Ask::Get)? else {
            return Ok(None);
        };
        let digits = String::from_utf8_lossy(&value);
        let number = digits.trim_end().parse();
        number.map(Some).map_err(|_| unexpected(&digits))
    }
}

fn block(head: &str, value: &[u8]) -> Vec<u8> {
    [head.as_bytes(), value, b"\r\n"].concat()
}

fn unexpected(answer: &str) -> io::Error {
    io::Error::other(format!("the server answered `{answer}`"))
}
