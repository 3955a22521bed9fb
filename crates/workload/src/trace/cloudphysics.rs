//! Rows of the CloudPhysics block traces in libCacheSim's form. A block number is a key; the bytes
//! read or written are its value.

use crate::key_id::KeyId;
use crate::mix::Op;
use crate::request::Request;

use super::columns::{Header, Row, shown, value_len};
use super::error::Trouble;

#[derive(Debug)]
pub(super) struct CloudPhysics {
    columns: usize,
    op: usize,
    size: usize,
    block: usize,
}

impl CloudPhysics {
    pub(super) fn new(header: &Header) -> Result<Self, Trouble> {
        Ok(Self {
            columns: header.columns(),
            op: header.require("op")?,
            size: header.require("size")?,
            block: header.require("lbn")?,
        })
    }

    #[inline]
    pub(super) fn request(&self, line: &[u8]) -> Result<Request, Trouble> {
        let row = Row::of(line, self.columns)?;
        Ok(Request {
            op: op(row.column(self.op))?,
            key: KeyId(row.number(self.block, "block number")?),
            key_len: None,
            value_len: value_len(row.number(self.size, "size")?)?,
            ttl_s: 0,
        })
    }
}

/// The SCSI commands READ and WRITE with 6, 10, 12 and 16 bytes, in hexadecimal.
#[inline]
fn op(code: &[u8]) -> Result<Op, Trouble> {
    match code {
        b"28" | b"88" | b"a8" | b"8" | b"08" => Ok(Op::Get),
        b"2a" | b"8a" | b"aa" | b"a" | b"0a" => Ok(Op::Set),
        _ => Err(Trouble::Row(format!(
            "the operation '{}' is neither a read (28, 88, a8, 08) nor a write (2a, 8a, aa, 0a)",
            shown(code)
        ))),
    }
}
