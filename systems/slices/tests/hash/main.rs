//! SliceHash against a map: sequential and concurrent operations, crashes, and drives that fail.

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod faults;
mod flushes;
mod index;
#[path = "../common/keyed.rs"]
mod keyed;
mod life;
mod log_faults;
#[path = "../common/model.rs"]
mod model;
mod ordinary;
#[path = "../common/plain.rs"]
mod plain;
mod refusals;
mod side;
