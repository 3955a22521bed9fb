//! Why an experiment could not be run.

use device::{ConfigError, DeviceError, OpenError};
use workload::WorkloadError;

use crate::compare::CompareError;

/// Why an experiment could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There can be no such device.
    #[error("the emulated device: {0}")]
    Device(#[from] ConfigError),
    /// There is no such workload.
    #[error("the workload: {0}")]
    Workload(#[from] WorkloadError),
    /// It measures a file, and none was named.
    #[error("no file to measure; name one that does not exist yet with --file")]
    NoFile,
    /// The file cannot be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A run of a preset failed.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// The disk failed.
    #[error("the file: {0}")]
    Disk(#[from] DeviceError),
}
