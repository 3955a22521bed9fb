//! [`Sender`]: a client that counts the bytes of its requests.

use std::io;

use crate::client::Client;
use crate::server::Server;

/// A client that counts the bytes of its requests.
pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) sent_bytes: u64,
}

impl Sender {
    pub(super) fn open(server: &Server) -> io::Result<Self> {
        Ok(Self {
            client: Client::open(&server.socket)?,
            sent_bytes: 0,
        })
    }

    pub(super) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.sent_bytes += request.len() as u64;
        self.client.send(request)
    }

    /// Sends a request whose answer ends with any line. Returns whether the server has done it.
    pub(super) fn ask(&mut self, request: &[u8]) -> io::Result<bool> {
        self.send(request)?;
        let refusals: [&[u8]; 5] = [b"NOT_STORED", b"NOT_FOUND", b"NS", b"NF", b"EN"];
        let is_refused = std::cell::Cell::new(false);
        let seen = self.client.read_until(|line| {
            is_refused.set(refusals.contains(&line));
            true
        })?;
        Ok(seen.errors == 0 && !is_refused.get())
    }

    /// Sends a request whose answer is a value, or nothing, and `END`. Returns whether there was a value.
    pub(super) fn ask_value(&mut self, request: &[u8]) -> io::Result<bool> {
        self.send(request)?;
        let seen = self.client.read_until(|line| line == b"END")?;
        Ok(seen.values == 1)
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self.ask(b"flowstone sync\r\n")? {
            true => Ok(()),
            false => Err(io::Error::other("a sync has failed; see server.log")),
        }
    }

    /// Returns the bytes that the server has written to flash.
    pub(super) fn written(&mut self) -> io::Result<u64> {
        self.client.statistic("stats flash", "flash_bytes_written")
    }
}
