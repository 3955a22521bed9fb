//! Data blocks: the value behind the line of a storage command.

use super::request::{Parsed, Refused, Request};
use crate::command::Command;
use crate::key::MetaKey;
use crate::number::parse_u64;
use crate::reply::Refusal;

/// Bytes of `\r\n`.
const TERMINATOR_BYTES: usize = 2;

/// Longest data block that memcached understands; a larger number is no length.
const LENGTH_MAX: u64 = i32::MAX as u64 - 2;

/// The length of a data block, as announced on its line.
#[derive(Clone, Copy)]
pub(super) struct BlockLength(usize);

impl BlockLength {
    #[inline]
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        Self::new(parse_u64(word)?)
    }

    #[inline]
    pub(super) fn new(length: u64) -> Option<Self> {
        (length <= LENGTH_MAX).then_some(Self(length as usize))
    }

    /// Returns the bytes to throw away when the line was refused.
    pub(super) fn swallow(self) -> usize {
        self.0 + TERMINATOR_BYTES
    }
}

/// Takes the data block behind the line of `request` and makes a command of it, or answers that it is
/// incomplete or refused. `quiet` says that the client wants no reply to a bad block; `invalidates` is the key
/// whose old value must go if the new one is too large.
#[inline]
pub(super) fn take<'a>(
    request: &Request<'a, '_>,
    length: BlockLength,
    quiet: bool,
    invalidates: Option<MetaKey<'a>>,
    command: impl FnOnce(&'a [u8]) -> Command<'a>,
) -> Parsed<'a> {
    if length.0 > request.limits.max_value_bytes {
        return request.refuse(Refused {
            swallow: length.swallow(),
            invalidates,
            ..Refused::quietly(Refusal::TooLarge, quiet)
        });
    }
    let end = request.consumed + length.0;
    let need = end + TERMINATOR_BYTES;
    let Some(terminator) = request.input.get(end..need) else {
        return Parsed::Incomplete { need: Some(need) };
    };
    if terminator != b"\r\n" {
        return Parsed::Refused(Refused {
            consumed: need,
            ..Refused::quietly(Refusal::BadDataChunk, quiet)
        });
    }
    Parsed::Command {
        command: command(&request.input[request.consumed..end]),
        consumed: need,
    }
}
