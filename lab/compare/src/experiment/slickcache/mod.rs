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

pub(super) mod crash;
pub(super) mod curve;
pub(super) mod direct;
pub(super) mod dual_mode;
pub(super) mod fig4;
pub(super) mod fig5;
pub(super) mod fig6;
pub(super) mod fig7;
pub(super) mod resources;
pub(super) mod swap;
pub(super) mod table1;
pub(super) mod together;
