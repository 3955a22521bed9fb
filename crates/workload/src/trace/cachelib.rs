//! Rows of Meta's kvcache traces. The header says which column is which: the published traces of
//! different years have different ones.

use crate::mix::Op;
use crate::request::Request;

use super::columns::{Header, Row, hashed, key_len, shown, value_len};
use super::error::Trouble;

#[derive(Debug)]
pub(super) struct CacheLib {
    columns: usize,
    key: usize,
    op: usize,
    size: usize,
    key_size: Option<usize>,
    op_count: Option<usize>,
    ttl: Option<usize>,
}

/// A row may stand for so many requests.
const MAX_COUNT: u64 = 1 << 24;

impl CacheLib {
    pub(super) fn new(header: &Header) -> Result<Self, Trouble> {
        Ok(Self {
            columns: header.columns(),
            key: header.require("key")?,
            op: header.require("op")?,
            size: header.require("size")?,
            key_size: header.find("key_size"),
            op_count: header.find("op_count"),
            ttl: header.find("ttl"),
        })
    }

    /// The request of one line, and how many times it is made.
    #[inline]
    pub(super) fn request(&self, line: &[u8]) -> Result<(Request, u32), Trouble> {
        let row = Row::of(line, self.columns)?;
        let optional = |column: Option<usize>, name, absent| {
            column.map_or(Ok(absent), |column| row.number(column, name))
        };
        let count = optional(self.op_count, "op_count", 1)?;
        if count > MAX_COUNT {
            return Err(Trouble::Row(format!(
                "an op_count of {count}; at most {MAX_COUNT} are believed"
            )));
        }
        let request = Request {
            op: op(row.column(self.op))?,
            key: hashed(row.column(self.key)),
            key_len: key_len(optional(self.key_size, "key_size", 0)?)?,
            value_len: value_len(row.number(self.size, "size")?)?,
            ttl_s: u32::try_from(optional(self.ttl, "ttl", 0)?).unwrap_or(u32::MAX),
        };
        Ok((request, count as u32))
    }
}

#[inline]
fn op(name: &[u8]) -> Result<Op, Trouble> {
    match name {
        b"GET" | b"GET_LEASE" => Ok(Op::Get),
        b"SET" | b"SET_LEASE" => Ok(Op::Set),
        b"DELETE" => Ok(Op::Delete),
        _ => Err(Trouble::Row(format!(
            "the operation '{}' is not one of GET, GET_LEASE, SET, SET_LEASE, DELETE",
            shown(name)
        ))),
    }
}
