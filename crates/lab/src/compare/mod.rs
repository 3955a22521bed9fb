//! One preset, one workload, one device: a run, and its figures.
//!
//! ```text
//!   Plan ── check ──▶ prepare the device ──▶ Engine::open
//!                                              │
//!     virtual_time: one thread, Sim, metered   │   real_time: live workers, a file
//!                         └──────────┬─────────┘
//!                                 clients     closed loop: request, answer, next request
//!                                    │        values are verified; a wrong one ends the run
//!                                 counters    before the first measured request and at the end
//!                                    └──▶ Outcome { row, curve }
//! ```
//!
//! Under virtual time everything follows from the plan and its seed: the same plan gives the same
//! outcome on any machine. What is wrong with a plan is said before a device is touched.

mod clients;
mod counters;
mod curve;
mod plan;
mod real_time;
mod row;
mod storage;
mod virtual_time;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use curve::{Curve, Sample, SegmentLevels};
pub use plan::{DeviceChoice, Pace, Plan, Rate};
pub(crate) use real_time::{Spent, spend};
pub use row::{CompareRow, FIELDS};

use crate::presets::{Preset, UnknownPreset};
use storage::Storage;

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures.
    pub row: CompareRow,
    /// How the run went on.
    pub curve: Curve,
    /// Sets that the cache refused, because they were too large or there was no memory.
    pub refused_sets: u64,
    /// The device, in words.
    pub device: String,
    /// What else the experiments ask for; it is not passed on between processes.
    #[serde(skip)]
    pub detail: Detail,
}

/// What a run has beside its row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// Average time of an operation, in microseconds.
    pub mean_us: f64,
    /// Shares of the operations, in percent, that took no longer than so many microseconds.
    pub latencies: Vec<(f64, f64)>,
    /// The shortest and the longest time of a get, in microseconds.
    pub get_us: Option<(f64, f64)>,
    /// The same of a set.
    pub set_us: Option<(f64, f64)>,
    /// Share of the time that the processors were busy under virtual time.
    pub cpu_busy: Option<f64>,
    /// Erases of every good block, by rising number of the block.
    pub erase_counts: Vec<u64>,
    /// What the drive keeps in its own memory to know where pages lie, in bytes.
    pub mapping_bytes: u64,
    /// What the cache did to level wear, while it was measured: levelings, segments erased, bytes copied.
    pub wear_leveling: (u64, u64, u64),
}

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

/// Called now and then with the requests made so far.
pub type Progress = Box<dyn Fn(u64) + Send + Sync>;

/// Runs one preset. Blocks the thread.
///
/// # Errors
/// One line; nothing on the device has been touched if the plan is at fault.
pub fn run(
    plan: &Plan,
    preset: &'static Preset,
    progress: Progress,
) -> Result<Outcome, CompareError> {
    plan.check(preset)?;
    match &plan.device {
        DeviceChoice::Emulated(spec) => {
            let device = spec.open(plan.seed())?;
            let storage = Storage::of(&device);
            virtual_time::run(plan, preset, (storage, device.describe()), progress)
        }
        DeviceChoice::Modelled { model, bytes } => {
            let storage = Storage::modelled(model, *bytes);
            virtual_time::run(plan, preset, (storage, plan.device.to_string()), progress)
        }
        DeviceChoice::File { path, bytes } => real_time::run(plan, preset, path, *bytes, progress),
    }
}
