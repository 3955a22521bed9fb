//! SliceMap against a map: sequential and concurrent operations, crashes, and drives that fail.

mod crash;
mod faults;
#[path = "../common/hardware.rs"]
mod hardware;
mod life;
#[path = "../hash/model.rs"]
mod model;
mod ordinary;
mod replay;
mod ring;
