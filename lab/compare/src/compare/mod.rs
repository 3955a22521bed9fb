//! Runs one preset with one workload on one device, and returns the figures.
//!
//! ```text
//!   Plan ── check ──▶ prepare the device ──▶ Opening::open
//!                                              │
//!     virtual_time: one thread, Sim, metered   │   real_time: live workers, a file
//!                         └──────────┬─────────┘
//!                                 clients     closed loop: request, answer, next request
//!                                    │        values are verified; a wrong one ends the run
//!                                 machine     before the first measured request and at the end
//!                                    └──▶ Outcome { row, curve }
//! ```
//!
//! Under virtual time everything follows from the plan and its seed: the same plan gives the same outcome on any machine.
//! Errors in a plan are reported before a device is touched.

mod clients;
mod curve;
mod error;
mod figures;
mod machine;
mod mappings;
mod outcome;
mod plan;
mod real_time;
mod row;
mod storage;
mod swap;
mod virtual_time;

#[cfg(test)]
mod tests;

pub use clients::Progress;
pub use curve::{Curve, Sample, SegmentLevels};
pub use error::CompareError;
pub use outcome::{Detail, Outcome};
pub use plan::{DeviceChoice, Pace, Plan, Rate, Swap};
pub(crate) use real_time::{Spent, spend};
pub use row::{CompareRow, FIELDS};
pub use virtual_time::{Crashed, Survives};

use engine::preset::Preset;
use storage::Storage;

/// Runs one preset. Blocks the thread.
///
/// # Errors
/// The reason as one line. If the plan is at fault, nothing on the device has been touched.
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
            virtual_time::run(plan, preset, storage, device.describe(), progress)
        }
        DeviceChoice::Modelled { model, bytes } => {
            let storage = Storage::modelled(model, *bytes);
            virtual_time::run(plan, preset, storage, plan.device.to_string(), progress)
        }
        DeviceChoice::File { path, bytes } => real_time::run(plan, preset, path, *bytes, progress),
    }
}

/// Runs one preset on an emulated device, kills its process, starts it again, and makes `requests` more requests. Blocks the
/// thread.
///
/// # Errors
/// As [`run`], and if the device is not emulated.
pub fn crash(
    plan: &Plan,
    preset: &'static Preset,
    survives: Survives,
    requests: u64,
) -> Result<Crashed, CompareError> {
    plan.check(preset)?;
    let DeviceChoice::Emulated(spec) = &plan.device else {
        return Err(CompareError::RealTime { name: "crash" });
    };
    let device = spec.open(plan.seed())?;
    let (storage, device) = (Storage::of(&device), device.describe());
    virtual_time::crash(plan, preset, storage, device, survives, requests)
}
