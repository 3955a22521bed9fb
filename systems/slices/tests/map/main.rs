//! SliceMap against a map: in order, at once, through crashes, and on drives that fail.

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
