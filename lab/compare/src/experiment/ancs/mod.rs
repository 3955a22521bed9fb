//! Slice indexes (ANCS 2014), on the emulated Crucial M4. Except in `file`, times are virtual and those of the drive alone:
//! they include no processor time.

mod bloom;
mod buffer_hash;
mod bursts;
mod fig2;
mod fig5;
mod fig6;
mod file;
mod generality;
mod index;
mod lsh;
mod tables;
mod work;

use super::descriptor::{Experiment, experiment};

/// The experiments of the paper, in the order of the listing.
#[rustfmt::skip]
pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment("ancs-fig2", "slice indexes, ANCS '14, figure 2", fig2::run,
        "reads best, random and worst over the channels of an SSD; writes at once; read sizes").drawn(),
    experiment("ancs-fig5", "slice indexes, ANCS '14, figure 5, table 3, section 7.3", fig5::run,
        "look-ups, inserts and both of SliceHash and BufferHash; memory an entry").drawn(),
    experiment("ancs-fig6", "slice indexes, ANCS '14, figure 6", fig6::run,
        "look-ups with and without knowing the channels, by how they fall on these"),
    experiment("ancs-table4", "slice indexes, ANCS '14, table 4", file::run,
        "processor time of look-ups and inserts on a real file, and look-ups beside its own random reads").of_a_file(),
    experiment("ancs-table5", "slice indexes, ANCS '14, table 5", tables::incarnations,
        "look-ups, inserts and memory by the number of incarnations"),
    experiment("ancs-table6", "slice indexes, ANCS '14, table 6", tables::drives,
        "look-ups and inserts on one to three drives, by partition and spread"),
    experiment("ancs-bursts", "slice indexes, ANCS '14, section 7.2, bursts of writes", bursts::run,
        "inserts in bursts and in a steady stream, and what they write, by how many full tables may wait"),
    experiment("ancs-analysis", "slice indexes, ANCS '14, section 5.4", tables::analysis,
        "what the formulas say of costs, writes and lifetime, and what is measured"),
    experiment("ancs-generality", "slice indexes, ANCS '14, section 7.5", generality::run,
        "look-ups, inserts and errors of a Bloom filter, and queries of a similarity index, on slices"),
];
