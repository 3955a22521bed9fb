//! The evaluation of `SlickCache` (`SoCC` 2018, section 5): the common parts of its experiments.
//!
//! | | the paper's machine | `paper` | `small` |
//! |---|---|---|---|
//! | servers of one thread, clients | 8, 32 | 8, 32 | 4, 16 |
//! | processors, for a request | 4 cores | 4, 11 us | 2, 11 us |
//! | drive | 240 GB, 8 channels | 4 GiB of MLC, 8 channels x 4 LUNs | 128 MiB, 8 x 2 |
//! | part of the drive for the cache | 18 to 36 GB | 2 GiB | 64 MiB |
//! | slab; slabs in use | not given | 256 KiB; 8,192 | 64 KiB; 1,024 |
//! | slabs in memory | not given | 128 | 64 |
//! | partitions, blocks of Tier 2 in each | 32, 64 of 16 KiB | 2, 64 of 16 KiB | 1, 16 of 4 KiB |
//! | mappings in Tier 1, in Tier 2 | 10 %, 2 to 3 % | 10 %, 2.5 % | 10 %, 2.5 % |
//! | database | a disk of 7,200 rpm | 8 ms a look-up, one at a time | the same |
//!
//! All parts shrink together. Shares of mappings refer to the items that fit the cache, not to the capacity for which its index
//! is laid out. Items have 300 bytes, 30 of which are the key. All presets have the same drive and the same part of it, which
//! includes the index if the preset has it on flash. They have the same slabs in memory, writers and reclaimers.

mod cell;
mod machine;

mod crash;
mod curve;
mod direct;
mod dual_mode;
mod fig4;
mod fig5;
mod fig6;
mod fig7;
mod resources;
mod swap;
mod table1;
mod together;

use super::descriptor::{Experiment, experiment};

/// The experiments of the paper, in the order of the listing.
#[rustfmt::skip]
pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment("slickcache-fig4", "SlickCache, SoCC 2018, figure 4", fig4::run,
        "throughput and hit ratio before a database, the cache 6 to 12 % of the data set").drawn(),
    experiment("slickcache-fig5", "SlickCache, SoCC 2018, figure 5", fig5::run,
        "the same with as much cache as a memory can index"),
    experiment("slickcache-fig6", "SlickCache, SoCC 2018, figure 6", fig6::run,
        "look-ups that memory answers against the part of the mappings that it has").drawn(),
    experiment("slickcache-fig7", "SlickCache, SoCC 2018, figure 7", fig7::run,
        "the same, by which mappings leave memory"),
    experiment("slickcache-fig8-9", "SlickCache, SoCC 2018, figures 8 and 9", direct::parallelism,
        "throughput and latency by how many direct blocks are read at once, and their size").drawn(),
    experiment("slickcache-fig10", "SlickCache, SoCC 2018, figure 10", direct::blocks,
        "what a batch of reads finds against the number of direct blocks"),
    experiment("slickcache-fig11", "SlickCache, SoCC 2018, figure 11", dual_mode::run,
        "throughput against the length of lists and the number of buckets").drawn(),
    experiment("slickcache-table1", "SlickCache, SoCC 2018, table 1", table1::run,
        "hit ratio, throughput and latency by the watermarks of the two-phase GC"),
    experiment("slickcache-fig12-13-table2", "SlickCache, SoCC 2018, figures 12 and 13 and table 2", together::run,
        "throughput and latency over Fatcache for shares of SET; what each tier answers").drawn(),
    experiment("slickcache-fig14", "SlickCache, SoCC 2018, figure 14", swap::run,
        "throughput against an index in memory that is swapped").drawn(),
    experiment("slickcache-fig15-16", "SlickCache, SoCC 2018, figures 15 and 16", crash::run,
        "throughput through a crash; latency and recovery by how often the index is saved").drawn(),
    experiment("slickcache-resources", "SlickCache, SoCC 2018, section 5.7 and table 3", resources::run,
        "memory and flash of the index, bytes written, and how busy the processors are"),
    experiment("slickcache-curve", "no figure: what memory buys", curve::run,
        "bits of memory an item against reads of flash for a hit and for a miss, and bytes written").drawn(),
];
