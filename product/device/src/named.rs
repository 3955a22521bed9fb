//! Devices that a text names in place of a file, as `--flash` and `--index-flash` take it. The product has none; a program hands
//! the server those that it is built with.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::{Disk, Flash, Geometry, Journal, OpenError};

/// The named devices of a program.
pub trait NamedDevices: Sync {
    /// Returns the device for items that `text` names; `None` if `text` is a path.
    fn flash(&self, text: &str) -> Option<Result<Arc<dyn NamedFlash>, NamedError>>;

    /// Returns the device for an index that `text` names; `None` if `text` is a path.
    fn disk(&self, text: &str) -> Option<Result<Arc<dyn NamedDisk>, NamedError>>;

    /// Returns the kind of the device that the file at `path` keeps; `None` if it keeps none.
    fn kept_in(&self, path: &Path) -> Option<&'static str>;

    /// Returns the syntax of the texts, for the help of commands.
    fn usage(&self) -> &'static str;
}

/// A program without named devices: every text is a path.
#[derive(Clone, Copy, Debug)]
pub struct NoDevices;

impl NamedDevices for NoDevices {
    fn flash(&self, _text: &str) -> Option<Result<Arc<dyn NamedFlash>, NamedError>> {
        None
    }

    fn disk(&self, _text: &str) -> Option<Result<Arc<dyn NamedDisk>, NamedError>> {
        None
    }

    fn kept_in(&self, _path: &Path) -> Option<&'static str> {
        None
    }

    fn usage(&self) -> &'static str {
        ""
    }
}

/// A device for items. It is displayed as its text.
pub trait NamedFlash: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the file that keeps the device; `None` for a device in memory.
    fn file(&self) -> Option<&Path>;

    /// Returns the shape that its flash will have, or has in its file, if its erase blocks are segments; `None` for a disk. Makes
    /// nothing.
    fn blocks(&self) -> Option<Result<Geometry, NamedError>>;

    /// Makes the journal of a device in memory: this many words, all 0.
    fn journal(&self, words: usize) -> Arc<dyn Journal>;

    /// Makes the device, or opens the device in its file. Blocks the thread.
    fn open(&self) -> Result<OpenedFlash, NamedError>;
}

/// A device for an index, in memory. It is displayed as its text.
pub trait NamedDisk: fmt::Debug + fmt::Display + Send + Sync {
    /// Makes the device, of `usual_bytes` unless its text has a size. Returns it with a line for the log.
    fn open(&self, usual_bytes: u64) -> Result<(Arc<dyn Disk>, String), OpenError>;
}

/// An opened device for items.
pub struct OpenedFlash {
    /// The device, as the store uses it.
    pub medium: OpenedMedium,
    /// Memory in bytes that it takes once it is full.
    pub memory_bytes: u64,
    /// One line for the log: shape, size and usable part.
    pub description: String,
}

/// The two kinds of devices for items.
pub enum OpenedMedium {
    /// A disk, which is cut into segments.
    Disk(Arc<dyn Disk>),
    /// Flash whose erase blocks are segments.
    Flash {
        /// The flash; its blocks are erased whole.
        flash: Arc<dyn Flash>,
        /// Nothing has been stored on it.
        is_new: bool,
    },
}

/// Error that says in one line why a device cannot be understood or opened.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NamedError {
    /// The whole line, with the remedy.
    pub reason: String,
    /// Another process uses the device's file.
    pub is_in_use: bool,
}
