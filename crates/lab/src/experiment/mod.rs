//! One file per paper table or figure: `flowstone experiment`.
//!
//! ```text
//!   CATALOG ── run(Setting) ──▶ cells, on as many threads ──▶ Outcome
//!                               as there are cores            rows, plots, findings
//! ```
//!
//! An experiment is a file with a function `run` and an entry in [`CATALOG`]. It cuts its work into
//! cells that do not know of each other, each of which follows from the setting alone; so the
//! rows do, to the byte, whatever the machine and the number of its cores, but for the experiments
//! that measure a real file. What the papers found
//! and why we find something else is in `docs/reproduction.md`.

mod ancs_fig2;
mod cells;
mod descriptor;
mod didacache;
mod drive_file;
mod drive_model;
mod error;
mod flashield_fig1;
mod lab_truth;
mod workload_check;

#[cfg(test)]
mod tests;

pub use cells::Cells;
pub use descriptor::{Experiment, Finding, Outcome, Scale, Setting};
pub use error::ExperimentError;

/// All experiments, in the order in which they are listed.
pub const CATALOG: &[Experiment] = &[
    Experiment {
        name: "flashield-fig1",
        source: "Flashield, NSDI '19, figure 1",
        measures: "write amplification of a conventional SSD by write size, pattern and utilization",
        has_plots: true,
        needs_file: false,
        run: flashield_fig1::run,
    },
    Experiment {
        name: "ancs-fig2",
        source: "slice indexes, ANCS '14, figure 2",
        measures: "reads best, random and worst over the channels of an SSD; writes at once; read sizes",
        has_plots: true,
        needs_file: false,
        run: ancs_fig2::run,
    },
    Experiment {
        name: "workload-check",
        source: "the closed forms in docs/workloads.md",
        measures: "keys, sizes, operations and times of every generator against their formulas",
        has_plots: false,
        needs_file: false,
        run: workload_check::run,
    },
    Experiment {
        name: "drive-model",
        source: "the drive under a file; docs/devices.md",
        measures: "a real file, and the model calibrated to it, probed alike",
        has_plots: true,
        needs_file: true,
        run: drive_model::run,
    },
    Experiment {
        name: "lab-truth",
        source: "docs/compare.md",
        measures: "presets on a real file, and under virtual time on the model of its drive",
        has_plots: false,
        needs_file: true,
        run: lab_truth::run,
    },
    Experiment {
        name: "didacache-fig10-11",
        source: "DIDACache, TOS 2018, figures 10 and 11",
        measures: "throughput and hit ratio of look-aside clients against the size of the cache",
        has_plots: true,
        needs_file: false,
        run: didacache::fig10_11::run,
    },
    Experiment {
        name: "didacache-fig12-13",
        source: "DIDACache, TOS 2018, figures 12 and 13",
        measures: "throughput and latency of SET of items of 64 bytes to 4 KiB",
        has_plots: true,
        needs_file: false,
        run: didacache::fig12_13::run,
    },
    Experiment {
        name: "didacache-fig14-16",
        source: "DIDACache, TOS 2018, figures 14 to 16",
        measures: "throughput, latency and its distribution for shares of SET, items of 256 bytes",
        has_plots: true,
        needs_file: false,
        run: didacache::fig14_16::run,
    },
    Experiment {
        name: "didacache-fig17-18",
        source: "DIDACache, TOS 2018, figures 17 and 18",
        measures: "throughput and latency of SET and of GET with write buffers of several sizes",
        has_plots: true,
        needs_file: false,
        run: didacache::fig17_18::run,
    },
    Experiment {
        name: "didacache-table1",
        source: "DIDACache, TOS 2018, table 1",
        measures: "items and pages copied and blocks erased by garbage collection, six schemes",
        has_plots: false,
        needs_file: false,
        run: didacache::table1::run,
    },
    Experiment {
        name: "didacache-fig19-22-table2",
        source: "DIDACache, TOS 2018, figures 19 to 22 and table 2",
        measures: "erases of every block with and without wear leveling, and what leveling erases and copies",
        has_plots: true,
        needs_file: false,
        run: didacache::wear::run,
    },
    Experiment {
        name: "didacache-fig23-26-table3",
        source: "DIDACache, TOS 2018, figures 23 to 26 and table 3",
        measures: "free flash, hits, erases and latency as the rate of requests changes, three ways to keep flash free",
        has_plots: true,
        needs_file: false,
        run: didacache::reserve::run,
    },
    Experiment {
        name: "didacache-table4",
        source: "DIDACache, TOS 2018, table 4",
        measures: "how busy the processors are with SET, GET and both, items of 256 bytes",
        has_plots: false,
        needs_file: false,
        run: didacache::table4::run,
    },
    Experiment {
        name: "didacache-table5",
        source: "DIDACache, TOS 2018, table 5",
        measures: "shortest and longest times of SET and GET of items of 256 bytes",
        has_plots: false,
        needs_file: false,
        run: didacache::table5::run,
    },
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    CATALOG.iter().find(|experiment| experiment.name == name)
}
