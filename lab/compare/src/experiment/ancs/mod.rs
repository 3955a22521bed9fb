//! Slice indexes (ANCS 2014), on the emulated Crucial M4. Figures are of virtual time with the drive alone: what the processor
//! takes is not in them.

mod bloom;
mod buffer_hash;
pub(super) mod bursts;
pub(super) mod fig2;
pub(super) mod fig5;
pub(super) mod fig6;
pub(super) mod file;
pub(super) mod generality;
mod index;
mod lsh;
pub(super) mod tables;
mod work;
