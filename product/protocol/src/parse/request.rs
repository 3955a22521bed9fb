//! What a parser is given, and what it answers.

use crate::command::Command;
use crate::key::MetaKey;
use crate::reply::Refusal;

/// What a connection may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest value that is stored, in bytes.
    pub max_value_bytes: usize,
    /// Longest line, in bytes with its terminator, except:
    pub max_line_bytes: usize,
    /// longest line of a command that takes many keys (`get gets gat gats`).
    pub max_multiget_bytes: usize,
}

impl Limits {
    /// memcached's limits, with values of up to `max_value_bytes`. memcached sets none for
    /// multigets; here it is 1 MiB.
    pub const fn new(max_value_bytes: usize) -> Self {
        Self {
            max_value_bytes,
            max_line_bytes: 2048,
            max_multiget_bytes: 1 << 20,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(1 << 20)
    }
}

/// The first request in the input, or what to do for want of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Never stored: it lives between parsing and execution.
pub enum Parsed<'a> {
    /// The request is not all there. Nothing is consumed.
    Incomplete {
        /// Bytes the request takes in all, once its line has announced it, so that the connection
        /// can size its buffer; never more than the limits allow.
        need: Option<usize>,
    },
    /// A request.
    Command {
        /// What to do.
        command: Command<'a>,
        /// Bytes of input it took.
        consumed: usize,
    },
    /// A request that cannot be carried out.
    Refused(Refused<'a>),
    /// The old binary protocol: say so ([`binary_refusal`](crate::write::binary_refusal)), and close.
    Binary(BinaryRequest),
}

/// What a refusal needs to know of a request in the old binary protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinaryRequest {
    /// The command; the response repeats it.
    pub opcode: u8,
    /// What the client tells its requests apart by; the response repeats it.
    pub opaque: [u8; 4],
}

/// What to do about a request that cannot be carried out. In this order: remove `invalidates` from
/// the cache, answer `reply` unless `quiet`, drop `consumed` bytes of input, throw away the next
/// `swallow` bytes as they arrive (they may be far more than any limit), and close if `close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// What the client is told, unless it asked for no reply.
    pub reply: Refusal,
    /// Bytes of input the request took, as far as they are there.
    pub consumed: usize,
    /// Bytes of its data block, which are not part of `consumed`.
    pub swallow: usize,
    /// Whether the client asked for no reply.
    pub quiet: bool,
    /// The key whose old value must go, because a new one cannot be stored.
    pub invalidates: Option<MetaKey<'a>>,
    /// Whether the connection is of no more use.
    pub close: bool,
}

/// What a line means; [`Request::answer`] says how long the refused ones are.
pub(super) type Meaning<'a> = Result<Command<'a>, Refused<'a>>;

impl Refused<'_> {
    pub(super) fn quietly(reply: Refusal, quiet: bool) -> Self {
        Self {
            quiet,
            ..reply.into()
        }
    }
}

impl From<Refusal> for Refused<'_> {
    fn from(reply: Refusal) -> Self {
        Self {
            reply,
            consumed: 0,
            swallow: 0,
            quiet: false,
            invalidates: None,
            close: false,
        }
    }
}

/// A line to be understood, and where it came from.
pub(super) struct Request<'a, 'l> {
    pub(super) input: &'a [u8],
    pub(super) limits: &'l Limits,
    /// Bytes of the line with its terminator.
    pub(super) consumed: usize,
}

impl<'a> Request<'a, '_> {
    #[inline]
    pub(super) fn answer(&self, meaning: Meaning<'a>) -> Parsed<'a> {
        match meaning {
            Ok(command) => Parsed::Command {
                command,
                consumed: self.consumed,
            },
            Err(refused) => self.refuse(refused),
        }
    }

    #[cold]
    pub(super) fn refuse(&self, refused: Refused<'a>) -> Parsed<'a> {
        Parsed::Refused(Refused {
            consumed: self.consumed,
            ..refused
        })
    }
}
