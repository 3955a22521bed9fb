//! Key, size and operation generators.
//!
//! Everything a client of a cache does, as a function of a seed: which key comes next, whether it
//! is read, written or deleted, how long its name and its value are, and which bytes the value
//! holds. Two runs with the same settings ask for the same keys in the same order.
//!
//! ```text
//!   Settings ──by_name──▶ Workload ──client(n)──▶ ClientStream ──next_request──▶ Request {op, key}
//!                            │                        │
//!                            │                        ├ stream      random bits of (seed, n)
//!                            │                        ├ popularity  which key
//!                            │                        └ mix         which operation
//!                            ├ keys     key id  ──▶ the bytes of its name, and back
//!                            ├ sizes    key id  ──▶ the length of its value
//!                            └ values   key id, version ──▶ the bytes of its value, and their check
//!   arrivals  when an open-loop client sends
//! ```
//!
//! # Why every client has its own stream
//!
//! Client `n` draws from a generator seeded with `(seed, n)`. If all clients replayed one stream,
//! the first to ask for a key would bring it into memory (the server's, or the kernel's page cache)
//! and every other client would find it there a moment later: with 64 clients, 63 of 64 reads of a
//! uniformly random workload would be memory hits, and flash would look as fast as DRAM. Drawing
//! from one shared generator instead would avoid that, but would make the order depend on thread
//! scheduling, and no run could be repeated.
//!
//! # Invariants
//!
//! - The size of a key's value and the bytes of its name are pure functions of the settings and the
//!   key id. A reader therefore knows what a writer, in another process or another run, has stored.
//! - No generator allocates after construction, and none fails: settings are checked once, in
//!   [`Workload::by_name`], with an error that says what is allowed.
//!
//! A [`Workload`] is immutable and may be shared between threads; a [`ClientStream`] belongs to one.

#![forbid(unsafe_code)]

mod arrivals;
mod catalog;
mod keys;
mod mix;
mod popularity;
mod sizes;
mod stream;
mod values;
mod zipf;

pub use arrivals::{Arrivals, Pace};
pub use catalog::{ClientStream, NAMES, Request, Settings, Workload, WorkloadError};
pub use keys::{KeyId, KeyNames, KeySize, MAX_KEY_BYTES};
pub use mix::{Mix, Op};
pub use popularity::{Picker, Popularity};
pub use sizes::{DEFAULT_MAX_VALUE_BYTES, ValueSize};
pub use stream::Stream;
pub use values::{HEADER_BYTES, ValueBytes, ValueCheck};
pub use zipf::Zipf;
