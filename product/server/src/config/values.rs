//! Values of settings with notations of their own: sizes, times, addresses.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{self, Unexpected, Visitor};

/// A number of bytes in settings: an integer, or text that [`device::parse_bytes`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = device::parse_bytes(text).map(Self);
        bytes.ok_or_else(|| {
            format!("`{text}` is no size; write for example 256MiB or 4GiB (KiB MiB GiB TiB KB MB GB TB)")
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        device::Bytes(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// Parses the two notations of a [`Size`].
struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes or a size as \"256MiB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        u64::try_from(bytes)
            .map(Size)
            .map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }
}

/// A number of seconds in settings: an integer, or text with a unit, as `90s`, `5m`, `2h` or `7d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u32);

impl std::str::FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match &text[digits.len()..] {
            "" | "s" => Some(1),
            "m" => Some(60),
            "h" => Some(3_600),
            "d" => Some(86_400),
            _ => None,
        };
        let number = digits.parse::<u32>().ok();
        let seconds = number
            .zip(unit)
            .and_then(|(number, unit)| number.checked_mul(unit));
        seconds.map(Self).ok_or_else(|| {
            format!("`{text}` is no time; write seconds, or for example 90s, 5m, 2h or 7d")
        })
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecondsVisitor)
    }
}

/// Parses the two notations of [`Seconds`].
struct SecondsVisitor;

impl Visitor<'_> for SecondsVisitor {
    type Value = Seconds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of seconds or a time as \"5m\"")
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Seconds, E> {
        let given = u32::try_from(seconds).map(Seconds);
        given.map_err(|_| E::invalid_value(Unexpected::Signed(seconds), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Seconds, E> {
        text.parse().map_err(E::custom)
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP. A name stands for its first address, IPv4 before IPv6; no host, or `*`, for all IPv4 addresses.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl std::str::FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        // An address without a host is every address of the machine.
        let port = text.strip_prefix("*:").or(text.strip_prefix(':'));
        if let Some(Ok(port)) = port.map(str::parse::<u16>) {
            return Ok(Self::Tcp(([0, 0, 0, 0], port).into()));
        }
        let wrong = |why: String| {
            format!(
                "`{text}` is no address{why}; write HOST:PORT, as 127.0.0.1:11211, :PORT for all addresses, or unix:PATH"
            )
        };
        let found = text.to_socket_addrs();
        let mut found: Vec<SocketAddr> = found
            .map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => wrong(String::new()),
                _ => wrong(format!(": {error}")),
            })?
            .collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        let first = found.into_iter().next();
        first
            .map(Self::Tcp)
            .ok_or_else(|| wrong(": the name has none".to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_to_listen_on_stands_for_its_address() {
        let listen = |text: &str| text.parse::<ListenAddress>();
        let local = ListenAddress::Tcp(([127, 0, 0, 1], 11211).into());
        assert_eq!(listen("localhost:11211").unwrap(), local);
        assert_eq!(listen("127.0.0.1:11211").unwrap(), local);
        assert!(matches!(listen("[::1]:11211"), Ok(ListenAddress::Tcp(_))));
        let all = ListenAddress::Tcp(([0, 0, 0, 0], 11211).into());
        assert_eq!(listen(":11211").unwrap(), all);
        assert_eq!(listen("*:11211").unwrap(), all);
        for wrong in [
            "localhost",
            "11211",
            "localhost:many",
            "no-such-host.invalid:1",
        ] {
            let error = listen(wrong).unwrap_err();
            assert!(
                error.contains(wrong) && error.contains("HOST:PORT"),
                "{error}"
            );
        }
    }
}
