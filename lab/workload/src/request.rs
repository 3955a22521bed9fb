//! What a client asks for.

use std::num::NonZeroU8;

use crate::key_id::KeyId;
use crate::mix::Op;

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is done.
    pub op: Op,
    /// To which key.
    pub key: KeyId,
    /// The length of the key's name, where a trace states it; otherwise names have the length that
    /// [`KeyNames`](crate::KeyNames) gives them.
    pub key_len: Option<NonZeroU8>,
    /// The length of the value that a set stores, in bytes; of a get, that of the value to store if
    /// the key is absent. 0 where a trace does not know it.
    pub value_len: u32,
    /// The time to live that goes with the value, in seconds; 0 if it never expires.
    pub ttl_s: u32,
}

impl Request {
    /// The set with which a look-aside client follows a get that found nothing.
    #[inline]
    pub fn fill(self) -> Self {
        Self {
            op: Op::Set,
            ..self
        }
    }
}
