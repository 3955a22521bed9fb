//! Replies, appended to a connection's output.
//!
//! Only the output allocates, when it grows. The writers apply `noreply` and the `q` flag of the
//! meta protocol, so that no caller has to know their rules.

mod binary;
mod dump;
mod meta;
mod text;

pub use binary::binary_refusal;
pub use dump::{DumpedItem, cachedump_line, metadump_line, mgdump_line};
pub use meta::{
    Counted, ItemMeta, Outcome, Stored, meta_arithmetic, meta_debug, meta_delete, meta_get_head,
    meta_get_hit, meta_get_miss, meta_set,
};
pub use text::{number, refusal, stat, status, value, value_header, version};

/// Every line and every data block ends with this.
pub const TERMINATOR: &[u8; 2] = b"\r\n";

/// Appends a number in decimal.
#[inline]
pub(crate) fn decimal(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
