//! Records of binary traces. All are reads.

use crate::key_id::KeyId;
use crate::mix::Op;
use crate::request::Request;
use crate::settings::MAX_VALUE_BYTES;

/// libCacheSim's oracleGeneral, little-endian: `time u32, object id u64, size u32, next i64`.
#[inline]
pub(super) fn oracle_general(record: [u8; 24]) -> Request {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| record[at + byte]));
    Request {
        value_len: word(12).min(MAX_VALUE_BYTES),
        ..read(u64::from(word(4)) | u64::from(word(8)) << 32)
    }
}

/// A key of eight bytes, big-endian.
#[inline]
pub(super) fn be64(record: [u8; 8]) -> Request {
    read(u64::from_be_bytes(record))
}

/// A key of four bytes, big-endian.
#[inline]
pub(super) fn be32(record: [u8; 4]) -> Request {
    read(u64::from(u32::from_be_bytes(record)))
}

fn read(key: u64) -> Request {
    Request {
        op: Op::Get,
        key: KeyId(key),
        key_len: None,
        value_len: 0,
        ttl_s: 0,
    }
}
