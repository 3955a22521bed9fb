//! [`Client`]: a connection that fills a server, or asks for one key.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::values::{key_name, value_of};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests that are sent before an answer is awaited.
pub(super) const AT_ONCE: u64 = 100;

pub(super) struct Client {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Client {
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        Self::of(UnixStream::connect(socket)?)
    }

    pub(super) fn of(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            input: Vec::new(),
        })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads replies up to one that ends with `end`.
    fn read_to(&mut self, end: &[u8]) -> io::Result<()> {
        self.input.clear();
        let mut input = [0; 16 << 10];
        while !self.input.ends_with(end) {
            let count = self.stream.read(&mut input)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let kept = self.input.len().saturating_sub(end.len());
            self.input.drain(..kept);
            self.input.extend_from_slice(&input[..count]);
        }
        Ok(())
    }

    pub(super) fn ask(&mut self, request: &str, end: &str) -> io::Result<()> {
        self.send(request.as_bytes())?;
        self.read_to(end.as_bytes())
    }

    pub(super) fn version(&mut self) -> io::Result<()> {
        self.ask("version\r\n", "\r\n")
    }

    pub(super) fn get(&mut self, key: &str) -> io::Result<()> {
        self.ask(&format!("get {key}\r\n"), "END\r\n")
    }

    pub(super) fn set(&mut self, key: &str, expiry: u64, value: &[u8]) -> io::Result<()> {
        let mut request = Vec::new();
        append_set(&mut request, key, expiry, value, "");
        self.send(&request)?;
        self.read_to(b"\r\n")
    }

    /// Sets [`AT_ONCE`] keys from number `first` on, and waits until the server has seen all.
    pub(super) fn set_many(&mut self, first: u64, expiry: u64, len: usize) -> io::Result<()> {
        let value = value_of(first, len);
        let mut requests = Vec::new();
        for number in first..first + AT_ONCE {
            append_set(&mut requests, &key_name(number), expiry, &value, " noreply");
        }
        requests.extend(b"mn\r\n");
        self.send(&requests)?;
        self.read_to(b"MN\r\n")
    }

    /// Asks for [`AT_ONCE`] keys from number `first` on.
    pub(super) fn get_many(&mut self, first: u64) -> io::Result<()> {
        let keys: Vec<String> = (first..first + AT_ONCE).map(key_name).collect();
        self.get(&keys.join(" "))
    }
}

fn append_set(to: &mut Vec<u8>, key: &str, expiry: u64, value: &[u8], tail: &str) {
    let head = format!("set {key} 0 {expiry} {}{tail}\r\n", value.len());
    to.extend(head.as_bytes());
    to.extend(value);
    to.extend(b"\r\n");
}
