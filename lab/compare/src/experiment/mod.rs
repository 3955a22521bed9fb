//! One file per paper table or figure: `flowstone experiment`.
//!
//! ```text
//!   CATALOG ── run(Setting) ──▶ cells, on as many threads ──▶ Outcome
//!                               as there are cores            rows, plots, findings
//! ```
//!
//! An experiment is a file with a function `run` and an entry in [`CATALOG`]. It cuts its work into independent cells. Each
//! cell follows from the setting alone, so the rows are equal byte for byte on every machine, whatever the number of its cores.
//! Experiments that measure a real file are the exception. `docs/papers/reproduction.md` lists the results of the papers, and
//! explains where ours differ.

mod ancs;
mod cells;
mod descriptor;
mod didacache;
mod drive_file;
mod drive_model;
mod error;
mod flashield;
mod lab_truth;
mod pick;
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

/// All experiments, in the order of the listing.
#[rustfmt::skip]
pub const CATALOG: &[Experiment] = &[
    experiment("flashield-fig1", "Flashield, NSDI '19, figure 1", flashield::fig1::run,
        "write amplification of a conventional SSD by write size, pattern and utilization").drawn(),
    experiment("flashield-table3", "Flashield, NSDI '19, table 3", flashield::table3::run,
        "hits and bytes written of a victim cache and of RIPQ, an eighth of the cache in memory"),
    experiment("flashield-fig4", "Flashield, NSDI '19, figure 4", flashield::classifier::accuracy,
        "how often a classifier tells what will be read enough without being updated").drawn(),
    experiment("flashield-table4", "Flashield, NSDI '19, table 4", flashield::classifier::thresholds,
        "reads from which on an item is best expected to be read five times more"),
    experiment("flashield-table5", "Flashield, NSDI '19, table 5", flashield::systems::table5,
        "hit ratio and bytes written, three systems and seven applications"),
    experiment("flashield-table6", "Flashield, NSDI '19, table 6", flashield::systems::table6,
        "the same by how many reads make an item flashy"),
    experiment("flashield-table7", "Flashield, NSDI '19, table 7", flashield::systems::table7,
        "the same by how much of the cache is memory"),
    experiment("flashield-frontier", "no figure: what a written byte is worth", flashield::systems::frontier,
        "hit ratio against bytes written for all ways to admit to flash, and a cache that knows the future").drawn(),
    experiment("flashield-clock", "Flashield, NSDI '19, section 3.4", flashield::clock::run,
        "hits of two bits of CLOCK beside those of LRU"),
    experiment("flashield-one-clock", "Flashield, NSDI '19, section 4.3", flashield::one_clock::run,
        "one CLOCK over memory and flash beside one for each, with and without a limit on writes"),
    experiment("flashield-overnight", "no figure: work that changes", flashield::overnight::run_all,
        "hits window by window when the work becomes another application's").drawn(),
    experiment("flashield-fig10", "Flashield, NSDI '19, figure 10", flashield::fig10::run,
        "how full a segment gets whose items lie where hash functions of their keys say").drawn(),
    experiment("flashield-index", "Flashield, NSDI '19, section 3.4", flashield::index::run,
        "memory of the compact index, what it reads for a hit and for a miss, and what it loses"),
    experiment("ancs-fig2", "slice indexes, ANCS '14, figure 2", ancs::fig2::run,
        "reads best, random and worst over the channels of an SSD; writes at once; read sizes").drawn(),
    experiment("ancs-fig5", "slice indexes, ANCS '14, figure 5, table 3, section 7.3", ancs::fig5::run,
        "look-ups, inserts and both of SliceHash and BufferHash; memory an entry").drawn(),
    experiment("ancs-fig6", "slice indexes, ANCS '14, figure 6", ancs::fig6::run,
        "look-ups with and without knowing the channels, by how they fall on these"),
    experiment("ancs-table4", "slice indexes, ANCS '14, table 4", ancs::file::run,
        "processor time of look-ups and inserts on a real file, and look-ups beside its own random reads").of_a_file(),
    experiment("ancs-table5", "slice indexes, ANCS '14, table 5", ancs::tables::incarnations,
        "look-ups, inserts and memory by the number of incarnations"),
    experiment("ancs-table6", "slice indexes, ANCS '14, table 6", ancs::tables::drives,
        "look-ups and inserts on one to three drives, by partition and spread"),
    experiment("ancs-bursts", "slice indexes, ANCS '14, section 7.2, bursts of writes", ancs::bursts::run,
        "inserts in bursts and in a steady stream, and what they write, by how many full tables may wait"),
    experiment("ancs-analysis", "slice indexes, ANCS '14, section 5.4", ancs::tables::analysis,
        "what the formulas say of costs, writes and lifetime, and what is measured"),
    experiment("ancs-generality", "slice indexes, ANCS '14, section 7.5", ancs::generality::run,
        "look-ups, inserts and errors of a Bloom filter, and queries of a similarity index, on slices"),
    experiment("workload-check", "the closed forms in docs/papers/workloads.md", workload_check::run,
        "keys, sizes, operations and times of every generator against their formulas"),
    experiment("drive-model", "the drive under a file; docs/internals/devices.md", drive_model::run,
        "a real file, and the model calibrated to it, probed alike").drawn().of_a_file(),
    experiment("write-limit", "no figure: docs/guide/endurance.md", write_limit::run_all,
        "presets whose drive may get half of what they would write: what is written, found, and waited for"),
    experiment("lab-truth", "docs/papers/compare.md", lab_truth::run,
        "presets on a real file, and under virtual time on the model of its drive").of_a_file(),
    experiment("didacache-fig10-11", "DIDACache, TOS 2018, figures 10 and 11", didacache::fig10_11::run,
        "throughput and hit ratio of look-aside clients against the size of the cache").drawn(),
    experiment("didacache-fig12-13", "DIDACache, TOS 2018, figures 12 and 13", didacache::fig12_13::run,
        "throughput and latency of SET of items of 64 bytes to 4 KiB").drawn(),
    experiment("didacache-fig14-16", "DIDACache, TOS 2018, figures 14 to 16", didacache::fig14_16::run,
        "throughput, latency and its distribution for shares of SET, items of 256 bytes").drawn(),
    experiment("didacache-fig17-18", "DIDACache, TOS 2018, figures 17 and 18", didacache::fig17_18::run,
        "throughput and latency of SET and of GET with write buffers of several sizes").drawn(),
    experiment("didacache-table1", "DIDACache, TOS 2018, table 1", didacache::table1::run,
        "items and pages copied and blocks erased by garbage collection, six schemes"),
    experiment("didacache-fig19-22-table2", "DIDACache, TOS 2018, figures 19 to 22 and table 2", didacache::wear::run,
        "erases of every block with and without wear leveling, and what leveling erases and copies").drawn(),
    experiment("didacache-fig23-26-table3", "DIDACache, TOS 2018, figures 23 to 26 and table 3", didacache::reserve::run,
        "free flash, hits, erases and latency as the rate of requests changes, three ways to keep flash free").drawn(),
    experiment("didacache-table4", "DIDACache, TOS 2018, table 4", didacache::table4::run,
        "how busy the processors are with SET, GET and both, items of 256 bytes"),
    experiment("didacache-table5", "DIDACache, TOS 2018, table 5", didacache::table5::run,
        "shortest and longest times of SET and GET of items of 256 bytes"),
    experiment("didacache-sensitivity", "no figure: what the others depend on", didacache::sensitivity::run,
        "the gain in SETs and in hits as costs, clients, deviation and drift differ, one at a time"),
    experiment("didacache-tune", "no figure: the settings of the presets", didacache::tune::run,
        "writers, reclaimers and bounds of copying, tried for each scheme on work of their own"),
    experiment("slickcache-fig4", "SlickCache, SoCC 2018, figure 4", slickcache::fig4::run,
        "throughput and hit ratio before a database, the cache 6 to 12 % of the data set").drawn(),
    experiment("slickcache-fig5", "SlickCache, SoCC 2018, figure 5", slickcache::fig5::run,
        "the same with as much cache as a memory can index"),
    experiment("slickcache-fig6", "SlickCache, SoCC 2018, figure 6", slickcache::fig6::run,
        "look-ups that memory answers against the part of the mappings that it has").drawn(),
    experiment("slickcache-fig7", "SlickCache, SoCC 2018, figure 7", slickcache::fig7::run,
        "the same, by which mappings leave memory"),
    experiment("slickcache-fig8-9", "SlickCache, SoCC 2018, figures 8 and 9", slickcache::direct::parallelism,
        "throughput and latency by how many direct blocks are read at once, and their size").drawn(),
    experiment("slickcache-fig10", "SlickCache, SoCC 2018, figure 10", slickcache::direct::blocks,
        "what a batch of reads finds against the number of direct blocks"),
    experiment("slickcache-fig11", "SlickCache, SoCC 2018, figure 11", slickcache::dual_mode::run,
        "throughput against the length of lists and the number of buckets").drawn(),
    experiment("slickcache-table1", "SlickCache, SoCC 2018, table 1", slickcache::table1::run,
        "hit ratio, throughput and latency by the watermarks of the two-phase GC"),
    experiment("slickcache-fig12-13-table2", "SlickCache, SoCC 2018, figures 12 and 13 and table 2", slickcache::together::run,
        "throughput and latency over Fatcache for shares of SET; what each tier answers").drawn(),
    experiment("slickcache-fig14", "SlickCache, SoCC 2018, figure 14", slickcache::swap::run,
        "throughput against an index in memory that is swapped").drawn(),
    experiment("slickcache-fig15-16", "SlickCache, SoCC 2018, figures 15 and 16", slickcache::crash::run,
        "throughput through a crash; latency and recovery by how often the index is saved").drawn(),
    experiment("slickcache-resources", "SlickCache, SoCC 2018, section 5.7 and table 3", slickcache::resources::run,
        "memory and flash of the index, bytes written, and how busy the processors are"),
    experiment("slickcache-curve", "no figure: what memory buys", slickcache::curve::run,
        "bits of memory an item against reads of flash for a hit and for a miss, and bytes written").drawn(),
];

/// Returns the experiment with this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    CATALOG.iter().find(|experiment| experiment.name == name)
}
