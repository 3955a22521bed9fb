//! Sans-I/O parsers and writers for the memcached text and meta protocols.
//!
//! ```text
//!   bytes of a connection ──▶ parse() ──▶ Parsed::Command ──▶ (server executes) ──▶ write::* ──▶ Vec<u8>
//!                                │
//!                                ├─▶ Parsed::Incomplete   read more
//!                                ├─▶ Parsed::Refused      answer, drop, swallow, go on (or close)
//!                                └─▶ Parsed::Binary       log a line, close
//! ```
//!
//! Nothing here sees a socket, a clock or an item. Commands borrow from the input: no key or value
//! is copied, and parsing allocates nothing. Writers append to a `Vec<u8>` and allocate only when
//! that grows. The crate has no threads and no state between calls, so every function may be called
//! from anywhere.
//!
//! Invariants, held by property tests and fuzz targets:
//! - no input panics, and `consumed` never exceeds the input's length;
//! - the answer does not depend on how the bytes were split: a prefix of a request is
//!   [`Parsed::Incomplete`] or already what the whole is;
//! - every key in a [`Command`] is 1 to 250 bytes once decoded.
//!
//! The behaviour is memcached's (1.6.18 was the oracle; flags that later 1.6 releases document are
//! understood too). Where this crate differs, it is on purpose:
//!
//! | request | memcached 1.6.18 | here |
//! |---|---|---|
//! | storage line with a readable length but a bad key, number or CAS | the data block is run as commands | the data block is swallowed (as in later 1.6 releases) |
//! | `get a <251 bytes>` pipelined behind other commands | drops their replies too | one `CLIENT_ERROR`, nothing else lost |
//! | a NUL byte in a line | the line ends there | in a key: `CLIENT_ERROR bad command line format` |
//! | flags, exptime or length beyond the field's range | wraps around | flags and length are refused, exptime saturates in 2106 |
//! | a line over the limit | closes silently | `CLIENT_ERROR line too long`, then closes |
//! | `me`: `exp` | negated | seconds that remain, as in later releases |
//! | `ma` with `q` that creates the item | answers | quiet, as in later releases |
//! | flag `k` for an item stored under a base64 key | base64 for every client | base64 for a request in base64 |
//! | `O` token over the limit in `ma`, `mg` | effect first, then the error | the error alone |
//!
//! As in memcached, bytes below 0x20 other than NUL, `\n` and the space are accepted in keys.
#![forbid(unsafe_code)]

mod arithmetic;
mod base64;
mod command;
mod exptime;
mod key;
mod meta;
mod number;
mod parse;
mod reply;
mod words;
pub mod write;

pub use arithmetic::{Adjusted, adjust, stored_decimal};
pub use command::{Command, CrawlScope, CrawlerCommand, ShutdownMode, StoreVerb};
pub use exptime::{Expiry, Exptime};
pub use key::{KEY_MAX_BYTES, Keys, MetaKey};
pub use meta::{
    MetaArithmetic, MetaCommand, MetaDebug, MetaDelete, MetaFlag, MetaFlags, MetaGet, MetaSet,
};
pub use parse::{Limits, Parsed, parse};
pub use reply::{Refusal, Status};
pub use words::Words;
