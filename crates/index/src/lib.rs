//! In-memory tables that map key hashes to flash locations.
//!
//! ```text
//!   engine: placement::exact            (one lock per partition, held for memory work only)
//!        |  hash -> partition
//!        v
//!   direct::DirectTable                 one table per partition, no lock of its own
//!        |  hash -> sub-table -> home bucket -> slot
//!        v
//!   [u64; 8] buckets, one cache line each
//! ```
//!
//! A table sees 64-bit key hashes and small integers ("values": packed flash locations), never
//! keys. It answers "where might this key lie", and the caller verifies the key on flash. An
//! answer may therefore be wrong for another key, or missing after a collision, and neither can
//! turn into wrong data.
//!
//! | module | placement | entry |
//! |---|---|---|
//! | [`direct`] | `exact` | 8 bytes, everything in memory, value found without I/O |
//!
//! Nothing here blocks, allocates outside its stated bound, or touches a clock or a source of
//! randomness: the same calls give the same table.

#![forbid(unsafe_code)]

pub mod direct;
