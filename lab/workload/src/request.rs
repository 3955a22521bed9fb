//! A client's request.

use std::num::NonZeroU8;

use crate::key_id::KeyId;
use crate::mix::Op;

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// The key.
    pub key: KeyId,
    /// Length of the key's name, if a trace states it; otherwise [`KeyNames`](crate::KeyNames) gives the
    /// length.
    pub key_len: Option<NonZeroU8>,
    /// Length of the value that a set stores, in bytes; for a get, length of the value to store if the key is
    /// absent. 0 if a trace does not state it.
    pub value_len: u32,
    /// Time to live of the value, in seconds; 0 if it never expires.
    pub ttl_s: u32,
}

impl Request {
    /// Returns the set with which a look-aside client follows a get that found nothing.
    #[inline]
    pub fn fill(self) -> Self {
        Self {
            op: Op::Set,
            ..self
        }
    }
}
