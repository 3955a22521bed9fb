//! Reasons why a trace cannot be read, with the place.

use std::path::Path;

/// A trace that cannot be read. The message names the file, the line or record, and the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TraceError(Box<str>);

/// An error whose place is not yet known.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The bytes behind the last row could not be read.
    Input(String),
    /// The row read last is wrong.
    Row(String),
}

impl Trouble {
    /// Names the place: `unit` (line or record) number `position` was begun last, 0 for none.
    #[cold]
    pub(super) fn at(self, path: &Path, unit: &str, position: u64) -> TraceError {
        let path = path.display();
        TraceError(
            match self {
                Self::Input(what) if position == 0 => format!("{path}: {what}"),
                Self::Input(what) => format!("{path}, after {unit} {position}: {what}"),
                Self::Row(what) if position == 0 => format!("{path}: {what}"),
                Self::Row(what) => format!("{path}, {unit} {position}: {what}"),
            }
            .into(),
        )
    }
}
