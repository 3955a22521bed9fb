//! SliceBloom against a set: sequential and concurrent operations, crashes, and drives that fail.

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
