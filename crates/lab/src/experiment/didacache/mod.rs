//! The evaluation of `DIDACache` (TOS 2018, section 5): what its experiments have in common.
//!
//! | scale | flash of 12 channels | block | LUNs a channel | processors |
//! |---|---|---|---|---|
//! | the paper's | 1.5 TB, of which 15 to 30 GB are used | 8 MiB | 16 | 6 cores |
//! | `paper` | 1 GiB | 256 KiB | 8 | 3 |
//! | `small` | 264 MiB | 256 KiB | 2 | 1 |
//!
//! Blocks are smaller, and erased faster by as much, so that there are as many as in the part of the flash that
//! the paper uses; the processors shrink with the LUNs. Memory for slabs is a 32nd of the flash: in the paper
//! eight servers have 128 MB each beside 30 GB.
//! Every result is also there with what it costs to copy items left out, and doubled.

mod cell;
pub(super) mod fig10_11;
pub(super) mod fig12_13;
pub(super) mod fig14_16;
pub(super) mod fig17_18;
mod items;
mod machine;
pub(super) mod reserve;
pub(super) mod table1;
pub(super) mod table4;
pub(super) mod table5;
pub(super) mod wear;
