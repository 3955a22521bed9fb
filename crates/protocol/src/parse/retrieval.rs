//! `get`, `gets`, `gat`, `gats`.
//!
//! Every key of a line is checked before the first one is looked up: a line with one bad key gets
//! one `CLIENT_ERROR` and no values, as in memcached.

use memchr::memchr2;

use super::request::Meaning;
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key::{KEY_MAX_BYTES, Keys};
use crate::number::parse_i64;
use crate::reply::Refusal;
use crate::words::Words;

/// `get <key>*`, where `keys` is the rest of the line.
#[inline]
pub(super) fn get(keys: &[u8], with_cas: bool) -> Meaning<'_> {
    // One key and nothing else is what nearly every request is.
    let one = !keys.is_empty() && keys.len() <= KEY_MAX_BYTES && memchr2(b' ', 0, keys).is_none();
    let keys = if one {
        Keys::one(keys)
    } else {
        Keys::check(Words::new(keys)).ok_or(Refusal::BadFormat)?
    };
    if keys.len() == 0 {
        return Err(Refusal::UnknownCommand.into());
    }
    Ok(Command::Get { with_cas, keys })
}

/// `gat <exptime> <key>*`; without a key it answers `END`, as in memcached.
pub(super) fn get_and_touch(mut words: Words<'_>, with_cas: bool) -> Meaning<'_> {
    let exptime = words.next().ok_or(Refusal::UnknownCommand)?;
    let exptime = Exptime(parse_i64(exptime).ok_or(Refusal::InvalidExptime)?);
    let keys = Keys::check(words).ok_or(Refusal::BadFormat)?;
    Ok(Command::GetAndTouch {
        with_cas,
        exptime,
        keys,
    })
}
