//! SliceBloom against a set: sequential and concurrent operations, crashes, and drives that fail.

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod faults;
mod files;
mod life;
mod log_faults;
mod ordinary;
mod rates;
mod refusals;
