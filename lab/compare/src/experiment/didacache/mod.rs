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
pub(super) mod fig10_11;
pub(super) mod fig12_13;
pub(super) mod fig14_16;
pub(super) mod fig17_18;
mod items;
mod machine;
pub(super) mod reserve;
pub(super) mod sensitivity;
pub(super) mod table1;
pub(super) mod table4;
pub(super) mod table5;
pub(super) mod tune;
pub(super) mod wear;
