//! Why a server cannot start.

use std::io;
use std::path::PathBuf;

use device::{JournalError, SpecError};
use engine::OpenError;

use crate::config::{ConfigError, Size};

/// Why a server could not start, in one line that says what and how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The memory is too small for the server alone.
    #[error("--memory: {given} is too little; the server needs {needed} with these settings")]
    Memory {
        /// What was given.
        given: Size,
        /// What is needed.
        needed: Size,
    },
    /// The sizes do not fit together.
    #[error("--memory, --flash-size, --max-item-size: {0}")]
    Sizes(#[from] engine::ConfigError),
    /// Watermarks without what they are for.
    #[error(
        "cache.low_watermark, cache.high_watermark: set cache.reserve to `static`, or leave them out"
    )]
    Watermarks,
    /// Watermarks that make no sense.
    #[error("cache.low_watermark, cache.high_watermark: {0}")]
    Reserve(engine::ConfigError),
    /// The flash cannot be opened.
    #[error(transparent)]
    Device(#[from] device::OpenError),
    /// The emulated device cannot be had.
    #[error("--flash: {0}")]
    Emulated(#[from] SpecError),
    /// There is flash in a file, and no superblock beside it.
    #[error(
        "{path}: no such file, and without it nothing in {flash} can be found: give it back, or use \
         --force to start empty"
    )]
    NoSuperblock {
        /// Where it should be.
        path: PathBuf,
        /// The flash.
        flash: PathBuf,
    },
    /// The image on it cannot be.
    #[error("{path}: {source}")]
    Image {
        /// The flash.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(JournalError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or path.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The workers cannot start.
    #[error("the workers cannot start: {0}")]
    Workers(io::Error),
}
