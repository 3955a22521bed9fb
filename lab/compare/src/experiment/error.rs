//! Errors of an experiment.

use device::{DeviceError, OpenError};
use emulated::ConfigError;
use workload::WorkloadError;

use crate::calibrate::MeasureError;
use crate::compare::CompareError;

/// Error of an experiment.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum ExperimentError {
    #[error("the emulated device: {0}")]
    Device(#[from] ConfigError),
    #[cfg(system = "slices")]
    #[error("the slices: {0}")]
    Slices(#[from] systems::slices::SliceError),
    #[cfg(system = "flashield")]
    #[error("the index: {0}")]
    Index(#[from] systems::flashield::compact::OutOfRange),
    #[error("the workload: {0}")]
    Workload(#[from] WorkloadError),
    #[error("no file to measure; name one that does not exist yet with --file")]
    NoFile,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("the file: {0}")]
    Disk(#[from] DeviceError),
    /// A trace that cannot be read.
    #[error(transparent)]
    Trace(#[from] workload::TraceError),
}
