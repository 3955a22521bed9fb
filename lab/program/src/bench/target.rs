//! The server under test: its address, and sockets to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    /// Parses `HOST:PORT`, or the path of a unix socket: any text with a slash, or behind `unix:`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.contains('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        if !text.contains(':') {
            return Err("write HOST:PORT or the path of a unix socket".to_owned());
        }
        let mut addresses = text
            .to_socket_addrs()
            .map_err(|error| format!("cannot resolve it: {error}"))?;
        addresses
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| "it has no address".to_owned())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Target {
    /// Opens a non-blocking connection. Waits until it is established, for at most `patience` over TCP.
    pub(super) fn connect(&self, patience: Duration) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => {
                let stream = std::net::TcpStream::connect_timeout(address, patience)?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Box::new(TcpStream::from_std(stream)))
            }
            Self::Unix(path) => {
                let stream = StdUnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(UnixStream::from_std(stream)))
            }
        }
    }
}

/// A non-blocking connection to a [`Target`].
pub(super) type Socket = Box<dyn Stream>;

/// The operations of both kinds of sockets.
pub(super) trait Stream: Read + Write + Source + Send + fmt::Debug {
    /// Returns whether the server has closed a connection without requests.
    fn is_closed(&mut self) -> bool {
        match self.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_told_apart() {
        let parse = |text: &str| text.parse::<Target>();
        let address = SocketAddr::from(([127, 0, 0, 1], 11211));
        assert_eq!(parse("127.0.0.1:11211"), Ok(Target::Tcp(address)));
        for (text, path) in [
            ("./cache.sock", "./cache.sock"),
            ("unix:cache.sock", "cache.sock"),
        ] {
            assert_eq!(parse(text), Ok(Target::Unix(path.into())));
        }
        assert!(parse("localhost").unwrap_err().contains("HOST:PORT"));
        assert!(parse("127.0.0.1:port").is_err());
    }
}
