//! SliceLSH against a plain search through all vectors: recall and distances, refusals, crashes, drives that fail.

mod crash;
mod faults;
#[path = "../common/hardware.rs"]
mod hardware;
mod life;
mod log_faults;
mod model;
mod ordinary;
mod recall;
mod refusals;
