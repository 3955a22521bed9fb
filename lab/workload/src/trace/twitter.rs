//! Rows of Twitter's traces: `timestamp,key,key size,value size,client,operation,TTL`.
//!
//! Keys may hold commas, so the columns are counted from the right. A `gets` is a read; `add`, `replace`,
//! `append`, `prepend`, `cas`, `incr` and `decr` are writes.

use crate::mix::Op;
use crate::request::Request;

use super::columns::{hashed, key_len, number, shown, value_len, wrong_count};
use super::error::Trouble;

const COLUMNS: usize = 7;

#[inline]
pub(super) fn request(line: &[u8]) -> Result<Request, Trouble> {
    let mut columns = [&b""[..]; COLUMNS - 2];
    let mut rest = line;
    for column in columns.iter_mut().rev() {
        let comma = memchr::memrchr(b',', rest).ok_or_else(|| too_few(line))?;
        *column = &rest[comma + 1..];
        rest = &rest[..comma];
    }
    let comma = memchr::memchr(b',', rest).ok_or_else(|| too_few(line))?;
    let (timestamp, key) = (&rest[..comma], &rest[comma + 1..]);
    number(timestamp, "timestamp")?;
    let [key_size, value_size, _, operation, ttl] = columns;
    Ok(Request {
        op: op(operation)?,
        key: hashed(key),
        key_len: key_len(number(key_size, "key size")?)?,
        value_len: value_len(number(value_size, "value size")?)?,
        ttl_s: u32::try_from(number(ttl, "TTL")?).unwrap_or(u32::MAX),
    })
}

#[inline]
fn op(name: &[u8]) -> Result<Op, Trouble> {
    match name {
        b"get" | b"gets" => Ok(Op::Get),
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => {
            Ok(Op::Set)
        }
        b"delete" => Ok(Op::Delete),
        _ => Err(Trouble::Row(format!(
            "the operation '{}' is not one of get, gets, set, add, replace, cas, append, prepend, \
             delete, incr, decr",
            shown(name)
        ))),
    }
}

#[cold]
fn too_few(line: &[u8]) -> Trouble {
    wrong_count(memchr::memchr_iter(b',', line).count() + 1, COLUMNS)
}
