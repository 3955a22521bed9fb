//! SliceBloom against a set: in order, at once, through crashes, and on drives that fail.

mod crash;
mod faults;
mod files;
#[path = "../common/hardware.rs"]
mod hardware;
mod life;
mod log_faults;
mod ordinary;
mod rates;
mod refusals;
