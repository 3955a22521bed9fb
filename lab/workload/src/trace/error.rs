//! Why a trace cannot be read, and where.

use std::path::Path;

/// A trace that cannot be read; the message names the file, the line or record, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TraceError(Box<str>);

/// What went wrong, before it is known where.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No byte behind the last row could be had.
    Input(String),
    /// The row read last is not as it should be.
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
