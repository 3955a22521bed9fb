//! Flashield (NSDI 2019).

mod application;
mod belady;
mod classifier;
mod clock;
mod fig1;
mod fig10;
mod index;
mod one_clock;
mod overnight;
mod ring;
mod systems;
mod table3;

use super::descriptor::{Experiment, experiment};

/// The experiments of the paper, in the order of the listing.
#[rustfmt::skip]
pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment("flashield-fig1", "Flashield, NSDI '19, figure 1", fig1::run,
        "write amplification of a conventional SSD by write size, pattern and utilization").drawn(),
    experiment("flashield-table3", "Flashield, NSDI '19, table 3", table3::run,
        "hits and bytes written of a victim cache and of RIPQ, an eighth of the cache in memory"),
    experiment("flashield-fig4", "Flashield, NSDI '19, figure 4", classifier::accuracy,
        "how often a classifier tells what will be read enough without being updated").drawn(),
    experiment("flashield-table4", "Flashield, NSDI '19, table 4", classifier::thresholds,
        "reads from which on an item is best expected to be read five times more"),
    experiment("flashield-table5", "Flashield, NSDI '19, table 5", systems::table5,
        "hit ratio and bytes written, three systems and seven applications"),
    experiment("flashield-table6", "Flashield, NSDI '19, table 6", systems::table6,
        "the same by how many reads make an item flashy"),
    experiment("flashield-table7", "Flashield, NSDI '19, table 7", systems::table7,
        "the same by how much of the cache is memory"),
    experiment("flashield-frontier", "no figure: what a written byte is worth", systems::frontier,
        "hit ratio against bytes written for all ways to admit to flash, and a cache that knows the future").drawn(),
    experiment("flashield-clock", "Flashield, NSDI '19, section 3.4", clock::run,
        "hits of two bits of CLOCK beside those of LRU"),
    experiment("flashield-one-clock", "Flashield, NSDI '19, section 4.3", one_clock::run,
        "one CLOCK over memory and flash beside one for each, with and without a limit on writes"),
    experiment("flashield-overnight", "no figure: work that changes", overnight::run_all,
        "hits window by window when the work becomes another application's").drawn(),
    experiment("flashield-fig10", "Flashield, NSDI '19, figure 10", fig10::run,
        "how full a segment gets whose items lie where hash functions of their keys say").drawn(),
    experiment("flashield-index", "Flashield, NSDI '19, section 3.4", index::run,
        "memory of the compact index, what it reads for a hit and for a miss, and what it loses"),
];
