//! Key, size and operation generators, and readers of recorded traces.
//!
//! Everything that a client of a cache does, as a function of a seed: the next key, its operation, the length
//! of its name and value, and the bytes of the value. Two runs with the same settings ask for the same keys
//! in the same order.
//!
//! ```text
//!   name, Settings ──parse──▶ Workload ──clients──▶ ClientStream ──next_request──▶ Request
//!                                │                       │          {op, key, value_len, ttl_s}
//!             known, presets ────┤                       ├ stream      random bits of (seed, n)
//!         meaning of a name      │                       ├ mix         the operation
//!                                │                       ├ popularity  the key
//!                                │                       ├ turnover    the keys that come and go
//!                                │                       └ trace       or the recorded requests, in the order of turns
//!                                ├ keys     key id  ──▶ the bytes of its name, and back
//!                                ├ sizes    key id  ──▶ the length of its value
//!                                ├ tenant   key id  ──▶ its time to live
//!                                └ values   key id, version ──▶ the bytes of its value, their check
//!   arrivals  the times at which an open-loop client sends
//!   check     every generator against its closed form;  profile  counts over a stream
//! ```
//!
//! # Why every client has its own stream
//!
//! Client `n` draws from a generator seeded with `(seed, n)`. If all clients replayed one stream, the first
//! client to ask for a key would bring it into memory (the server's, or the kernel's page cache), and every
//! other client would find it there a moment later. With 64 clients, 63 of 64 reads of a uniformly random
//! workload would be memory hits, and flash would look as fast as DRAM. One shared generator would avoid
//! that, but the order would then depend on thread scheduling, and no run could be repeated.
//!
//! # Invariants
//!
//! - The size of a key's value and the bytes of its name are pure functions of the settings and the key id. A
//!   reader therefore knows the size and bytes that a writer, in another process or another run, has stored.
//!   Traces are the only exception: a key's value changes its length there.
//! - The same seed gives the same requests, byte for byte, on any machine: no function of the platform is
//!   used, not even a logarithm.
//! - Nothing is allocated after construction, and no generator fails: settings are checked once, in
//!   [`Workload::parse`], with an error that says what is allowed. A trace may turn out to be damaged later;
//!   the error names the line.
//!
//! A [`Workload`] is immutable and may be shared between threads; a [`ClientStream`] belongs to one thread.

#![forbid(unsafe_code)]

mod arrivals;
mod catalog;
mod check;
mod clients;
mod divisor;
mod error;
mod histogram;
mod key_id;
mod keys;
mod known;
mod lengths;
mod math;
mod mix;
mod name;
mod popularity;
mod presets;
mod profile;
mod request;
mod scatter;
mod settings;
mod sizes;
mod stream;
mod tenant;
mod trace;
mod turnover;
mod turns;
mod values;
mod weighted;
mod zipf;

pub use arrivals::{Arrivals, Pace};
pub use catalog::Workload;
pub use check::{CheckRow, check};
pub use clients::{ClientStream, Clients};
pub use error::WorkloadError;
pub use histogram::{HistogramError, SizeHistogram};
pub use key_id::{KeyId, MAX_KEY_BYTES};
pub use keys::{KeyNames, KeySize};
pub use known::{CATALOG, Known, NAMES};
pub use mix::{Mix, Op};
pub use profile::Profile;
pub use request::Request;
pub use settings::Settings;
pub use sizes::{DEFAULT_MAX_VALUE_BYTES, Geometric, ValueSize};
pub use trace::TraceError;
pub use turns::Turn;
pub use values::{ValueBytes, ValueCheck};
