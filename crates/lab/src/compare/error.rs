//! Why a run has no outcome.

use crate::presets::UnknownPreset;

/// Why there is no outcome, in one line.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// There is no such preset.
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
    /// A number makes no sense.
    #[error("{name} is {given}, but must be {allowed}")]
    Range {
        /// The option.
        name: &'static str,
        /// What was given.
        given: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A device in a file.
    #[error("{device}: compare keeps emulated devices in memory; leave out file=")]
    DeviceFile {
        /// The device.
        device: String,
    },
    /// The file holds something.
    #[error("{path}: holds something already; name a file that does not exist, or an empty device")]
    Occupied {
        /// The file.
        path: String,
    },
    /// A device that there cannot be.
    #[error(transparent)]
    Device(#[from] device::SpecError),
    /// A file that cannot be used.
    #[error(transparent)]
    File(#[from] device::OpenError),
    /// What the system says of a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The preset does not fit.
    #[error("preset {preset} on {device}: {source}")]
    Config {
        /// The preset.
        preset: &'static str,
        /// The device.
        device: String,
        /// Why.
        source: engine::ConfigError,
    },
    /// More objects than the index can have.
    #[error(
        "preset {preset}: the {objects} objects of {workload} that the flash holds do not fit its \
         index, whose share of {memory} bytes of memory holds {room}: give it more --memory, fewer \
         --keys or less flash"
    )]
    Index {
        /// The preset.
        preset: &'static str,
        /// The workload.
        workload: String,
        /// Objects.
        objects: u64,
        /// Memory of the cache.
        memory: u64,
        /// Objects that its index has room for.
        room: u64,
    },
    /// The engine does not open.
    #[error("preset {preset} on {device}: {source}")]
    Open {
        /// The preset.
        preset: &'static str,
        /// The device.
        device: String,
        /// Why.
        source: engine::OpenError,
    },
    /// The workload cannot be carried out.
    #[error(transparent)]
    Workload(#[from] workload::WorkloadError),
    /// A trace is damaged.
    #[error(transparent)]
    Trace(#[from] workload::TraceError),
    /// A wrong value was read.
    #[error(
        "preset {preset}: key {key} was answered with a value that was never stored (seed {seed})"
    )]
    WrongValue {
        /// The preset.
        preset: &'static str,
        /// The name of the key.
        key: String,
        /// The seed of the run.
        seed: u64,
    },
    /// The runtime cannot be had.
    #[error("no worker threads: {0}")]
    Workers(std::io::Error),
}

impl CompareError {
    /// Whether the input is at fault, rather than the cache or the machine.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::WrongValue { .. } | Self::Workers(_))
    }
}
