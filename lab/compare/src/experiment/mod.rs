//! One file per paper table or figure: `flowstone experiment`.
//!
//! ```text
//!   CATALOG ── run(Setting) ──▶ cells, on as many threads ──▶ Outcome
//!                               as there are cores            rows, plots, findings
//! ```
//!
//! An experiment is a file with a function `run` and an entry in the `EXPERIMENTS` of its paper. It cuts its work into independent cells. Each
//! cell follows from the setting alone, so the rows are equal byte for byte on every machine, whatever the number of its cores.
//! Experiments that measure a real file are the exception. `docs/papers/reproduction.md` lists the results of the papers, and
//! explains where ours differ.

#[cfg(system = "slices")]
mod ancs;
mod cells;
mod descriptor;
#[cfg(system = "didacache")]
mod didacache;
mod drive_file;
mod drive_model;
mod error;
#[cfg(system = "flashield")]
mod flashield;
#[cfg(system = "didacache")]
mod lab_truth;
mod pick;
// `SlickCache` is compared with Fatcache, a preset of the system `didacache`.
#[cfg(all(system = "slickcache", system = "didacache"))]
mod slickcache;
mod told;
mod workload_check;
mod write_limit;

#[cfg(test)]
mod tests;

use descriptor::experiment;

pub use cells::Cells;
pub use descriptor::{Experiment, Finding, Outcome, Scale, Setting};
pub use error::ExperimentError;

/// The experiments of each paper, and those of the laboratory itself, in the order of the listing.
const CATALOG: &[&[Experiment]] = &[
    #[cfg(system = "flashield")]
    flashield::EXPERIMENTS,
    #[cfg(system = "slices")]
    ancs::EXPERIMENTS,
    EXPERIMENTS,
    #[cfg(system = "didacache")]
    didacache::EXPERIMENTS,
    #[cfg(all(system = "slickcache", system = "didacache"))]
    slickcache::EXPERIMENTS,
];

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    experiment("workload-check", "the closed forms in docs/papers/workloads.md", workload_check::run,
        "keys, sizes, operations and times of every generator against their formulas"),
    experiment("drive-model", "the drive under a file; docs/internals/devices.md", drive_model::run,
        "a real file, and the model calibrated to it, probed alike").drawn().of_a_file(),
    experiment("write-limit", "no figure: docs/guide/endurance.md", write_limit::run_all,
        "presets whose drive may get half of what they would write: what is written, found, and waited for"),
    #[cfg(system = "didacache")]
    experiment("lab-truth", "docs/papers/compare.md", lab_truth::run,
        "presets on a real file, and under virtual time on the model of its drive").of_a_file(),
];

/// Returns all experiments, in the order of the listing.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    CATALOG.iter().copied().flatten()
}

/// Returns the experiment with this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    all().find(|experiment| experiment.name == name)
}
