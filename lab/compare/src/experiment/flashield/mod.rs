//! Flashield (NSDI 2019).

mod application;
mod belady;
pub(super) mod classifier;
pub(super) mod clock;
pub(super) mod fig1;
pub(super) mod fig10;
pub(super) mod index;
pub(super) mod one_clock;
pub(super) mod overnight;
mod ring;
pub(super) mod systems;
pub(super) mod table3;
