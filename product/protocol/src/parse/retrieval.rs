//! `get`, `gets`, `gat`, `gats`.
//!
//! Every key of a line is checked before the first look-up: a line with one bad key gets
//! one `CLIENT_ERROR` and no values, as in memcached.

use memchr::memchr2;

use super::request::Meaning;
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key::{KEY_MAX_BYTES, Keys};
use crate::number::parse_i32;
use crate::reply::Refusal;
use crate::words::Words;

/// Parses `get <key>*`, where `keys` is the rest of the line.
#[inline]
pub(super) fn get(keys: &[u8], with_cas: bool) -> Meaning<'_> {
    // Nearly every request has one key and nothing else.
    let one = !keys.is_empty() && keys.len() <= KEY_MAX_BYTES && memchr2(b' ', 0, keys).is_none();
    let keys = if one {
        Keys::one(keys)
    } else {
        Keys::check(Words::new(keys)).ok_or(Refusal::BadFormat)?
    };
    if keys.len() == 0 {
        return Err(Refusal::BadFormat.into());
    }
    Ok(Command::Get { with_cas, keys })
}

/// Parses the words behind `gat` or `gats`: `<exptime> <key>*`.
pub(super) fn get_and_touch(mut words: Words<'_>, with_cas: bool) -> Meaning<'_> {
    let exptime = words.next().ok_or(Refusal::BadFormat)?;
    let keys = Keys::check(words).filter(|keys| keys.len() > 0);
    let keys = keys.ok_or(Refusal::BadFormat)?;
    let exptime = parse_i32(exptime).ok_or(Refusal::InvalidExptime)?;
    Ok(Command::GetAndTouch {
        with_cas,
        exptime: Exptime(exptime.into()),
        keys,
    })
}
