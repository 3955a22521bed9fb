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
mod fig10_11;
mod fig12_13;
mod fig14_16;
mod fig17_18;
mod items;
mod machine;
mod reserve;
mod table1;
mod table4;
mod table5;
mod wear;

pub(super) use fig10_11::EXPERIMENT as FIG10_11;
pub(super) use fig12_13::EXPERIMENT as FIG12_13;
pub(super) use fig14_16::EXPERIMENT as FIG14_16;
pub(super) use fig17_18::EXPERIMENT as FIG17_18;
pub(super) use reserve::EXPERIMENT as FIG23_26_TABLE3;
pub(super) use table1::EXPERIMENT as TABLE1;
pub(super) use table4::EXPERIMENT as TABLE4;
pub(super) use table5::EXPERIMENT as TABLE5;
pub(super) use wear::EXPERIMENT as FIG19_22_TABLE2;
