//! Input and output of the parsers.

use crate::command::Command;
use crate::key::MetaKey;
use crate::reply::Refusal;

/// Limits on the requests of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest value that is stored, in bytes.
    pub max_value_bytes: usize,
    /// Longest line, in bytes with its terminator, of any other command.
    pub max_line_bytes: usize,
    /// Longest line of a command that takes many keys (`get gets gat gats`).
    pub max_multiget_bytes: usize,
}

impl Limits {
    /// Returns memcached's limits, with values of up to `max_value_bytes`. memcached has no limit for
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

/// The first request in the input, or the action to take if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Never stored: it lives between parsing and execution.
pub enum Parsed<'a> {
    /// The request is not complete. Nothing is consumed.
    Incomplete {
        /// Bytes of the whole request, once its line has announced them, so that the connection
        /// can size its buffer; never more than the limits allow.
        need: Option<usize>,
    },
    /// A request.
    Command {
        /// The command to execute.
        command: Command<'a>,
        /// Bytes of input that the request took.
        consumed: usize,
    },
    /// A request that cannot be carried out.
    Refused(Refused<'a>),
    /// A request of the old binary protocol: answer [`binary_refusal`](crate::write::binary_refusal), and close.
    Binary(BinaryRequest),
}

/// The fields of a request in the old binary protocol that its refusal repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinaryRequest {
    /// The command.
    pub opcode: u8,
    /// The client's mark, by which it matches responses to requests.
    pub opaque: [u8; 4],
}

/// A request that cannot be carried out. The caller acts in this order: remove `invalidates` from
/// the cache, answer `reply` unless `quiet`, drop `consumed` bytes of input, throw away the next
/// `swallow` bytes as they arrive (they may be far more than any limit), and close if `close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Reply to the client, unless it asked for no reply.
    pub reply: Refusal,
    /// Bytes of the request that are in the input.
    pub consumed: usize,
    /// Bytes of its data block, which `consumed` does not include.
    pub swallow: usize,
    /// Whether the client asked for no reply.
    pub quiet: bool,
    /// The key whose old value must go, because a new one cannot be stored.
    pub invalidates: Option<MetaKey<'a>>,
    /// Whether the connection must be closed.
    pub close: bool,
}

/// Meaning of a line. [`Request::answer`] adds the length of the line.
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

/// A line to parse, and the input that it came from.
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
