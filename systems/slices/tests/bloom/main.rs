//! SliceBloom against a set: sequential and concurrent operations, crashes, and drives that fail.

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod faults;
mod files;
mod life;
mod log_faults;
mod ordinary;
#[path = "../common/plain.rs"]
mod plain;
mod rates;
mod refusals;
