//! Sans-I/O parsers and writers for the memcached text and meta protocols.
//!
//! ```text
//!   bytes of a connection ──▶ parse() ──▶ Parsed::Command ──▶ (server executes) ──▶ write::* ──▶ Vec<u8>
//!                                │
//!                                ├─▶ Parsed::Incomplete   read more
//!                                ├─▶ Parsed::Refused      answer, drop, swallow, go on (or close)
//!                                └─▶ Parsed::Binary       answer that it is not spoken, close
//! ```
//!
//! [`client`] is the other side: it reads the replies of [`write`](mod@write).
//!
//! Nothing here sees a socket, a clock or an item. Commands borrow from the input: no key or value
//! is copied, and parsing allocates nothing. Writers append to a `Vec<u8>` and allocate only when
//! it grows. The crate has no threads and no state between calls: every function may be called
//! from any thread.
//!
//! Invariants, held by property tests and fuzz targets:
//! - no input panics, and `consumed` never exceeds the input's length;
//! - the answer does not depend on how the bytes were split: a prefix of a request is
//!   [`Parsed::Incomplete`], or parses as the whole request does;
//! - every key in a [`Command`] is 1 to 250 bytes once decoded.
//!
//! The reference is memcached 1.6.45. `docs/guide/compatibility.md` lists where this crate differs
//! on purpose, and why.
//!
//! As in memcached, bytes below 0x20 other than NUL, `\n` and the space are accepted in keys.
#![forbid(unsafe_code)]

mod arithmetic;
mod base64;
#[cfg(any(test, feature = "client"))]
pub mod client;
mod command;
mod exptime;
mod key;
mod meta;
mod number;
mod parse;
mod reply;
mod store_verb;
mod words;
pub mod write;

pub use arithmetic::{Adjusted, adjust, stored_decimal};
pub use command::Command;
pub use exptime::{Expiry, Exptime};
pub use key::{KEY_MAX_BYTES, Keys, MetaKey};
pub use meta::{MetaCommand, MetaFlag, MetaFlags, MetaRequest, MetaSet};
pub use parse::{BinaryRequest, Limits, Parsed, Refused, parse};
pub use reply::{Refusal, Status};
pub use store_verb::StoreVerb;
pub use words::Words;
