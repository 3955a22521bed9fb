//! SliceMap against a map: sequential and concurrent operations, crashes, and drives that fail.

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod faults;
#[path = "../common/keyed.rs"]
mod keyed;
mod life;
#[path = "../common/model.rs"]
mod model;
mod ordinary;
mod refusals;
mod replay;
mod ring;
