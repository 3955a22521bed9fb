//! Reasons why an index is not saved or not loaded.

use device::DeviceError;
use format::FormatError;

/// Reason why a checkpoint was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum SaveError {
    /// The device failed.
    #[error("the index cannot be saved: {0}")]
    Device(#[from] DeviceError),
    /// The region is full.
    #[error("no page of the index region is free for a checkpoint")]
    Full,
    /// Pages that a failed sync may have lost are not written again yet.
    #[error("what a failed sync may have lost is still to be written again")]
    InDoubt,
}

/// Reason why a saved index cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum LoadError {
    /// The device failed.
    #[error("the index cannot be read: {0}")]
    Device(#[from] DeviceError),
    /// A page does not verify.
    #[error("a page of the saved index is damaged: {0}")]
    Damaged(#[from] FormatError),
    /// The saved bytes are inconsistent.
    #[error("the saved index makes no sense")]
    Nonsense,
    /// The index was saved with other sizes than the settings give.
    #[error("the index was saved with other sizes")]
    Sizes,
}
