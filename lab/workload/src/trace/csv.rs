//! Rows of files whose header names the columns.
//!
//! - Meta's kvcache traces: traces published in different years have different columns.
//! - The CloudPhysics block traces in libCacheSim's form. A block number is a key; the bytes read or written
//!   are its value.

use crate::key_id::KeyId;
use crate::mix::Op;
use crate::request::Request;

use super::columns::{Header, Row, hashed, key_len, shown, value_len};
use super::error::Trouble;

/// Positions of the columns; `None` for columns that a trace lacks.
#[derive(Debug)]
pub(super) struct Csv {
    columns: usize,
    op: usize,
    size: usize,
    key: usize,
    /// Whether keys are block numbers, and operations are SCSI commands.
    is_block_trace: bool,
    key_size: Option<usize>,
    op_count: Option<usize>,
    ttl: Option<usize>,
}

/// Maximum number of requests in a row.
const MAX_COUNT: u64 = 1 << 24;

impl Csv {
    pub(super) fn kvcache(header: &Header) -> Result<Self, Trouble> {
        Ok(Self {
            columns: header.columns(),
            key: header.require("key")?,
            op: header.require("op")?,
            size: header.require("size")?,
            is_block_trace: false,
            key_size: header.find("key_size"),
            op_count: header.find("op_count"),
            ttl: header.find("ttl"),
        })
    }

    pub(super) fn cloudphysics(header: &Header) -> Result<Self, Trouble> {
        Ok(Self {
            columns: header.columns(),
            op: header.require("op")?,
            size: header.require("size")?,
            key: header.require("lbn")?,
            is_block_trace: true,
            key_size: None,
            op_count: None,
            ttl: None,
        })
    }

    /// Returns the request of one line, and how many times it is made.
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
        let (op, key) = if self.is_block_trace {
            let op = scsi_op(row.column(self.op))?;
            (op, KeyId(row.number(self.key, "block number")?))
        } else {
            (op(row.column(self.op))?, hashed(row.column(self.key)))
        };
        let request = Request {
            op,
            key,
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

/// The SCSI commands READ and WRITE with 6, 10, 12 and 16 bytes, in hexadecimal.
#[inline]
fn scsi_op(code: &[u8]) -> Result<Op, Trouble> {
    match code {
        b"28" | b"88" | b"a8" | b"8" | b"08" => Ok(Op::Get),
        b"2a" | b"8a" | b"aa" | b"a" | b"0a" => Ok(Op::Set),
        _ => Err(Trouble::Row(format!(
            "the operation '{}' is neither a read (28, 88, a8, 08) nor a write (2a, 8a, aa, 0a)",
            shown(code)
        ))),
    }
}
