//! Data blocks: the value behind the line of a storage command.

use super::request::{Parsed, Request};
use crate::command::Command;
use crate::key::MetaKey;
use crate::number::parse_u64;
use crate::reply::Refusal;

/// Bytes of `\r\n`.
const TERMINATOR_BYTES: usize = 2;

/// Longest data block memcached understands; more is not a length at all.
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

    /// Bytes to throw away when the line was refused.
    pub(super) fn swallow(self) -> usize {
        self.0 + TERMINATOR_BYTES
    }
}

/// What a refused block takes with it.
pub(super) struct OnRefusal<'a> {
    /// Whether a client that wants no reply gets none to a bad block.
    pub(super) quiet: bool,
    /// The key whose old value must go if the new one is too large.
    pub(super) invalidates: Option<MetaKey<'a>>,
}

/// Takes the data block behind the line of `request` and makes a command of it, or answers what to
/// do for want of one.
#[inline]
pub(super) fn take<'a>(
    request: &Request<'a, '_>,
    length: BlockLength,
    on_refusal: OnRefusal<'a>,
    command: impl FnOnce(&'a [u8]) -> Command<'a>,
) -> Parsed<'a> {
    if length.0 > request.limits.max_value_bytes {
        return Parsed::Refused {
            reply: Refusal::TooLarge,
            consumed: request.consumed,
            swallow: length.swallow(),
            quiet: on_refusal.quiet,
            invalidates: on_refusal.invalidates,
            close: false,
        };
    }
    let end = request.consumed + length.0;
    let need = end + TERMINATOR_BYTES;
    let Some(terminator) = request.input.get(end..need) else {
        return Parsed::Incomplete { need: Some(need) };
    };
    if terminator != b"\r\n" {
        return Parsed::Refused {
            reply: Refusal::BadDataChunk,
            consumed: need,
            swallow: 0,
            quiet: on_refusal.quiet,
            invalidates: None,
            close: false,
        };
    }
    Parsed::Command {
        command: command(&request.input[request.consumed..end]),
        consumed: need,
    }
}
