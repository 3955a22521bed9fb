//! Errors of devices, with the address of the failed access.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// The kind of access that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading bytes.
    Read,
    /// Writing bytes, or programming pages.
    Write,
    /// Discarding a range, or erasing a block.
    Erase,
    /// Making earlier writes durable.
    Sync,
}

impl Operation {
    /// Every kind of access, in the order they are declared.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Erase, Self::Sync];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Erase => "erase",
            Self::Sync => "sync",
        })
    }
}

impl Operation {
    /// Names the operation with its place; a sync has none.
    fn words(self, offset: u64, len: usize) -> String {
        match self {
            Self::Sync => self.to_string(),
            _ => format!("{self} of {len} bytes at byte {offset}"),
        }
    }
}

/// A failed I/O.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum DeviceError {
    /// The operating system or the drive refused.
    #[error("{} failed: {source}", operation.words(*offset, *len))]
    Io {
        operation: Operation,
        offset: u64,
        len: usize,
        source: std::io::Error,
    },
    /// Fewer bytes than asked for: the device is shorter than it was when opened.
    #[error(
        "{operation} at byte {offset} ended after {done} of {len} bytes: the device is truncated"
    )]
    Short {
        operation: Operation,
        offset: u64,
        len: usize,
        done: usize,
    },
    /// The address lies outside the device or is not aligned: an error of the caller.
    #[error("{operation} of {len} bytes at byte {offset} is outside the device or not aligned")]
    Address {
        operation: Operation,
        offset: u64,
        len: usize,
    },
    /// Pages of a block were not programmed in order, or not erased first.
    #[error("block {block}: page {page} programmed while page {expected} is next")]
    ProgramOrder {
        block: u32,
        page: u32,
        expected: u32,
    },
    /// A page was programmed a second time, or after an erase that was cut short.
    #[error("block {block}: page {page} is programmed already; erase the block first")]
    NotErased { block: u32, page: u32 },
    /// The block is known to be bad.
    #[error("{operation} refused: block {block} is bad; use another")]
    BadBlock { operation: Operation, block: u32 },
    /// The block has failed and is bad from now on.
    #[error("{operation} failed: block {block} is worn out after {erases} erases; use another")]
    WornOut {
        operation: Operation,
        block: u32,
        erases: u32,
    },
    /// The page was being programmed when it was read, or when the power failed.
    #[error(
        "block {block}: page {page} cannot be read: its program or its block's erase has not ended"
    )]
    Unreadable { block: u32, page: u32 },
    /// The power failed during the operation.
    #[error("{operation} in block {block}: the power failed")]
    PowerLost { operation: Operation, block: u32 },
}

impl DeviceError {
    /// Returns the error of a refusal by the operating system or the drive.
    pub fn io(
        operation: Operation,
        offset: u64,
        len: usize,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::Io {
            operation,
            offset,
            len,
            source: source.into(),
        }
    }

    /// Returns the error of an address outside the device or not aligned.
    pub fn address(operation: Operation, offset: u64, len: usize) -> Self {
        Self::Address {
            operation,
            offset,
            len,
        }
    }

    /// Returns whether the device has no space left.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }
}

/// Returns the part of a message that tells who has a file, and the remedy.
pub(crate) fn holder(here: bool) -> &'static str {
    if here {
        "this process already; close it there first or name another file"
    } else {
        "another process; stop that one or name another file"
    }
}

/// Error about the file or device at a path: says in one line why it cannot be used and how to fix that.
#[derive(Debug)]
pub struct PathError<P> {
    /// Path of the file or device.
    pub path: PathBuf,
    /// The problem.
    pub problem: P,
}

impl<P> PathError<P> {
    /// Returns a function that makes the whole error of a problem at `path`.
    pub fn at<E: Into<P>>(path: &Path) -> impl Fn(E) -> Self + '_ {
        |problem| Self {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}

impl<P: fmt::Display> fmt::Display for PathError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl<P: Error> Error for PathError<P> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}
