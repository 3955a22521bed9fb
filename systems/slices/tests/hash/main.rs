//! SliceHash against a map: sequential and concurrent operations, crashes, and drives that fail.

mod chaos;
mod crash;
mod faults;
mod flushes;
#[path = "../common/hardware.rs"]
mod hardware;
mod index;
mod life;
mod log_faults;
mod model;
mod ordinary;
mod refusals;
mod side;
