//! SliceLSH against a plain search through all vectors: recall and distances, refusals, crashes, drives that fail.

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod faults;
mod life;
mod log_faults;
mod model;
mod ordinary;
#[path = "../common/plain.rs"]
mod plain;
mod recall;
mod refusals;
