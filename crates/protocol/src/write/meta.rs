//! Replies of the meta protocol.
//!
//! A reply is a code (`HD VA EN NF NS EX ME MN`) and the flags that the request asked for, in its
//! order. What the `q` flag silences: a miss of `mg`, and success of `ms`, `md`, `ma`. Nothing
//! else (not an `ma` that created its item, for one), and never an error.

use super::dump::{DumpedItem, common_fields};
use super::{TERMINATOR, decimal};
use crate::base64;
use crate::key::{KEY_MAX_BYTES, MetaKey};
use crate::meta::{MetaArithmetic, MetaDebug, MetaDelete, MetaFlags, MetaGet, MetaSet};
use crate::reply::Status;

/// What replies tell about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemMeta {
    /// `f`: the client's own number.
    pub client_flags: u32,
    /// `c`: the version.
    pub cas_unique: u64,
    /// `s`: length of the value, in bytes.
    pub value_bytes: usize,
    /// `t`: seconds to live as the request found the item (never for one that `N` created), `None`
    /// for ever.
    pub ttl: Option<i64>,
    /// `t`, where it was sent after `T` or `N`: seconds to live as the request left the item.
    pub ttl_after: Option<i64>,
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

/// What came of `ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetOutcome {
    /// Stored, as this version and of this length (after `append` and `prepend`, the whole).
    Stored {
        /// The new version.
        cas_unique: u64,
        /// Length of the value now stored, in bytes.
        value_bytes: usize,
    },
    /// The condition of the mode did not hold.
    NotStored,
    /// The item is another version.
    Exists,
    /// There is no item to compare with.
    NotFound,
}

/// What came of `md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeleteOutcome {
    /// Deleted, marked as stale, or emptied.
    Done,
    /// No such item.
    NotFound,
    /// The item is another version.
    Exists,
}

/// What came of `ma`, short of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOutcome {
    /// Changed or created.
    Done {
        /// The number.
        value: u64,
        /// Whether the request created the item.
        created: bool,
        /// The item as it is now (`ttl` is as the request found it).
        item: ItemMeta,
    },
    /// No such item, and none was to be created.
    NotFound,
    /// It could not be created.
    NotStored,
    /// The item is another version.
    Exists,
}

/// Appends the reply to an `mg` that found (or created) `item`: the head, and `value` where the
/// request wants it.
pub fn meta_get_hit(out: &mut Vec<u8>, request: &MetaGet<'_>, item: &ItemMeta, value: &[u8]) {
    let with_value = request.wants_value(item.cas_unique);
    if with_value {
        out.extend_from_slice(b"VA ");
        decimal(out, item.value_bytes);
    } else {
        out.extend_from_slice(b"HD");
    }
    let touches = request.touch.is_some();
    flags(out, request.flags, &request.key, b"stcflhOk", item, touches);
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
    if with_value {
        out.reserve(value.len() + TERMINATOR.len());
        out.extend_from_slice(value);
        out.extend_from_slice(TERMINATOR);
    }
}

/// Appends the flags of a request that its reply answers: those among `answered`. `T` is in effect
/// from where it was sent on; so is `N`, of an item it created, unless `T` is there too.
#[inline]
fn flags(
    out: &mut Vec<u8>,
    flags: MetaFlags<'_>,
    key: &MetaKey<'_>,
    answered: &[u8],
    item: &ItemMeta,
    touches: bool,
) {
    let mut ttl = item.ttl;
    for flag in flags {
        match flag.letter {
            b'T' => ttl = item.ttl_after,
            b'N' if !touches => ttl = item.ttl_after,
            letter if !answered.contains(&letter) => {}
            b's' => number_flag(out, b's', item.value_bytes),
            b't' => number_flag(out, b't', ttl.unwrap_or(-1)),
            b'c' => number_flag(out, b'c', item.cas_unique),
            b'f' => number_flag(out, b'f', item.client_flags),
            b'l' => number_flag(out, b'l', item.last_access_secs),
            b'h' => number_flag(out, b'h', u8::from(item.fetched)),
            b'O' => opaque(out, flag.token),
            b'k' => key_flag(out, key),
            _ => {}
        }
    }
}

