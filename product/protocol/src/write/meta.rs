//! Replies of the meta protocol.
//!
//! A reply is a code (`HD VA EN NF NS EX ME MN`) and the flags that the request asked for, in its
//! order. The `q` flag silences a miss of `mg`, and success of `ms`, `md`, `ma`, except an `ma` that
//! created its item. It never silences an error.

use super::dump::{DumpedItem, common_fields};
use super::{TERMINATOR, decimal};
use crate::base64;
use crate::key::{KEY_MAX_BYTES, MetaKey};
use crate::meta::{MetaRequest, MetaSet};
use crate::reply::Status;

/// Fields of an item in replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemMeta {
    /// `f`: the client's own number.
    pub client_flags: u32,
    /// `c`: the version.
    pub cas_unique: u64,
    /// `s`: length of the value, in bytes.
    pub value_bytes: usize,
    /// `t`: seconds to live as the request found the item; `None` for an item that never expires, and for
    /// an item that the request created.
    pub ttl: Option<i64>,
    /// `t` behind `T` in the request: seconds to live by `T`.
    pub ttl_touched: Option<i64>,
    /// `t` behind `N` in the request, if the request created the item: seconds to live by `N`.
    pub ttl_created: Option<i64>,
    /// Whether the request created the item.
    pub created: bool,
    /// `l`: seconds since the last access before this one.
    pub last_access_secs: u32,
    /// `h`: whether it had been read before.
    pub fetched: bool,
    /// `X`: the item is stale.
    pub stale: bool,
    /// `W`: this client is to recache it.
    pub won: bool,
    /// `Z`: another client is recaching it already.
    pub token_sent: bool,
}

/// Outcome of a command that changes an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome<T> {
    /// The change was made.
    Done(T),
    /// The condition of the mode did not hold, or there was no room for a new item.
    NotStored,
    /// The item has another version.
    Exists,
    /// There is no item, and none was to be created.
    NotFound,
}

impl<T> Outcome<T> {
    fn code(&self) -> &'static [u8] {
        match self {
            Self::Done(_) => b"HD",
            Self::NotStored => b"NS",
            Self::Exists => b"EX",
            Self::NotFound => b"NF",
        }
    }
}

/// Result of an `ms` that stored its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The CAS unique that the item gets.
    pub cas_unique: u64,
    /// Length of the whole value now stored, in bytes, also after `append` and `prepend`.
    pub value_bytes: usize,
}

/// Result of an `ma` that changed or created an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The number that the item holds now.
    pub value: u64,
    /// The item as it is now (`ttl` is as the request found it).
    pub item: ItemMeta,
}

/// Appends the reply to an `mg` that found (or created) `item`: the head, and `value` if the
/// request wants it.
pub fn meta_get_hit(out: &mut Vec<u8>, request: &MetaRequest<'_>, item: &ItemMeta, value: &[u8]) {
    if meta_get_head(out, request, item) {
        out.reserve(value.len() + TERMINATOR.len());
        out.extend_from_slice(value);
        out.extend_from_slice(TERMINATOR);
    }
}

/// Appends the line of the reply to an `mg` that found an item. Returns whether the value and a [`TERMINATOR`] must follow.
#[inline]
pub fn meta_get_head(out: &mut Vec<u8>, request: &MetaRequest<'_>, item: &ItemMeta) -> bool {
    let with_value = request.wants_value(item.cas_unique);
    if with_value {
        out.extend_from_slice(b"VA ");
        decimal(out, item.value_bytes);
    } else {
        out.extend_from_slice(b"HD");
    }
    flags(out, request, b"stcflhOk", item);
    for (shown, flag) in [
        (item.token_sent, b" Z"),
        (item.stale, b" X"),
        (item.won, b" W"),
    ] {
        if shown {
            out.extend_from_slice(flag);
        }
    }
    out.extend_from_slice(TERMINATOR);
    with_value
}

/// Appends the request's flags that are among `answered`. `T`, and `N` for an item that the request created, set the
/// seconds to live for each `t` behind them. An item that has expired already has 0 left.
#[inline]
fn flags(out: &mut Vec<u8>, request: &MetaRequest<'_>, answered: &[u8], item: &ItemMeta) {
    let mut ttl = item.ttl;
    for flag in request.flags {
        match flag.letter {
            b'T' => ttl = item.ttl_touched,
            b'N' if item.created => ttl = item.ttl_created,
            letter if !answered.contains(&letter) => {}
            b's' => number_flag(out, b's', item.value_bytes),
            b't' => number_flag(out, b't', ttl.map_or(-1, |secs| secs.max(0))),
            b'c' => number_flag(out, b'c', item.cas_unique),
            b'f' => number_flag(out, b'f', item.client_flags),
            b'l' => number_flag(out, b'l', item.last_access_secs),
            b'h' => number_flag(out, b'h', u8::from(item.fetched)),
            b'O' => opaque(out, flag.token),
            b'k' => key_flag(out, &request.key),
            _ => {}
        }
    }
}

