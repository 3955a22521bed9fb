//! Errors of a run.

use device::Bytes;
use engine::preset::UnknownPreset;

/// Error of a run, as one line.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum CompareError {
    #[error(transparent)]
    Preset(#[from] UnknownPreset),
    #[error("{name} is {given}, but must be {allowed}")]
    Range {
        name: &'static str,
        given: u32,
        allowed: &'static str,
    },
    #[error("--{name} is for emulated devices, under virtual time; leave it out with file:")]
    RealTime { name: &'static str },
    #[error("{device}: compare keeps emulated devices in memory; leave out file=")]
    DeviceFile { device: String },
    #[error("{path}: holds something already; name a file that does not exist, or an empty device")]
    Occupied { path: String },
    #[error(transparent)]
    Device(#[from] emulated::SpecError),
    #[error("--index-device: {0}")]
    IndexDevice(#[from] emulated::DiskSpecError),
    #[error("the drive: {0}")]
    Drive(#[from] device::DeviceError),
    #[error(transparent)]
    File(#[from] device::OpenError),
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("preset {preset} on {device}: {source}")]
    Setup {
        preset: &'static str,
        device: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(
        "preset {preset}: the {objects} objects of {workload} that the flash holds do not fit its \
         index, whose share of {:.1} of memory holds {room}: give it more --memory, fewer --keys or \
         less flash",
        Bytes(*memory)
    )]
    Index {
        preset: &'static str,
        workload: String,
        objects: u64,
        memory: u64,
        room: u64,
    },
    #[error(transparent)]
    Workload(#[from] workload::WorkloadError),
    #[error(transparent)]
    Trace(#[from] workload::TraceError),
    #[error(
        "preset {preset}: key {key} was answered with a value that was never stored (seed {seed})"
    )]
    WrongValue {
        preset: &'static str,
        key: String,
        seed: u64,
    },
    #[error("no worker threads: {0}")]
    Workers(std::io::Error),
}

impl CompareError {
    /// Returns whether the input is at fault, rather than the cache or the machine.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::WrongValue { .. } | Self::Workers(_))
    }
}