/// Appends the reply to an `mg` that found nothing, unless it is to be quiet about it.
pub fn meta_get_miss(out: &mut Vec<u8>, request: &MetaGet<'_>) {
    if !request.quiet {
        out.extend_from_slice(b"EN");
        identity_flags(out, request.flags, &request.key);
    }
}

/// Appends the reply to an `ms`, unless it succeeded and is to be quiet about it.
pub fn meta_set(out: &mut Vec<u8>, request: &MetaSet<'_>, outcome: SetOutcome) {
    let (code, cas_unique, value_bytes) = match outcome {
        SetOutcome::Stored { .. } if request.quiet => return,
        SetOutcome::Stored {
            cas_unique,
            value_bytes,
        } => (b"HD", cas_unique, value_bytes),
        SetOutcome::NotStored => (b"NS", 0, request.value.len()),
        SetOutcome::Exists => (b"EX", 0, request.value.len()),
        SetOutcome::NotFound => (b"NF", 0, request.value.len()),
    };
    out.extend_from_slice(code);
    let item = ItemMeta {
        cas_unique,
        value_bytes,
        ..ItemMeta::default()
    };
    flags(out, request.flags, &request.key, b"Okcs", &item, false);
    out.extend_from_slice(TERMINATOR);
}

/// Appends the reply to an `md`, unless it succeeded and is to be quiet about it.
pub fn meta_delete(out: &mut Vec<u8>, request: &MetaDelete<'_>, outcome: DeleteOutcome) {
    let code = match outcome {
        DeleteOutcome::Done if request.quiet => return,
        DeleteOutcome::Done => b"HD",
        DeleteOutcome::NotFound => b"NF",
        DeleteOutcome::Exists => b"EX",
    };
    out.extend_from_slice(code);
    identity_flags(out, request.flags, &request.key);
}

/// Appends the reply to an `ma`, unless it changed an item and is to be quiet about it. A value
/// that is not a number is [`Refusal::NonNumeric`], never quiet.
///
/// [`Refusal::NonNumeric`]: crate::Refusal::NonNumeric
pub fn meta_arithmetic(
    out: &mut Vec<u8>,
    request: &MetaArithmetic<'_>,
    outcome: ArithmeticOutcome,
) {
    let code = match outcome {
        ArithmeticOutcome::Done { created: false, .. } if request.quiet => return,
        ArithmeticOutcome::Done { value, item, .. } => {
            return arithmetic_done(out, request, value, &item);
        }
        ArithmeticOutcome::NotFound => b"NF",
        ArithmeticOutcome::NotStored => b"NS",
        ArithmeticOutcome::Exists => b"EX",
    };
    out.extend_from_slice(code);
    identity_flags(out, request.flags, &request.key);
}

fn arithmetic_done(out: &mut Vec<u8>, request: &MetaArithmetic<'_>, value: u64, item: &ItemMeta) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    if request.value {
        out.extend_from_slice(b"VA ");
        decimal(out, digits.len());
    } else {
        out.extend_from_slice(b"HD");
    }
    let touches = request.touch.is_some();
    flags(out, request.flags, &request.key, b"tcOk", item, touches);
    out.extend_from_slice(TERMINATOR);
    if request.value {
        out.extend_from_slice(digits);
        out.extend_from_slice(TERMINATOR);
    }
}

/// Appends the reply to an `me` at `now` (Unix seconds); `None` is a miss.
pub fn meta_debug(
    out: &mut Vec<u8>,
    request: &MetaDebug<'_>,
    item: Option<&DumpedItem<'_>>,
    now: u32,
) {
    let Some(item) = item else {
        out.extend_from_slice(Status::MetaEnd.as_bytes());
        return;
    };
    out.extend_from_slice(b"ME ");
    key_bytes(out, &request.key);
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

/// Appends the reply to `mn`.
pub fn meta_noop(out: &mut Vec<u8>) {
    out.extend_from_slice(Status::MetaNoop.as_bytes());
}

/// The flags of a reply that has no item to tell about, and the end of the line.
fn identity_flags(out: &mut Vec<u8>, of: MetaFlags<'_>, key: &MetaKey<'_>) {
    flags(out, of, key, b"Ok", &ItemMeta::default(), false);
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

/// The key as a flag; one in base64 says so with a `b` behind it.
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
