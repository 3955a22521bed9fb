//! The database behind the cache, as named on the command line.
//!
//! A URL may hold a password. It is parsed here and not by the option parser, which would repeat a text that
//! it cannot parse. Only [`Backend`]'s `Display` is shown, without password and parameters.

use std::fmt;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, absolute};

use sqlx::any::AnyConnectOptions;
use sqlx::{ConnectOptions, Error};
use tempfile::TempDir;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    MySql,
    Postgres,
}

#[derive(Debug)]
pub(super) struct Backend {
    pub(super) kind: Kind,
    /// The text to show, without a password.
    shown: String,
    address: Address,
}

#[derive(Debug)]
enum Address {
    /// The file, as part of a URL, and its directory if this program made one; dropping it removes the
    /// directory.
    File(String, Option<TempDir>),
    Server(AnyConnectOptions),
}

#[derive(Debug, Error)]
pub(super) enum BackendError {
    #[error(
        "--backend {0}: no such kind of database; write sqlite, sqlite:PATH, mysql://... or postgres://..."
    )]
    Unknown(String),
    #[error("--backend {scheme}: this is no URL of a database: {reason}")]
    Malformed { scheme: String, reason: String },
    #[error(
        "--backend {0}: an '@' follows the host; in a password write '@' as %40, '/' as %2F, '#' as %23, '?' as %3F"
    )]
    Ambiguous(String),
    #[error(
        "--backend sqlite::memory: would be a database of its own for every client; write sqlite for a temporary one"
    )]
    InMemory,
    #[error("--backend sqlite: no file is named; write sqlite:PATH, or sqlite for a temporary one")]
    NoPath,
    #[error("--backend sqlite: no temporary database can be made: {0}")]
    Temporary(#[source] io::Error),
}

/// Name of a temporary database's file, in its own directory.
const TEMPORARY_FILE: &str = "backend.sqlite";

impl Backend {
    /// Parses `sqlite`, `sqlite:PATH`, `mysql://...`, `mariadb://...`, `postgres://...` and
    /// `postgresql://...`.
    pub(super) fn parse(text: &str) -> Result<Self, BackendError> {
        if text == "sqlite" {
            let directory = tempfile::Builder::new()
                .prefix("flowstone-bench-")
                .tempdir()
                .map_err(BackendError::Temporary)?;
            let file = encoded(&directory.path().join(TEMPORARY_FILE));
            return Ok(Self {
                kind: Kind::Sqlite,
                shown: "sqlite".to_owned(),
                address: Address::File(file, Some(directory)),
            });
        }
        // A text without a scheme may be anything, a password included.
        let (scheme, rest) = text.split_once(':').unwrap_or(("?", text));
        match scheme {
            "sqlite" => Self::file(rest),
            "mysql" | "mariadb" => Self::server(Kind::MySql, scheme, text),
            "postgres" | "postgresql" => Self::server(Kind::Postgres, scheme, text),
            _ => Err(BackendError::Unknown(scheme.to_owned())),
        }
    }

    fn file(rest: &str) -> Result<Self, BackendError> {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        if path == ":memory:" {
            return Err(BackendError::InMemory);
        }
        let absolute = absolute(path).map_err(|_| BackendError::NoPath)?;
        Ok(Self {
            kind: Kind::Sqlite,
            shown: format!("sqlite:{path}"),
            address: Address::File(encoded(&absolute), None),
        })
    }

    fn server(kind: Kind, scheme: &str, text: &str) -> Result<Self, BackendError> {
        let options: AnyConnectOptions = text.parse().map_err(|error| BackendError::Malformed {
            scheme: scheme.to_owned(),
            reason: reason(&error),
        })?;
        let mut url = options.database_url.clone();
        let behind_host = [Some(url.path()), url.query(), url.fragment()];
        if behind_host.iter().flatten().any(|part| part.contains('@')) {
            return Err(BackendError::Ambiguous(scheme.to_owned()));
        }
        // A URL that cannot have a password has none to hide.
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self {
            kind,
            shown: url.to_string(),
            address: Address::Server(options.disable_statement_logging()),
        })
    }

    /// Returns whether the database is empty at first and removed at the end.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self.address, Address::File(_, Some(_)))
    }

    /// Returns the options to connect. With `create`, a missing file is made.
    pub(super) fn options(&self, create: bool) -> Result<AnyConnectOptions, Error> {
        match &self.address {
            Address::Server(options) => Ok(options.clone()),
            Address::File(file, _) => {
                let mode = if create { "rwc" } else { "rw" };
                let options: AnyConnectOptions = format!("sqlite://{file}?mode={mode}").parse()?;
                Ok(options.disable_statement_logging())
            }
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Returns a path as part of a URL: characters that could have a meaning there are written in hexadecimal.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Returns an error's message in one line.
pub(super) fn reason(error: &Error) -> String {
    let words = match error {
        Error::Database(error) => error.message().to_owned(),
        Error::Configuration(error) => error.to_string(),
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    words.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        for (text, kind, shown) in [
            ("sqlite:items.db", Kind::Sqlite, "sqlite:items.db"),
            ("sqlite:///var/a b.db", Kind::Sqlite, "sqlite:/var/a b.db"),
            (
                "mysql://shop:secret@db.example:3307/items?socket=secret",
                Kind::MySql,
                "mysql://shop@db.example:3307/items",
            ),
            (
                "mariadb://localhost/items",
                Kind::MySql,
                "mariadb://localhost/items",
            ),
            (
                "postgres://shop:se%40cret@[::1]/items?password=secret",
                Kind::Postgres,
                "postgres://shop@[::1]/items",
            ),
            (
                "postgresql:///items?host=/run",
                Kind::Postgres,
                "postgresql:///items",
            ),
        ] {
            let backend = Backend::parse(text).unwrap();
            assert_eq!((backend.kind, backend.to_string().as_str()), (kind, shown));
            assert!(!backend.is_temporary());
        }
    }

    #[test]
    fn a_temporary_database_is_gone_at_the_end() {
        let backend = Backend::parse("sqlite").unwrap();
        let Address::File(_, Some(directory)) = &backend.address else {
            panic!("{backend:?}");
        };
        let path = directory.path().to_owned();
        assert!(backend.is_temporary() && path.is_dir());
        drop(backend);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, part) in [
            ("redis://shop:secret@localhost", "redis: no such kind"),
            ("secret", "no such kind"),
            ("mysql://shop:secret@db:port/items", "invalid port"),
            ("postgres://shop:12/secret@db/items", "%2F"),
            ("postgres://shop:12#secret@db/items", "%23"),
            ("mysql://shop:12?secret@db/items", "%3F"),
            ("postgres:secret@db", "%40"),
            ("sqlite::memory:", "write sqlite"),
            ("sqlite:", "sqlite:PATH"),
        ] {
            let error = Backend::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(
                !error.contains("secret") && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn odd_characters_in_a_path_stay_in_the_path() {
        assert_eq!(encoded(Path::new("/a?b#c%20 d")), "/a%3Fb%23c%2520%20d");
    }
}