/// Appends the reply to an `mg` that found no item, unless the request is quiet.
pub fn meta_get_miss(out: &mut Vec<u8>, request: &MetaRequest<'_>) {
    if !request.quiet {
        identity(out, b"EN", request);
    }
}

/// Appends the reply to an `ms`, unless it succeeded and is quiet.
pub fn meta_set(out: &mut Vec<u8>, set: &MetaSet<'_>, outcome: Outcome<Stored>) {
    let stored = match outcome {
        Outcome::Done(_) if set.request.quiet => return,
        Outcome::Done(stored) => stored,
        _ => Stored {
            cas_unique: 0,
            value_bytes: set.value.len(),
        },
    };
    let item = ItemMeta {
        cas_unique: stored.cas_unique,
        value_bytes: stored.value_bytes,
        ..ItemMeta::default()
    };
    out.extend_from_slice(outcome.code());
    flags(out, &set.request, b"Okcs", &item);
    out.extend_from_slice(TERMINATOR);
}

/// Appends the reply to an `md`, unless it succeeded and is quiet.
pub fn meta_delete(out: &mut Vec<u8>, request: &MetaRequest<'_>, outcome: Outcome<()>) {
    if outcome != Outcome::Done(()) || !request.quiet {
        identity(out, outcome.code(), request);
    }
}

/// Appends the reply to an `ma`, unless it changed an item and is quiet. The reply to a value
/// that is not a number is [`Refusal::NonNumeric`], never quiet.
///
/// [`Refusal::NonNumeric`]: crate::Refusal::NonNumeric
pub fn meta_arithmetic(out: &mut Vec<u8>, request: &MetaRequest<'_>, outcome: Outcome<Counted>) {
    let Outcome::Done(counted) = outcome else {
        return identity(out, outcome.code(), request);
    };
    if request.quiet && !counted.item.created {
        return;
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(counted.value).as_bytes();
    if request.value {
        out.extend_from_slice(b"VA ");
        decimal(out, digits.len());
    } else {
        out.extend_from_slice(b"HD");
    }
    flags(out, request, b"tcOk", &counted.item);
    out.extend_from_slice(TERMINATOR);
    if request.value {
        out.extend_from_slice(digits);
        out.extend_from_slice(TERMINATOR);
    }
}

/// Appends the reply to an `me` at `now` (Unix seconds); `item` is `None` for a miss.
pub fn meta_debug(out: &mut Vec<u8>, key: &MetaKey<'_>, item: Option<&DumpedItem<'_>>, now: u32) {
    let Some(item) = item else {
        out.extend_from_slice(Status::MetaEnd.as_bytes());
        return;
    };
    out.extend_from_slice(b"ME ");
    key_bytes(out, key);
    out.extend_from_slice(b" exp=");
    match item.expiry {
        0 => out.extend_from_slice(b"-1"),
        expiry => decimal(out, i64::from(expiry) - i64::from(now)),
    }
    out.extend_from_slice(b" la=");
    decimal(out, now.saturating_sub(item.last_access));
    common_fields(out, item);
    out.extend_from_slice(TERMINATOR);
}

/// Appends a reply without fields of an item.
fn identity(out: &mut Vec<u8>, code: &[u8], request: &MetaRequest<'_>) {
    out.extend_from_slice(code);
    flags(out, request, b"Ok", &ItemMeta::default());
    out.extend_from_slice(TERMINATOR);
}

fn number_flag(out: &mut Vec<u8>, letter: u8, number: impl itoa::Integer) {
    out.extend_from_slice(&[b' ', letter]);
    decimal(out, number);
}

fn opaque(out: &mut Vec<u8>, token: &[u8]) {
    out.extend_from_slice(b" O");
    out.extend_from_slice(token);
}

/// Appends the key as a flag, and the flag `b` if the key is in base64.
fn key_flag(out: &mut Vec<u8>, key: &MetaKey<'_>) {
    out.extend_from_slice(b" k");
    key_bytes(out, key);
    if key.is_base64() {
        out.extend_from_slice(b" b");
    }
}

fn key_bytes(out: &mut Vec<u8>, key: &MetaKey<'_>) {
    if key.is_base64() {
        base64::encode(key.decode(&mut [0; KEY_MAX_BYTES]), out);
    } else {
        out.extend_from_slice(key.raw());
    }
}
