//! The evaluation of `DIDACache` (TOS 2018, section 5): the common parts of its experiments.
//!
//! | | the paper's machine | `paper` | `small` |
//! |---|---|---|---|
//! | servers of one thread, clients | 8, 32 | 8, 32 | 4, 16 |
//! | processors, for a request | 6 cores, 11 us | 6, 11 us | 3, 11 us |
//! | LUNs on 12 channels | 192 | 192 | 96 |
//! | slab, which is a block | 8 MiB | 256 KiB | 128 KiB |
//! | slabs of flash in use | 3,840 (30 GB) | 4,224 (1,056 MiB) | 2,112 (264 MiB) |
//! | slabs in memory | 128 (128 MB a server) | 128 | 64 |
//! | write cache of the conventional drive, slabs | about 150 (1.25 of its 2 GB) | 144 | 72 |
//!
//! All parts shrink together. A block is shorter than the paper's, and its erase is faster in proportion. Processors and LUNs
//! shrink with the servers: a server has the same number of each, and of clients, at scale `paper` and at `small`.

mod cell;
mod fig10_11;
mod fig12_13;
mod fig14_16;
mod fig17_18;
mod items;
mod machine;
mod reserve;
mod sensitivity;
mod table1;
mod table4;
mod table5;
mod tune;
mod wear;

use super::descriptor::{Experiment, experiment};

/// The experiments of the paper, in the order of the listing.
#[rustfmt::skip]
pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment("didacache-fig10-11", "DIDACache, TOS 2018, figures 10 and 11", fig10_11::run,
        "throughput and hit ratio of look-aside clients against the size of the cache").drawn(),
    experiment("didacache-fig12-13", "DIDACache, TOS 2018, figures 12 and 13", fig12_13::run,
        "throughput and latency of SET of items of 64 bytes to 4 KiB").drawn(),
    experiment("didacache-fig14-16", "DIDACache, TOS 2018, figures 14 to 16", fig14_16::run,
        "throughput, latency and its distribution for shares of SET, items of 256 bytes").drawn(),
    experiment("didacache-fig17-18", "DIDACache, TOS 2018, figures 17 and 18", fig17_18::run,
        "throughput and latency of SET and of GET with write buffers of several sizes").drawn(),
    experiment("didacache-table1", "DIDACache, TOS 2018, table 1", table1::run,
        "items and pages copied and blocks erased by garbage collection, six schemes"),
    experiment("didacache-fig19-22-table2", "DIDACache, TOS 2018, figures 19 to 22 and table 2", wear::run,
        "erases of every block with and without wear leveling, and what leveling erases and copies").drawn(),
    experiment("didacache-fig23-26-table3", "DIDACache, TOS 2018, figures 23 to 26 and table 3", reserve::run,
        "free flash, hits, erases and latency as the rate of requests changes, three ways to keep flash free").drawn(),
    experiment("didacache-table4", "DIDACache, TOS 2018, table 4", table4::run,
        "how busy the processors are with SET, GET and both, items of 256 bytes"),
    experiment("didacache-table5", "DIDACache, TOS 2018, table 5", table5::run,
        "shortest and longest times of SET and GET of items of 256 bytes"),
    experiment("didacache-sensitivity", "no figure: what the others depend on", sensitivity::run,
        "the gain in SETs and in hits as costs, clients, deviation and drift differ, one at a time"),
    experiment("didacache-tune", "no figure: the settings of the presets", tune::run,
        "writers, reclaimers and bounds of copying, tried for each scheme on work of their own"),
];
