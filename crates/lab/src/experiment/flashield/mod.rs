//! Flashield (NSDI 2019).

pub(super) mod classifier;
pub(super) mod fig1;
pub(super) mod fig10;
