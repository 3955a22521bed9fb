//! Slice indexes (ANCS 2014), on the emulated Crucial M4. Except in `file`, times are virtual and those of the drive alone:
//! they include no processor time.

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
